"""Compacted topics: what is left of a log still tells the last value of every key.

A reader that goes through the whole log ends with the last acknowledged value of each key, or a
later one; a key whose last record is a tombstone may be gone. While there are faults a reader can
be slower than `delete.retention.ms`, and may then miss a tombstone, as with Kafka: keys that get
tombstones are checked only in the end. A leader of a cluster that is cut off and does not know of
the next one tells what was true before: of what was acknowledged a reader then sees what lies below
the end that it was told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.consuming import Reader
from tidelog.testing.simulation.workloads.producing import IdempotentProducer
from tidelog.testing.simulation.workloads.topics import create_topics, list_offset
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPIC = "compacted"
_KEYS = tuple(b"key-%d" % number for number in range(6))
_KEYS_WITH_TOMBSTONES = _KEYS[3:]
_RETRY_S = 0.05
_NOT_TOLD = 1 << 62
_REST_S = 0.6
"""In the end the cleaner has so long for more passes before the log is read a second time."""


@dataclass(slots=True)
class _Key:
    """What was written under a key, in order; None is a tombstone."""

    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Where each of them was acknowledged; one that is not told counts as at the log's end."""
    acknowledged: int = -1

    def acknowledged_below(self, offset: int, since: int) -> int:
        """The newest of those acknowledged by `since` that lies below an offset."""
        while since >= 0 and self.offsets[since] >= offset:
            since -= 1
        return since

    def is_possible(self, value: bytes | None, since: int) -> bool:
        """Whether a reader may find this last, who began when `since` was acknowledged."""
        return value in self.values[max(since, 0) :] or (value is None and since < 0)


class Compaction:
    """One producer for a partition, which alone knows the order of its writes, and a reader."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options
        self._keys: dict[tuple[TopicPartition, bytes], _Key] = {}

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.compacted_partitions > 0

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        admin = workspace.make_client("compact-admin")
        random = admin.random
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(random.choice((500, 2000))),
            "segment.ms": str(random.choice((20, 100, 1000))),
            "max.compaction.lag.ms": str(random.choice((20, 100, 1000))),
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(random.choice((100, 1000))),
            "file.delete.delay.ms": str(random.choice((0, 100))),
        }
        partitions = options.compacted_partitions
        admin.start(create_topics(admin, workspace, [_TOPIC], partitions, configs))
        for number in range(partitions):
            client = workspace.make_client(f"compact-{number}")
            writer = _Writer(client, self, TopicPartition(_TOPIC, number))
            workspace.start_when_ready(client, writer.run)
        reader = workspace.make_client("compact-reader")
        workspace.start_when_ready(reader, lambda: self._read_on(reader))

    def key(self, partition: TopicPartition, key: bytes) -> _Key:
        return self._keys.setdefault((partition, key), _Key())

    async def _read_on(self, client: SimulatedClient) -> None:
        while not self.workspace.is_over:
            for partition in self.workspace.partitions:
                await self._read_through(
                    client, partition, _KEYS[:3], may_be_stale=self._options.nodes > 1
                )
            await client.sleep(client.random.random() * 0.2)

    async def _read_through(
        self,
        client: SimulatedClient,
        partition: TopicPartition,
        keys: Iterable[bytes],
        *,
        may_be_stale: bool = False,
    ) -> None:
        """Read a partition to its end, and compare what it says of the keys."""
        since = {key: self.key(partition, key).acknowledged for key in keys}
        found: dict[bytes, bytes | None] = {}
        end_offset = await list_offset(client, partition)
        reader = Reader(client, partition, read_committed=False)
        last_offset = -1
        while True:
            records = await reader.poll_records(max_wait_ms=0)
            if records is None:
                await client.sleep(_RETRY_S)
                continue
            for record in records:
                assert record.offset > last_offset, f"{record.offset} after {last_offset}"
                last_offset = record.offset
                value = None if record.value is None else bytes(record.value)
                found[bytes(record.key or b"")] = value
            if reader.position >= max(end_offset, reader.end_offset):
                break
        client.trace(f"read {partition} up to {reader.position}, {len(found)} keys")
        for key, acknowledged in since.items():
            value = found.get(key)
            if may_be_stale:
                acknowledged = self.key(partition, key).acknowledged_below(
                    reader.position, acknowledged
                )
            if not self.key(partition, key).is_possible(value, acknowledged):
                last = self.key(partition, key).values[acknowledged]
                self.workspace.problem(
                    client.name,
                    f"{partition} says {value!r} of {key!r}, and {last!r} was acknowledged",
                )

    def wind_up(self) -> None:
        client = self.workspace.make_client("compact-last")
        client.start(self._look(client))

    async def _look(self, client: SimulatedClient) -> None:
        for _ in range(2):
            for partition in self.workspace.partitions:
                await self._read_through(client, partition, _KEYS)
            await client.sleep(_REST_S)

    def failures(self) -> Iterable[str]:
        return ()


class _Writer:
    """Writes keys of one partition."""

    def __init__(
        self, client: SimulatedClient, compaction: Compaction, partition: TopicPartition
    ) -> None:
        self._client = client
        self._compaction = compaction
        self._partition = partition
        self._producer = IdempotentProducer(client, compaction.workspace, acks=-1)

    async def run(self) -> None:
        client, workspace = self._client, self._compaction.workspace
        await self._producer.begin()
        while not workspace.is_over:
            rows = [self._draw() for _ in range(client.random.randint(1, 4))]
            written = []
            for name, value in rows:
                key = self._compaction.key(self._partition, name)
                key.values.append(value)
                key.offsets.append(_NOT_TOLD)
                written.append((key, len(key.values) - 1))
            first_offset = await self._producer.send_until_acknowledged(self._partition, rows)
            if first_offset is None:
                return
            for offset, (key, place) in enumerate(written, first_offset):
                key.acknowledged = place
                if first_offset >= 0:
                    key.offsets[place] = offset
            await client.sleep(client.random.random() * 0.02)

    def _draw(self) -> tuple[bytes, bytes | None]:
        random = self._client.random
        key = random.choice(_KEYS)
        is_tombstone = key in _KEYS_WITH_TOMBSTONES and random.random() < 0.4
        return key, None if is_tombstone else self._compaction.workspace.next_value()
