"""What this node fetches from one other node: the partitions that it follows and that one leads.

Theory of operation. All these partitions share one connection and one fetch session, with one
request in flight. A fetch says two things at once: from where on records are wanted, and that all
below is durable here, which is what the leader's high watermark waits for. So a round is

    request ──▶ answer: append the records of each partition ──▶ one sync for all ──▶ next request

and the bytes are appended as they come, at the same offsets. A partition that cannot take part in
the next round is left out of it until it can; the others go on. A round costs what its answer
brings and what has changed since the one before: partitions without news cost nothing. A large
answer is appended over several turns of the loop, so that clients of this node are served between.

    FETCHING ──diverging epoch──▶ CUTTING ──cut──▶ FETCHING
       ├──offset out of range──▶ ASKING (where the leader's log starts and ends) ──▶ CUTTING
       ├──an error that passes──▶ PAUSING ──time──▶ FETCHING
       ├──behind, and above the throttle──▶ HELD BACK ──room──▶ FETCHING
       └──fenced, or the own disk refuses──▶ STOPPED, until the metadata brings a newer epoch

A throttled replica (KIP-73) that is in sync is never held back. One that had all of what was
committed within `replica.lag.time.max.ms` counts as in sync, also before the metadata says so: its
leader may wait for it with acknowledgements.

Whatever comes back is for the leader epoch at which it was asked for; when the partition has moved
on meanwhile, or its log has, nothing is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from tidelog.cluster.replication.follower_session import (
    FollowerSession,
    PartitionKey,
    WantedPartition,
)
from tidelog.cluster.replication.partition import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
)
from tidelog.cluster.replication.waiting import DURABLE
from tidelog.protocol.apis.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
    from tidelog.cluster.replication.waiting import Waiting
    from tidelog.protocol.schema import Message
    from tidelog.storage.truncations import Failure

_SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

# The leader has not heard yet what this node has: it does soon.
_RACES = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)

# The first pause after a failure; each that follows without success is twice as long, up to
# `replica.fetch.backoff.ms`.
_FIRST_PAUSE_S = 0.02

# What one turn of the loop takes of an answer.
_BYTES_PER_TURN_MAX = 1 << 20
_ROWS_PER_TURN_MAX = 100

Answered = Callable[["Message | None", "Exception | None"], None]


class Peer(Protocol):
    """The way to the leader's node: `done(response, None)` or `done(None, error)`, once, later."""

    def call(self, message: Message, done: Answered, *, timeout_s: float) -> None: ...


class EventLog(Protocol):
    """Where an operator reads what has happened."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


CallLater = Callable[[float, Callable[[], None]], object]


@dataclass(slots=True, frozen=True)
class FetcherOptions:
    """The settings `replica.fetch.*` and `replica.lag.time.max.ms`, and who fetches."""

    replica_id: int
    broker_epoch: Callable[[], int]
    wait_ms_max: int = 500
    bytes_min: int = 1
    partition_bytes_max: int = 1 << 20
    response_bytes_max: int = 10 << 20
    backoff_s: float = 1.0
    lag_ms_max: int = 30_000
    request_timeout_s: float = 30.0


class FollowerState(Enum):
    """What a followed partition is about."""

    FETCHING = "fetching"
    CUTTING = "cutting"
    ASKING = "asking"
    PAUSING = "pausing"
    HELD_BACK = "held back"
    STOPPED = "stopped"


class _Follower:
    """A partition that is followed, at one leader epoch."""

    __slots__ = ("failures", "key", "leader_epoch", "out_of_range_at", "partition", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: PartitionKey = (partition.topic_id, partition.partition)
        self.leader_epoch = partition.leader_epoch
        self.state = FollowerState.FETCHING
        self.failures = 0
        """How often in a row the leader had no answer."""
        self.out_of_range_at: int | None = None
        """Where the leader refused a fetch though its log has that offset."""

    @property
    def is_durable(self) -> bool:
        log = self.partition.log
        return log.durable_offset >= log.log_end_offset

    def wanted(self) -> WantedPartition:
        partition = self.partition
        return WantedPartition(
            self.leader_epoch,
            partition.log_end_offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )


class ReplicaFetcher:
    """Follows partitions that one node leads. All of it belongs to the loop thread."""

    def __init__(
        self,
        leader_id: int,
        peer: Peer,
        waiting: Waiting,
        call_later: CallLater,
        options: FetcherOptions,
        throttle: ReplicationThrottle,
        log: EventLog,
    ) -> None:
        self.leader_id = leader_id
        self._peer = peer
        self._waiting = waiting
        self._call_later = call_later
        self._options = options
        self._throttle = throttle
        self._log = log
        self._followers: dict[PartitionKey, _Follower] = {}
        # Those of them that take part in the next round, what the last round asked of them, and
        # those for which that may have changed since.
        self._fetching: set[PartitionKey] = set()
        self._wanted: dict[PartitionKey, WantedPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        # Those that lack something committed, as far as the leader has told, and since when they do
        # in monotonic milliseconds.
        self._behind: dict[PartitionKey, float] = {}
        self._session = FollowerSession(options.partition_bytes_max)
        # Of a round there is one of these at a time: a request is about to be made, is in flight
        # (or its answer is being worked through), its records are being synced, or the next is put
        # off after a failure.
        self._is_due = False
        self._is_asked = False
        self._unsynced = 0
        self._is_put_off = False
        self._failures = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._followers)

    def follow(self, partition: Partition) -> None:
        """Begin with a partition, or go on with it at a newer leader epoch."""
        follower = _Follower(partition)
        known = self._followers.get(follower.key)
        if (
            known is not None
            and known.partition is partition
            and known.leader_epoch == partition.leader_epoch
        ):
            return
        self._followers[follower.key] = follower
        self._behind[follower.key] = -inf
        self._set_state(follower, FollowerState.FETCHING)
        # What it wrote as a leader, or got from another one, may not be synced yet.
        self._sync([follower])
        self._go_on()

    def unfollow(self, partition: Partition) -> None:
        """Leave a partition to somebody else; what is on its way for it is dropped."""
        key = _key(partition)
        if self._followers.pop(key, None) is not None:
            self._fetching.discard(key)
            self._behind.pop(key, None)
            self._changed[key] = None

    def look_again(self, partition: Partition) -> None:
        """The log of a partition starts elsewhere: the leader has to hear of it."""
        key = _key(partition)
        if key in self._followers:
            self._changed[key] = None

    def try_now(self) -> None:
        """The leader's node may be reached by now: the next attempt is not put off any more."""
        if self._is_put_off:
            self._try_again()

    def state_of(self, partition: Partition) -> FollowerState | None:
        """What a partition is about; None when it is not followed here."""
        follower = self._followers.get(_key(partition))
        return None if follower is None else follower.state

    def close(self) -> None:
        """Follow nothing any more."""
        self._is_closed = True
        self._followers.clear()
        self._fetching.clear()
        self._behind.clear()
        self._wanted.clear()

    def _set_state(self, follower: _Follower, state: FollowerState) -> None:
        follower.state = state
        self._changed[follower.key] = None
        if state is FollowerState.FETCHING:
            self._fetching.add(follower.key)
        else:
            self._fetching.discard(follower.key)

    # Rounds

    def _go_on(self) -> None:
        """Make the next request, at the end of what is being done now."""
        if (
            self._is_due
            or self._is_asked
            or self._unsynced
            or self._is_put_off
            or self._is_closed
            or not self._fetching
        ):
            return
        self._is_due = True
        self._call_later(0.0, self._fetch)

    def _fetch(self) -> None:
        self._is_due = False
        for key in [key for key in self._changed if key in self._fetching]:
            follower = self._followers[key]
            if not follower.is_durable:
                # A fetch would say that it is.
                self._pause(follower, "the disk has not taken what was fetched")
        if self._throttle.is_active and self._throttle.bytes.is_exceeded:
            self._hold_back()
        if self._is_closed or not self._fetching:
            return
        self._is_asked = True
        wanted, changed = self._wanted, self._changed
        self._changed = {}
        for key in changed:
            if key in self._fetching:
                wanted[key] = self._followers[key].wanted()
            else:
                wanted.pop(key, None)
        options = self._options
        replica_epoch = options.broker_epoch()
        request = FetchRequest(
            replica_id=options.replica_id,
            replica_state=ReplicaState(replica_id=options.replica_id, replica_epoch=replica_epoch),
            max_wait_ms=options.wait_ms_max,
            min_bytes=options.bytes_min,
            max_bytes=options.response_bytes_max,
        )
        self._session.fill(request, wanted, changed)
        self._peer.call(request, self._answered, timeout_s=options.request_timeout_s)

    def _answered(self, response: Message | None, error: Exception | None) -> None:
        if self._is_closed or not self._is_asked:
            return
        if error is not None:
            self._is_asked = False
            self._failed(str(error))
            return
        assert isinstance(response, FetchResponse)
        code = ErrorCode(response.error_code)
        if code in _SESSION_LOST and not self._session.is_new:
            # The leader's node has forgotten it, or was another process.
            self._is_asked = False
            self._session.lose()
            self._go_on()
            return
        if code:
            self._is_asked = False
            self._failed(code.name)
            return
        self._failures = 0
        self._session.answered(response)
        self._work_through(
            (topic.topic_id, row) for topic in response.responses for row in topic.partitions
        )

    def _work_through(self, rows: Iterator[tuple[bytes, PartitionData]]) -> None:
        """Carries out this turn's share of an answer; the next request follows the last row."""
        if self._is_closed:
            return
        appended: list[_Follower] = []
        left_bytes, left_rows = _BYTES_PER_TURN_MAX, _ROWS_PER_TURN_MAX
        for topic_id, row in rows:
            key = (topic_id, row.partition_index)
            follower, wanted = self._followers.get(key), self._wanted.get(key)
            if (
                follower is not None
                and wanted is not None
                and self._is_current(follower, wanted)
                and self._take(follower, row)
            ):
                appended.append(follower)
                left_bytes -= len(row.records or b"")
            left_rows -= 1
            if left_bytes <= 0 or left_rows <= 0:
                self._sync(appended)
                self._call_later(0.0, partial(self._work_through, rows))
                return
        self._is_asked = False
        self._sync(appended)
        self._go_on()

    def _is_current(self, follower: _Follower, wanted: WantedPartition) -> bool:
        partition = follower.partition
        return (
            follower.state is FollowerState.FETCHING
            and follower.leader_epoch == wanted.leader_epoch == partition.leader_epoch
            and not partition.is_leader
            and partition.log_end_offset == wanted.fetch_offset
        )

    def _failed(self, reason: str) -> None:
        """Nothing was served: all partitions try again later."""
        self._session.lose()
        pause_s = self._pause_s(self._failures)
        self._failures += 1
        self._log.warning("replica_fetch_failed", leader=self.leader_id, error=reason)
        self._is_put_off = True
        self._call_later(pause_s, self._try_again)

    def _pause_s(self, failures: int) -> float:
        return float(min(_FIRST_PAUSE_S * 2 ** min(failures, 20), self._options.backoff_s))

    def _try_again(self) -> None:
        self._is_put_off = False
        self._go_on()

    # Throttling

    def _hold_back(self) -> None:
        """Leave throttled partitions out of the next round, unless they are in sync."""
        throttle = self._throttle
        now_ms = throttle.bytes.now_ms()
        was_held_back = False
        for key, since_ms in self._behind.items():
            follower = self._followers[key]
            if (
                follower.state is FollowerState.FETCHING
                and now_ms - since_ms > self._options.lag_ms_max
                and self._options.replica_id not in follower.partition.isr
                and throttle.throttles(follower.partition)
            ):
                self._set_state(follower, FollowerState.HELD_BACK)
                was_held_back = True
        if was_held_back:
            throttle.bytes.when_open(self._let_go)

    def _let_go(self) -> None:
        """The throttle may have room; the next round looks."""
        for follower in self._followers.values():
            if follower.state is FollowerState.HELD_BACK:
                self._set_state(follower, FollowerState.FETCHING)
        self._go_on()

    # Durability

    def _sync(self, followers: list[_Follower]) -> None:
        """The next request says that their logs are durable, so it waits for that."""
        for follower in followers:
            partition = follower.partition
            if not follower.is_durable:
                self._unsynced += 1
                self._waiting.wait(
                    partition, follower.leader_epoch, DURABLE, partition.log_end_offset, self
                )

    def reached(self, place: int, /) -> None:
        """A partition's records are durable."""
        self._unsynced -= 1
        self._go_on()

    def refused(self, place: int, code: ErrorCode, /) -> None:
        """The partition has another leader epoch, or its disk has failed."""
        self.reached(place)

    # One partition's row of an answer

    def _take(self, follower: _Follower, row: PartitionData) -> bool:
        """Carries a row out; says whether it brought records."""
        self._changed[follower.key] = None
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._ask_for_range(follower)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            # A newer epoch is on its way to this node.
            self._set_state(follower, FollowerState.STOPPED)
        elif code:
            self._pause(follower, code.name, is_race=code in _RACES)
        elif row.diverging_epoch.end_offset >= 0:
            leader_end = EpochEnd(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
            self._cut(follower, follower.partition.divergence(leader_end))
        else:
            return self._append(follower, row)
        return False

    def _append(self, follower: _Follower, row: PartitionData) -> bool:
        partition = follower.partition
        records = row.records
        if records and self._throttle.is_active:
            self._throttle.record(partition, len(records))
        try:
            if records:
                partition.append_as_follower(memoryview(records))
            partition.hear_from_leader(row.high_watermark, row.log_start_offset)
        except ApiError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE or _may_heal(follower, error):
                # Damaged on its way here, or at the leader, which has to find out.
                self._pause(follower, str(error))
            else:
                self._stop(follower, error)
            return False
        follower.failures = 0
        follower.out_of_range_at = None
        if row.high_watermark > partition.log_end_offset:
            self._behind.setdefault(follower.key, self._throttle.bytes.now_ms())
        else:
            self._behind.pop(follower.key, None)
        return bool(records)

    def _pause(self, follower: _Follower, reason: str, *, is_race: bool = False) -> None:
        pause_s = self._pause_s(follower.failures)
        follower.failures += 1
        if not is_race or pause_s >= self._options.backoff_s:
            self._log.warning(
                "replica_fetch_delayed",
                partition=f"{follower.partition.topic}-{follower.partition.partition}",
                leader=self.leader_id,
                error=reason,
            )
        self._set_state(follower, FollowerState.PAUSING)
        self._call_later(pause_s, partial(self._resume, follower))

    def _resume(self, follower: _Follower) -> None:
        if self._is_followed(follower) and follower.state is not FollowerState.STOPPED:
            self._set_state(follower, FollowerState.FETCHING)
            self._go_on()

    def _stop(self, follower: _Follower, error: Exception) -> None:
        self._set_state(follower, FollowerState.STOPPED)
        self._log.error(
            "replica_stopped",
            partition=f"{follower.partition.topic}-{follower.partition.partition}",
            leader=self.leader_id,
            error=error,
        )

    def _is_followed(self, follower: _Follower) -> bool:
        """Whether this is still so, at this epoch."""
        partition = follower.partition
        return (
            self._followers.get(follower.key) is follower
            and partition.leader_epoch == follower.leader_epoch
        )

    # Cutting

    def _cut(self, follower: _Follower, offset: int, *, starts_over: bool = False) -> None:
        partition = follower.partition
        self._set_state(follower, FollowerState.CUTTING)
        self._log.info(
            "replica_truncated",
            partition=f"{partition.topic}-{partition.partition}",
            leader=self.leader_id,
            leader_epoch=follower.leader_epoch,
            from_offset=partition.log_end_offset,
            to_offset=offset,
            high_watermark=partition.high_watermark,
        )
        cut = partition.start_over_at if starts_over else partition.truncate_to
        try:
            cut(offset, partial(self._was_cut, follower))
        except (ApiError, OSError) as error:
            self._was_cut(follower, error)

    def _was_cut(self, follower: _Follower, failure: Failure) -> None:
        if not self._is_followed(follower):
            return
        if failure is None:
            self._resume(follower)
        elif (
            isinstance(failure, ApiError)
            and failure.code is ErrorCode.KAFKA_STORAGE_ERROR
            and not _may_heal(follower, failure)
        ):
            self._stop(follower, failure)
        else:
            self._pause(follower, str(failure))

    # Out of range

    def _ask_for_range(self, follower: _Follower) -> None:
        """Where does the leader's log end, and if it goes on here, where does it start?"""
        self._set_state(follower, FollowerState.ASKING)
        self._list_offset(follower, LATEST_TIMESTAMP, partial(self._take_end, follower))

    def _take_end(self, follower: _Follower, end_offset: int) -> None:
        if end_offset < follower.partition.log_end_offset:
            self._cut(follower, end_offset)
        else:
            self._list_offset(follower, EARLIEST_TIMESTAMP, partial(self._take_start, follower))

    def _take_start(self, follower: _Follower, start_offset: int) -> None:
        end_offset = follower.partition.log_end_offset
        if start_offset > end_offset:
            # The leader deleted what this replica never got.
            self._cut(follower, start_offset, starts_over=True)
        elif follower.out_of_range_at != end_offset:
            # Its log may have grown past this one's end meanwhile.
            follower.out_of_range_at = end_offset
            self._pause(follower, "out of range, and within the leader's log")
        else:
            # The leader has the offset and knows nothing of the epoch before it, for instance
            # because its log lost its epochs: nobody can tell whether the logs agree.
            follower.out_of_range_at = None
            self._cut(follower, start_offset, starts_over=True)

    def _list_offset(
        self, follower: _Follower, timestamp: int, take: Callable[[int], None]
    ) -> None:
        partition = follower.partition
        asked = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=follower.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._options.replica_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )

        def answered(response: Message | None, error: Exception | None) -> None:
            if not self._is_followed(follower) or follower.state is not FollowerState.ASKING:
                return
            if error is not None:
                self._pause(follower, str(error))
                return
            assert isinstance(response, ListOffsetsResponse)
            row = response.topics[0].partitions[0]
            if row.error_code:
                self._pause(follower, ErrorCode(row.error_code).name)
            else:
                take(row.offset)

        self._peer.call(request, answered, timeout_s=self._options.request_timeout_s)


def _may_heal(follower: _Follower, error: ApiError) -> bool:
    """Whether the own disk is full, and not broken."""
    return (
        error.code is ErrorCode.KAFKA_STORAGE_ERROR and follower.partition.log.storage_error is None
    )


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.partition
