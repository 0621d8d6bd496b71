"""The pattern that groups and transactions share: a state machine on one log partition.

A *shard* owns the keys that hash to one partition of an internal topic. It does no I/O:

* A request method takes the request and the time and returns a `CoordinatorResult`: the records
  that make the decision durable, and the answers that may leave once those records are committed.
* `replay(record)` is the only way durable state changes. The host appends the records of a result,
  replays them in order, and parks the answers until the high watermark has passed them.
  An append that fails changes nothing, because nothing was changed before it.
* Loading a partition replays its log from the start: the same `replay`, the same state.
* Time is handed in. A shard says when it next wants to be called (`next_deadline_ms`) and the host
  calls `tick(now_ms)` then; what falls due comes back as results.

State that no restart has to survive (session deadlines, a rebalance in progress, requests parked
until it ends) is kept beside the replayed state and may change inside a request method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct as PackedStruct
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.schema import Message

Response = TypeVar("Response")

# What a shard parks of a request: the promise of its answer, which the host keeps.
Ticket: TypeAlias = Promise[Any]

_VERSION = PackedStruct(">h")


@dataclass(slots=True, frozen=True)
class CoordinatorRecord:
    """One record of an internal topic; `value` None is a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


class Reply(NamedTuple):
    """The answer to a request that was parked by an earlier result."""

    ticket: Ticket
    response: Any


@dataclass(slots=True)
class CoordinatorResult(Generic[Response]):
    """What a shard decided.

    records: to append in order as one batch, atomically; then to replay.
    response: the answer to the request that caused this; None while that request stays parked.
    replies: answers to requests parked earlier; they wait for the same records.
    effects: work for the host once the records are committed (a transaction's markers, say);
        what they are is agreed between a shard and its owner in the server.
    settle: called once, right after the append, with None or with the error that refused it; for
        soft state that must follow the fate of the records. Its result is carried out next.
    producer_id, producer_epoch: set when the records are part of that producer's transaction.

    A result without records waits for the records of those before it: an answer never shows what
    a crash could still take back.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    response: Response | None = None
    replies: list[Reply] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    settle: Callable[[ApiError | None], CoordinatorResult[Any] | None] | None = None
    producer_id: int = -1
    producer_epoch: int = -1

    def absorb(self, other: CoordinatorResult[Any]) -> None:
        """Appends what `other` decided (not its response) to this result."""
        if other.settle is not None and self.settle is not None:
            raise ValueError("two results with a settle step cannot be made one")
        self.records += other.records
        self.replies += other.replies
        self.effects += other.effects
        self.settle = self.settle or other.settle


class Shard(Protocol):
    """What the host (server/coordination/shard_host.py) needs of a state machine."""

    def replay(
        self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        """Applies one record; the producer is that of a transactional batch, else -1."""

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Applies the end of a transaction that wrote to this partition."""

    def loaded(self, now_ms: int) -> list[CoordinatorResult[Any]]:
        """Called once after the log was replayed: starts the timers, heals what is half done."""

    def unload(self) -> list[Reply]:
        """Called before the shard is dropped: the answers to everything still parked."""

    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next; None: not before something else happens."""

    def clock_was_set(self, by_ms: int) -> None:
        """The clock was set forward, or back if negative: `now_ms` is other by so much from here
        on, and no time has passed."""

    def tick(self, now_ms: int) -> Iterable[CoordinatorResult[Any]]:
        """Decides on everything due at `now_ms`. Each result is carried out before the next is
        asked for, so that a generator decides on what is, not on what was."""


class RecordCodec:
    """Records of one internal topic as bytes: an int16 (the key's type, the value's version), then
    the message. Built from the (key, value) classes; a key's `API_KEY` is its type."""

    def __init__(self, pairs: Iterable[tuple[type[Message], type[Message]]]) -> None:
        self._pairs = {key.API_KEY: (key, value) for key, value in pairs}

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        key = _VERSION.pack(record.key.API_KEY) + record.key.encode(0)
        if record.value is None:
            return key, None
        version = record.value_version
        return key, _VERSION.pack(version) + record.value.encode(version)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """None for a type of key this version does not know: a newer broker wrote it, skip it."""
        if key is None or len(key) < 2:
            raise ProtocolError("a coordinator record without a typed key")
        classes = self._pairs.get(_VERSION.unpack_from(key)[0])
        if classes is None:
            return None
        decoded_key = classes[0].decode(key, 0, 2)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        if len(value) < 2:
            raise ProtocolError("a coordinator record whose value has no version")
        (version,) = _VERSION.unpack_from(value)
        return CoordinatorRecord(decoded_key, classes[1].decode(value, version, 2), version)


def append_refusal(error: ApiError) -> ErrorCode:
    """What a client of a coordinator is told when the log refused its records."""
    if error.code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error.code
