"""The same partition for the same key, the one that the Java client chooses."""

import random

from tidelog.client.partitioners.choice import Choice
from tidelog.client.topic_layout import TopicLayout

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, as an unsigned number."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word ^= word >> 24
        value = (value * _M & _MASK) ^ (word * _M & _MASK)
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


def key_partition(key: bytes, partition_count: int) -> int:
    """The partition that every Kafka client with the default partitioner picks for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class KeyHash:
    """Records with a key by its hash; records without one at random."""

    native: str | None = "murmur2_random"

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice:
        if key is None:
            return Choice(random.randrange(layout.partition_count))
        return Choice(key_partition(key, layout.partition_count))
