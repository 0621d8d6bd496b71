"""Splitting the keys that would overload one partition.

A key that makes up more than `threshold` of the recent records is hot: its records are dealt in
turn over `ways` partitions, starting at the key's own. Each such record carries a header with its
salt, so that a reader can tell the parts of a split key and put them in order again. All other
keys stay on the partition that the Java client would choose.
"""

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from tidelog.client.message import Headers, Message
from tidelog.client.partitioners.choice import Choice
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.client.partitioners.key_rates import KeyRates
from tidelog.client.topic_layout import TopicLayout

SALT_HEADER = "tidelog.salt"

_LONG_KEY_BYTES = 64
_RECORDS_BEFORE_JUDGING = 100


@dataclass(slots=True, frozen=True, order=True)
class Salt:
    """Which part of a split key a record is: part `salt` of `ways`, the `sequence`-th split one."""

    sequence: int
    salt: int
    ways: int

    def encode(self) -> bytes:
        return f"{self.salt}/{self.ways}/{self.sequence}".encode()


def read_salt(headers: Headers) -> Salt | None:
    """The salt of a record whose key was split, or None for any other record."""
    for name, value in headers:
        if name == SALT_HEADER and value is not None:
            try:
                salt, ways, sequence = (int(part) for part in value.split(b"/"))
            except ValueError:
                return None
            return Salt(sequence, salt, ways)
    return None


def merge_split_keys(messages: Iterable[Message]) -> dict[bytes | None, list[Message]]:
    """Messages by key; the parts of a split key stand in the order in which they were published.

    Records of a key from before it became hot come first. This holds for the records of one
    publisher within the given messages.
    """
    groups: dict[bytes | None, list[tuple[int, int, Message]]] = {}
    for at, message in enumerate(messages):
        salt = read_salt(message.headers)
        order = -1 if salt is None else salt.sequence
        groups.setdefault(message.raw_key, []).append((order, at, message))
    return {
        key: [message for _, _, message in sorted(group, key=lambda entry: entry[:2])]
        for key, group in groups.items()
    }


class HotKeySplitting:
    """Key hash, but hot keys are spread over `ways` partitions. Memory is bounded by `capacity`."""

    native: str | None = None

    def __init__(
        self,
        *,
        threshold: float = 0.1,
        ways: int = 4,
        window_ms: int = 10_000,
        capacity: int = 1024,
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold is a share between 0 and 1, not {threshold}")
        if ways < 2:
            raise ValueError(f"a key is split at least 2 ways, not {ways}")
        self.threshold = threshold
        self.ways = ways
        self.window_ms = window_ms
        self.capacity = capacity
        self._rates: dict[str, KeyRates] = {}
        # One number for all split records gives their order; each key deals by a turn of its own,
        # or two hot keys that alternate would each see only half of their partitions.
        self._sequence = 0
        self._turns: dict[Hashable, int] = {}
        self._keyless_turn = 0

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice:
        if key is None:
            self._keyless_turn += 1
            return Choice(self._keyless_turn % layout.partition_count)
        home = key_partition(key, layout.partition_count)
        if not self._is_hot(layout.topic, key):
            return Choice(home)
        ways = min(self.ways, layout.partition_count)
        salt = Salt(self._sequence, self._next_turn(layout.topic, key) % ways, ways)
        self._sequence += 1
        partition = (home + salt.salt) % layout.partition_count
        return Choice(partition, ((SALT_HEADER, salt.encode()),))

    def _next_turn(self, topic: str, key: bytes) -> int:
        if len(self._turns) > self.capacity:
            self._turns.clear()
        turn = self._turns.get((topic, key), 0)
        self._turns[topic, key] = turn + 1
        return turn

    def _is_hot(self, topic: str, key: bytes) -> bool:
        rates = self._rates.get(topic)
        if rates is None:
            rates = KeyRates(capacity=self.capacity, window_ms=self.window_ms)
            self._rates[topic] = rates
        # A long key is counted by its hash: the memory of the counts must not follow key sizes.
        counted = key if len(key) <= _LONG_KEY_BYTES else hash(key)
        rates.add(counted, int(time.monotonic() * 1000))
        enough = rates.records_seen >= _RECORDS_BEFORE_JUDGING
        return enough and rates.share(counted) > self.threshold
