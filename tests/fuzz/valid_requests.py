"""Encoded requests of every API in every version: what the mutations of `frames` start from.

Most of their values are plausible (topics that exist, small numbers, real record batches), so that
a mutated request gets past the decoder and deep into a handler; some are extremes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocol.strategies import project
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.compression import Compression
from tidelog.protocol.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    FieldType,
    Primitive,
)
from tidelog.protocol.headers import encode_request
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.registry import DEFINED, request_class
from tidelog.protocol.schema import Message

FUZZED_TOPICS = ("fuzzed", "fuzzed-compacted")

_INTEGER_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}

_TEXTS: dict[str, tuple[str, ...]] = {
    "topic": FUZZED_TOPICS,
    "topic_name": FUZZED_TOPICS,
    "name": FUZZED_TOPICS,
    "topic_names": FUZZED_TOPICS,
    "subscribed_topic_names": FUZZED_TOPICS,
    "subscribed_topic_regex": ("fuzz.*", "(", "a{99999}"),
    "resource_name": FUZZED_TOPICS,
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "server_assignor": ("uniform", "range"),
    "configuration_keys": ("retention.ms", "cleanup.policy"),
    "types_filter": ("consumer", "classic"),
    "states_filter": ("Stable", "Empty"),
    "mechanism": ("PLAIN", "SCRAM-SHA-256"),
    # A quota that took hold would slow the fuzzer down, rightly.
    "entity_type": ("no-such-type",),
    "feature": ("no.such.feature",),
}
_INTEGERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, 0, 1),
    "broker_id": (77,),
    "max_wait_ms": (0, 1),
    "timeout_ms": (0, 100, 30_000),
    "session_timeout_ms": (6000,),
    "rebalance_timeout_ms": (1000,),
    "transaction_timeout_ms": (1000,),
    "num_partitions": (-1, 1, 2),
    "replication_factor": (-1, 1),
    "max_bytes": (0, 1 << 16),
    "partition_max_bytes": (0, 1 << 16),
    "replica_id": (-1, -1, 1),
    "timestamp": (-1, -2, -3, 0),
    "resource_type": (2, 2, 4, 16, 32),
    "iterations": (4096,),
}
_GENERAL_TEXTS = ("fuzz", "", "ünïcode-名", "x" * 130)
_GENERAL_INTEGERS = (0, 0, 0, 1, 1, -1, 2)


class ValidRequest(NamedTuple):
    """A whole frame, with its length."""

    api_key: int
    version: int
    frame: bytes
    is_flexible: bool


def valid_requests(rng: random.Random, topic_ids: list[bytes], times: int) -> list[ValidRequest]:
    """`times` requests of each version of each API."""
    requests = []
    for turn, (api_key, version, message) in enumerate(valid_messages(rng, topic_ids, times)):
        client_id = rng.choice(("fuzzer", "fuzzer", "", None))
        frame = encode_request(api_key, version, turn % times, client_id, message)
        is_flexible = version >= type(message).FLEXIBLE_FROM
        requests.append(ValidRequest(api_key, version, frame, is_flexible))
    return requests


def valid_messages(
    rng: random.Random, topic_ids: list[bytes], times: int
) -> Iterator[tuple[int, int, Message]]:
    """API key, version, and the request; `times` of each version of each API."""
    values = _Values(rng, topic_ids)
    for api_key in DEFINED:
        cls = request_class(api_key)
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            for turn in range(times):
                values.is_wild = turn % 4 == 3
                yield api_key, version, project(values.struct(cls), version)


class _Values:
    """Picks values for fields by their names and types."""

    def __init__(self, rng: random.Random, topic_ids: list[bytes]) -> None:
        self.rng = rng
        self.is_wild = False
        self._topic_ids = topic_ids
        self._batches = [bytes(batch) for batch in record_batches()]

    def struct(self, cls: type[Any]) -> Any:
        return cls(**{each.name: self._field(each) for each in cls.FIELDS})

    def _field(self, each: Field) -> Any:
        if each.nullable.high >= 0 and self.rng.random() < 0.1:
            return None
        return self._value(each.type, each.name)

    def _value(self, kind: FieldType, name: str) -> Any:
        if isinstance(kind, Array):
            count = self.rng.choice((1, 1, 1, 2, 0))
            return [self._value(kind.element, name) for _ in range(count)]
        if isinstance(kind, Primitive):
            return self._primitive(kind, name)
        return self.struct(kind)

    def _primitive(self, kind: Primitive, name: str) -> Any:
        rng = self.rng
        if kind is BOOL:
            return rng.random() < 0.5
        if kind is FLOAT64:
            return rng.choice((0.0, 1.5, float("nan"), float("inf")))
        if kind is UUID:
            return rng.choice((*self._topic_ids, rng.randbytes(16)))
        if kind is RECORDS:
            return rng.choice(self._batches)
        if kind is BYTES:
            return rng.randbytes(rng.choice((0, 4, 40)))
        if kind is STRING:
            return rng.choice(_GENERAL_TEXTS if self.is_wild else _TEXTS.get(name, _GENERAL_TEXTS))
        return self._integer(kind, name)

    def _integer(self, kind: Primitive, name: str) -> int:
        bits = _INTEGER_BITS[kind.name]
        lowest = 0 if kind.name.startswith("u") else -(1 << bits)
        if self.is_wild and self.rng.random() < 0.5:
            return self.rng.choice((lowest, (1 << bits) - 1))
        return max(lowest, self.rng.choice(_INTEGERS.get(name, _GENERAL_INTEGERS)))


def record_batches() -> list[bytearray]:
    """Batches of each codec, with and without keys, of idempotent and transactional producers."""
    records = [Record(i, 1000 + i, b"key %d" % i, b"value" * i, [("h", b"v")]) for i in range(4)]
    without_keys = [Record(0, 1000, None, None, [])]
    producer: dict[str, Any] = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}
    return [
        *(encode_batch(records, compression=codec) for codec in Compression),
        encode_batch(without_keys),
        encode_batch(records, **producer),
        encode_batch(records, is_transactional=True, **producer),
        encode_batch(records) + encode_batch(without_keys),
    ]


# A mutated request of these that is still valid makes something that stays. Only so many are sent
# that a run of a million frames ends with memory that can be compared with what it began with.
MAKERS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    }
)
