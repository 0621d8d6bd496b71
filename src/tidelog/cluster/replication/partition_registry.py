"""The partitions that this node replicates, found by name or by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.cluster.replication.partition import Partition


class PartitionRegistry:
    """Two dicts of tuples, so that a lookup on the hot path is one hash."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        return self._by_id.get((topic_id, partition))

    def add(self, partition: Partition) -> None:
        key = (partition.topic, partition.partition)
        assert key not in self._by_name, f"{partition} is registered twice"
        self._by_name[key] = partition
        self._by_id[partition.topic_id, partition.partition] = partition

    def remove(self, topic: str, partition: int) -> Partition | None:
        """Takes the partition out; who holds it can go on using its log until that is closed."""
        found = self._by_name.pop((topic, partition), None)
        if found is not None:
            del self._by_id[found.topic_id, found.partition]
        return found

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic that are here, by id."""
        found = [each for each in self._by_name.values() if each.topic == topic]
        return sorted(found, key=lambda each: each.partition)

    def __iter__(self) -> Iterator[Partition]:
        """All of them; the registry may change meanwhile."""
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)
