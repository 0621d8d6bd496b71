"""Runs the state machines of a coordinator on the partitions of its internal topic.

A partition of the internal topic that this node leads is a shard's home. Taking it over replays its
log, in slices between which the loop serves others; until that is done requests are told to wait.
Then every request goes the same way: the shard decides, its records are appended as one batch and
replayed, and the answer leaves when the partition's high watermark has passed them. An answer
without records waits for the records before it, so nobody is told what a crash could take back.
That holds for a new leader too: its state is the whole of its log, and who asks hears of it when
the high watermark has come to where the log ended.

A shard belongs to one leader epoch. Losing the partition, or leading it at another epoch, drops the
shard and sends everybody who waits to look for the new coordinator; what was begun at an epoch and
comes back later (`submit` with a `leader_epoch`) is refused by the shard of the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.cluster.replication.waiting import COMMITTED
from tidelog.coordinator.record_pairs import Pair, record_pairs
from tidelog.coordinator.shard import (
    CoordinatorResult,
    RecordCodec,
    Reply,
    Shard,
    Ticket,
    append_refusal,
)
from tidelog.promise import Promise, gather, settle_all
from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, decode_records, encode_batch, records_section
from tidelog.storage.append_result import Origin

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

AnyShard = TypeVar("AnyShard", bound=Shard)
Response = TypeVar("Response")

LoadPairs = Callable[[AnyShard, list[Pair], int, int], None]

_LOAD_SLICE_BYTES = 1 << 20
# How long a turn of the loop loads, all shards together.
_LOAD_TURN_S = 0.02
_LOAD_START_S = 1.0
# A replica that is to lead may have its log to cut first.
_LATE_LEADER_CHECK_S = 0.05
_TIMER_SLACK_S = 0.001
# The clock was set if it has moved so much against the time that has passed.
_CLOCK_SET_MS_MIN = 200
# What a record has besides its key and value, at most.
_RECORD_OVERHEAD = 32
_GONE = object()
# Refusals that tell nothing of the state that must not be taken back.
_COME_BACK = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class _Undelivered:
    """Answers, and what is to be done, once the records before `next_offset` are committed."""

    __slots__ = ("_hosted", "effects", "next_offset", "replies")

    def __init__(
        self,
        hosted: HostedShard[Any],
        next_offset: int,
        replies: list[Reply],
        effects: list[Any],
    ) -> None:
        self._hosted = hosted
        self.next_offset = next_offset
        self.replies = replies
        self.effects = effects

    def reached(self, place: int, /) -> None:
        self._hosted.committed(self)

    def refused(self, place: int, code: ErrorCode, /) -> None:
        self._hosted.not_committed(self, code)


class HostedShard(Generic[AnyShard]):
    """One shard and its partition, from taking over to losing it."""

    def __init__(self, host: ShardHost[AnyShard], shard: AnyShard, partition: Partition) -> None:
        self.shard = shard
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.index = partition.partition
        self.is_loaded = False
        self.is_closed = False
        self._host = host
        self._load_offset = partition.log_start_offset
        self._written_offset = 0
        self._undelivered: dict[_Undelivered, None] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._clock_ahead_ms = self._clock_ahead(host.node.now_ms())

    # Loading

    def load_until(self, give_way_at: float) -> bool:
        """Replays a piece, and more while there is time; true when everything is replayed."""
        monotonic = self._host.node.world.monotonic
        log = self.partition.log
        while self._load_offset < log.log_end_offset:
            found = log.read(self._load_offset, _LOAD_SLICE_BYTES, log.log_end_offset)
            if found.file_slice is None:
                # What compaction or deletion left of the log has no record here.
                self._load_offset = max(found.next_offset, log.log_start_offset)
                if found.next_offset <= found.offset:
                    break
                continue
            try:
                batches = found.file_slice.read(log.files)
            except OSError as error:
                # As for an error that the log meets itself: its directory has failed.
                if log.on_storage_error is not None:
                    log.on_storage_error(log, error)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            self._load_batches(batches)
            self._load_offset = found.next_offset
            if monotonic() >= give_way_at:
                return self._load_offset >= log.log_end_offset
        return True

    def _load_batches(self, data: bytes) -> None:
        view = memoryview(data)
        for at, header in iterate_headers(view):
            batch = view[at : at + header.size_bytes]
            producer_id = header.producer_id if header.is_transactional else -1
            producer_epoch = header.producer_epoch
            if header.is_control:
                for record in decode_records(batch, header):
                    marker = decode_control(record)
                    if isinstance(marker, EndMarker):
                        self.shard.replay_end_marker(producer_id, producer_epoch, marker.is_commit)
                continue
            pairs = record_pairs(records_section(batch, header), header.record_count)
            self._host.load_pairs(self.shard, pairs, producer_id, producer_epoch)

    def loaded(self) -> None:
        self.is_loaded = True
        self._written_offset = self.partition.log_end_offset
        for result in self.shard.loaded(self._now_ms()):
            self.carry_out(result)
        self._arm_timer()

    # Working

    def submit(
        self,
        operation: Callable[[AnyShard, int], CoordinatorResult[Response]],
        ticket: Promise[Response],
    ) -> None:
        try:
            result = operation(self.shard, self._now_ms())
        except ApiError as error:
            if error.code in _COME_BACK:
                ticket.fail(error)
            else:
                self._when_committed([Reply(ticket, error)], [])
            return
        # Without a response the request is parked: the shard has its ticket.
        self.carry_out(result, None if result.response is None else ticket)
        self._arm_timer()

    def carry_out(self, result: CoordinatorResult[Any], ticket: Ticket | None = None) -> None:
        """Appends, replays, settles, and has the answers wait for the commit; `ticket` is that of
        the result's own response."""
        replies = result.replies
        if ticket is not None:
            replies = [Reply(ticket, result.response), *replies]
        error = self._write(result) if result.records else None
        follow_up = None if result.settle is None else result.settle(error)
        if follow_up is not None:
            # Before any answer: an answer lets its connection's next request in, which must not
            # come between a decision and its records.
            self.carry_out(follow_up)
        if error is not None:
            _refuse(replies, error)
        elif replies or result.effects:
            self._when_committed(replies, result.effects)

    def _write(self, result: CoordinatorResult[Any]) -> ApiError | None:
        now_ms = self._host.node.now_ms()
        batches = self._encode(result, now_ms)
        try:
            appended = self.partition.append_as_leader(
                memoryview(batches), now_ms, origin=Origin.COORDINATOR
            )
        except ApiError as error:
            return error
        self._written_offset = appended.next_offset
        producer_id = result.producer_id
        producer_epoch = result.producer_epoch
        for record in result.records:
            self.shard.replay(record, producer_id, producer_epoch)
        return None

    def end_marker_appended(
        self, producer_id: int, producer_epoch: int, committed: bool, next_offset: int
    ) -> None:
        self._written_offset = next_offset
        self.shard.replay_end_marker(producer_id, producer_epoch, committed)

    def _encode(self, result: CoordinatorResult[Any], now_ms: int) -> bytearray:
        """The records as batches that the topic takes, nearly always one; all of them are appended
        by one call, which takes everything or nothing."""
        limit_bytes = self.partition.log.config.max_message_bytes // 2
        encode = self._host.codec.encode
        batches = bytearray()
        rows: list[Record] = []
        size_bytes = 0
        for record in result.records:
            key, value = encode(record)
            size_bytes += len(key) + (len(value) if value is not None else 0) + _RECORD_OVERHEAD
            if size_bytes > limit_bytes and rows:
                batches += self._encode_batch(result, rows)
                rows = []
                size_bytes = 0
            rows.append(Record(len(rows), now_ms, key, value))
        batch = self._encode_batch(result, rows)
        return batches + batch if batches else batch

    def _encode_batch(self, result: CoordinatorResult[Any], rows: list[Record]) -> bytearray:
        return encode_batch(
            rows,
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
            is_transactional=result.producer_id >= 0,
        )

    def _when_committed(self, replies: list[Reply], effects: list[Any]) -> None:
        # In order: what comes behind an answer that is on its way waits for it.
        if not self._undelivered and self._written_offset <= self.partition.high_watermark:
            self._deliver(replies, effects)
            return
        undelivered = _Undelivered(self, self._written_offset, replies, effects)
        self._undelivered[undelivered] = None
        deadline = self._host.node.world.monotonic() + self._host.commit_timeout_s
        self._wait_for(undelivered, deadline)

    def _wait_for(self, undelivered: _Undelivered, deadline: float = inf) -> None:
        self._host.node.waiting.wait(
            self.partition,
            self.leader_epoch,
            COMMITTED,
            undelivered.next_offset,
            undelivered,
            deadline=deadline,
        )

    def committed(self, undelivered: _Undelivered) -> None:
        if self._undelivered.pop(undelivered, _GONE) is not _GONE:
            self._deliver(undelivered.replies, undelivered.effects)

    def not_committed(self, undelivered: _Undelivered, code: ErrorCode) -> None:
        """A disk or a replica is slow, or the partition is not ours any more."""
        if code is not ErrorCode.REQUEST_TIMED_OUT:
            self._host.lost(self)
            return
        if undelivered not in self._undelivered:
            return
        replies, undelivered.replies = undelivered.replies, []
        if undelivered.effects:
            # What is to be done once the records are committed still waits for that.
            self._wait_for(undelivered)
        else:
            del self._undelivered[undelivered]
        _refuse(replies, ApiError(code))

    def _deliver(self, replies: list[Reply], effects: list[Any]) -> None:
        try:
            _answer(replies)
        finally:
            if effects and not self.is_closed:
                self._host.on_effects(self.index, self.leader_epoch, effects)

    # Time

    def _now_ms(self) -> int:
        """The time for the shard, which hears first when the clock was set."""
        now_ms = self._host.node.now_ms()
        set_by_ms = self._clock_ahead(now_ms) - self._clock_ahead_ms
        if abs(set_by_ms) >= _CLOCK_SET_MS_MIN:
            self._clock_ahead_ms += set_by_ms
            self.shard.clock_was_set(set_by_ms)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._arm_timer()
        return now_ms

    def _clock_ahead(self, now_ms: int) -> int:
        """How far the clock is ahead of the time that passes steadily."""
        return now_ms - int(self._host.node.world.monotonic() * 1000)

    def _arm_timer(self) -> None:
        """Cost when the next deadline is not sooner than the one armed: two comparisons."""
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is None or self.is_closed:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(deadline_ms - self._host.node.now_ms(), 0) / 1000
        self._timer = self._host.node.reactor.call_later(delay_s + _TIMER_SLACK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        try:
            for result in self.shard.tick(self._now_ms()):
                self.carry_out(result)
        finally:
            self._arm_timer()

    # The end

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        moved = ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator has moved")
        undelivered, self._undelivered = self._undelivered, {}
        try:
            _refuse([reply for each in undelivered for reply in each.replies], moved)
        finally:
            _answer(self.shard.unload())


class ShardHost(Generic[AnyShard]):
    """The shards of one internal topic on this node.

    load_pairs: replays keys and values as they are in the log; the default uses the codec.
    on_effects: carries out what committed results asked for, with the shard's index and leader
        epoch.
    on_loaded: is told when a shard takes requests.
    on_lost: is told when a shard is dropped.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        codec: RecordCodec,
        make_shard: Callable[[int], AnyShard],
        *,
        load_pairs: LoadPairs[AnyShard] | None = None,
        on_effects: Callable[[int, int, list[Any]], None] = lambda index, epoch, effects: None,
        on_loaded: Callable[[int, AnyShard], None] = lambda index, shard: None,
        on_lost: Callable[[int], None] = lambda index: None,
    ) -> None:
        self.node = node
        self.topic = topic
        self.codec = codec
        self.load_pairs = load_pairs or self._load_pairs
        self.on_effects = on_effects
        self.commit_timeout_s = node.config.offsets_commit_timeout_ms / 1000
        self._make_shard = make_shard
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self._hosted: dict[int, HostedShard[AnyShard]] = {}
        self._to_load: deque[HostedShard[AnyShard]] = deque()
        self._loads_next_turn = False
        self._is_late: Timer | None = None

    def partition_count(self) -> int:
        """0 while the topic does not exist."""
        topic = self.node.image.topics_by_name.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def start(self, image: MetadataImage) -> None:
        """Takes over what this node leads when it starts: nobody is served before that."""
        self.refresh(image, _LOAD_START_S)

    def refresh(self, image: MetadataImage, load_s: float = _LOAD_TURN_S) -> None:
        """Takes over what this node leads now and drops what it leads no more."""
        for hosted in list(self._hosted.values()):
            partition = self.node.partitions.get(self.topic, hosted.index)
            if (
                partition is not hosted.partition
                or not partition.is_leader
                or partition.leader_epoch != hosted.leader_epoch
            ):
                self.lost(hosted)
        topic = image.topics_by_name.get(self.topic)
        is_late = False
        for each in () if topic is None else topic.partitions:
            partition = self.node.partitions.get(self.topic, each.partition)
            if partition is None or each.leader != self.node.config.node_id:
                continue
            if not partition.is_leader or partition.leader_epoch != each.leader_epoch:
                is_late = True
            elif each.partition not in self._hosted:
                self._take_over(partition)
        self._look_again_later(is_late)
        self._load(load_s)

    def _look_again_later(self, is_late: bool) -> None:
        """A partition that does not lead yet, though the metadata says so, tells nobody when it
        begins to."""
        if is_late and self._is_late is None:

            def look() -> None:
                self._is_late = None
                self.refresh(self.node.image)

            self._is_late = self.node.reactor.call_later(_LATE_LEADER_CHECK_S, look)
        elif not is_late and self._is_late is not None:
            self._is_late.cancel()
            self._is_late = None

    def submit(
        self,
        index: int,
        operation: Callable[[AnyShard, int], CoordinatorResult[Response]],
        ticket: Promise[Response] | None = None,
        *,
        leader_epoch: int | None = None,
    ) -> Promise[Response]:
        """Runs `operation(shard, now_ms)`. The response comes when it is safe to send, at once or
        later. `ticket` is what is returned, for an operation that may park its request. With a
        `leader_epoch` only the shard of that epoch takes it."""
        promise: Promise[Response] = Promise() if ticket is None else ticket
        hosted = self._hosted.get(index)
        if hosted is None or not hosted.is_loaded:
            promise.fail(ApiError(self._why_not(hosted)))
        elif leader_epoch is not None and leader_epoch != hosted.leader_epoch:
            promise.fail(ApiError(ErrorCode.NOT_COORDINATOR))
        else:
            hosted.submit(operation, promise)
        return promise

    def submit_all(
        self, operation: Callable[[AnyShard, int], CoordinatorResult[Response]]
    ) -> Promise[list[Response]]:
        """Runs `operation` on every shard; fails while one is loading. A shard that goes before it
        has answered is left out: what it had is another node's to tell."""
        if self.is_loading():
            return Promise.failed(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

        def moved(error: ApiError) -> Response | None:
            if error.code is ErrorCode.NOT_COORDINATOR:
                return None
            raise error

        answers: list[Promise[Response | None]] = [
            self.submit(index, operation).then(_or_none).recover(ApiError, moved)
            for index in sorted(self._hosted)
        ]
        return gather(answers).then(lambda found: [each for each in found if each is not None])

    def check(self, index: int) -> None:
        """Raises ApiError when the shard would not take a request now."""
        hosted = self._hosted.get(index)
        if hosted is None or not hosted.is_loaded:
            raise ApiError(self._why_not(hosted))

    def _why_not(self, hosted: HostedShard[AnyShard] | None) -> ErrorCode:
        if hosted is not None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.partition_count() == 0:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NOT_COORDINATOR

    def carry_out(self, index: int, result: CoordinatorResult[Any]) -> None:
        """For results that no request asked for."""
        hosted = self._hosted.get(index)
        if hosted is not None and hosted.is_loaded:
            hosted.carry_out(result)

    def end_marker_appended(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        next_offset: int,
    ) -> None:
        """A transaction's marker is in the partition; while it loads, loading will find it."""
        hosted = self._hosted.get(index)
        if hosted is not None and hosted.is_loaded:
            hosted.end_marker_appended(producer_id, producer_epoch, committed, next_offset)

    def shards(self) -> list[tuple[int, AnyShard]]:
        """Those that are loading included."""
        return [(hosted.index, hosted.shard) for hosted in self._hosted.values()]

    def loaded_shards(self) -> list[tuple[int, AnyShard]]:
        return [(each.index, each.shard) for each in self._hosted.values() if each.is_loaded]

    def is_hosting(self, index: int, leader_epoch: int) -> bool:
        """Whether the shard is here at that epoch, loaded or loading."""
        hosted = self._hosted.get(index)
        return hosted is not None and hosted.leader_epoch == leader_epoch

    def is_loading(self) -> bool:
        return any(not hosted.is_loaded for hosted in self._hosted.values())

    def lost(self, hosted: HostedShard[AnyShard]) -> None:
        if self._hosted.get(hosted.index) is hosted:
            del self._hosted[hosted.index]
            self._on_lost(hosted.index)
        hosted.close()

    def close(self) -> None:
        self._look_again_later(False)
        for hosted in list(self._hosted.values()):
            self.lost(hosted)

    def _take_over(self, partition: Partition) -> None:
        hosted = HostedShard(self, self._make_shard(partition.partition), partition)
        self._hosted[hosted.index] = hosted
        self._to_load.append(hosted)

    def _load(self, load_s: float = _LOAD_TURN_S) -> None:
        """One turn's share of loading. Shards are loaded one after the other, so that the first can
        be asked soon."""
        give_way_at = self.node.world.monotonic() + load_s
        while self._to_load and not self._loads_next_turn:
            hosted = self._to_load.popleft()
            if not hosted.is_closed and not self._load_some(hosted, give_way_at):
                self._to_load.appendleft(hosted)
            if self._to_load and self.node.world.monotonic() >= give_way_at:
                self._load_next_turn()

    def _load_next_turn(self) -> None:
        def load() -> None:
            self._loads_next_turn = False
            self._load()

        self._loads_next_turn = True
        self.node.reactor.call_soon(load)

    def _load_some(self, hosted: HostedShard[AnyShard], give_way_at: float) -> bool:
        """Whether the shard needs no more loading, because it is loaded or cannot be."""
        try:
            if not hosted.load_until(give_way_at):
                return False
        except (ApiError, ProtocolError) as error:
            self.node.log.error(
                "coordinator_load_failed", topic=self.topic, partition=hosted.index, error=error
            )
            self.lost(hosted)
            return True
        except Exception:
            self.node.log.exception(
                "coordinator_load_failed", topic=self.topic, partition=hosted.index
            )
            self.lost(hosted)
            return True
        hosted.loaded()
        self._on_loaded(hosted.index, hosted.shard)
        return True

    def _load_pairs(
        self, shard: AnyShard, pairs: list[Pair], producer_id: int, producer_epoch: int
    ) -> None:
        for key, value in pairs:
            record = self.codec.decode(key, value)
            if record is not None:
                shard.replay(record, producer_id, producer_epoch)


def _or_none(response: Response) -> Response | None:
    return response


def _answer(replies: Iterable[Reply]) -> None:
    settle_all(partial(_settle, reply) for reply in replies)


def _settle(reply: Reply) -> None:
    if isinstance(reply.response, ApiError):
        reply.ticket.fail(reply.response)
    else:
        reply.ticket.resolve(reply.response)


def _refuse(replies: Iterable[Reply], error: ApiError) -> None:
    """The records of a decision are not in the log, so nothing of it is told."""
    refused = ApiError(append_refusal(error), str(error))
    settle_all(partial(reply.ticket.fail, refused) for reply in replies)
