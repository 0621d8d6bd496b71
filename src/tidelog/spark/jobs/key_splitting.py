"""What splitting hot keys would do to the load of partitions.

The model is `tidelog.client.partitioners.HotKeySplitting`: a split key's records are dealt in turn
over `ways` partitions, beginning with the one that its hash picks; all others stay where they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.client.partitioners.key_hash import key_partition


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """What a key puts on each partition that has records of it."""

    key: bytes
    by_partition: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


def split_load(loads: Sequence[int], keys: Sequence[KeyLoad], ways: int) -> list[int]:
    """The load of each partition after the keys were split."""
    after = list(loads)
    count = len(after)
    ways = min(ways, count)
    for key in keys:
        for partition, load in key.by_partition.items():
            after[partition] -= load
        home = key_partition(key.key, count)
        share, rest = divmod(key.total, ways)
        for part in range(ways):
            after[(home + part) % count] += share + (part < rest)
    return after


def skew(loads: Sequence[int]) -> float:
    """The heaviest partition's load by the mean: 1 is even, the number of partitions is the worst.

    Of no load at all it is 1.
    """
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0
