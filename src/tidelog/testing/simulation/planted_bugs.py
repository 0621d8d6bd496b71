"""Deliberate mistakes in the node, to show that the simulator finds such mistakes.

Each is a context manager that makes the real code wrong in one way. A test runs seeds with each of
them until one fails; without the bug the same seeds are clean. A bug that is not found within a
few seeds says that the simulator, or what it checks, is too weak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.replicated_log import ReplicatedLog
from tidelog.cluster.replication.partition import Partition, PartitionRead
from tidelog.cluster.replication.waiting import Waiting
from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError
from tidelog.protocol.schema import Message
from tidelog.server.controller.controller import Controller
from tidelog.server.controller.request_context import RequestContext
from tidelog.server.delayed import DelayedFetch, DelayedProduce
from tidelog.server.network.frame_reader import FrameReader, Frames
from tidelog.server.network.pipeline import Pipeline
from tidelog.server.request import Request
from tidelog.storage import log_loading, recovery
from tidelog.storage.flush import Flush
from tidelog.storage.journal.format import Frame
from tidelog.storage.journal.group import JournaledLog
from tidelog.storage.journal.journal import Journal
from tidelog.storage.journal.writer import JournalWriter
from tidelog.storage.log import Log
from tidelog.storage.producer_state.producer_state import (
    BatchMetadata,
    ProducerState,
    ProducerStates,
)
from tidelog.storage.producer_state.snapshot import SnapshotFiles
from tidelog.storage.segment import batch_scan
from tidelog.storage.segment.log_slice import LogSlice
from tidelog.testing.simulation.planting import Plantation, replaced

PLANTED_BUGS = Plantation()
planted = PLANTED_BUGS.planted
_CRC_AT = 17


class _WithoutSyncs:
    """The files of a node, of which some syncs do nothing."""

    def __init__(self, files: Any, *names: str) -> None:
        self._files = files
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return (lambda _: None) if name in self._names else getattr(self._files, name)


@contextmanager
def _without_syncs(owner: Any, *names: str) -> Iterator[None]:
    files = owner._files
    owner._files = _WithoutSyncs(files, *names)
    try:
        yield
    finally:
        owner._files = files


# Durability


@PLANTED_BUGS.plant
def acknowledge_before_sync() -> Iterator[None]:
    """Records count as durable when they are handed to the journal."""
    submit = Journal.submit

    def early(
        self: Journal, log: Log, batches: memoryview, base: int, next_offset: int, epoch: int
    ) -> None:
        submit(self, log, batches, base, next_offset, epoch)
        log.mark_durable(next_offset)

    with replaced(Journal, "submit", early):
        yield


@PLANTED_BUGS.plant
def skip_journal_sync() -> Iterator[None]:
    """The journal is written and not synced."""
    sync_journal = JournalWriter._sync_journal

    def unsynced(self: JournalWriter) -> bool:
        with _without_syncs(self, "fdatasync"):
            return sync_journal(self)

    with replaced(JournalWriter, "_sync_journal", unsynced):
        yield


@PLANTED_BUGS.plant
def ignore_failed_sync() -> Iterator[None]:
    """A sync of the journal that fails counts as done."""
    sync_journal = JournalWriter._sync_journal

    def brave(self: JournalWriter) -> bool:
        try:
            return sync_journal(self)
        except OSError:
            return True

    with replaced(JournalWriter, "_sync_journal", brave):
        yield


@PLANTED_BUGS.plant
def skip_direct_sync() -> Iterator[None]:
    """Segments that are to be synced directly are not."""

    def unsynced(self: JournalWriter, state: JournaledLog) -> None:
        state.unsynced = {}

    with replaced(JournalWriter, "_sync_segments", unsynced):
        yield


@PLANTED_BUGS.plant
def forget_segment_directory_sync() -> Iterator[None]:
    """The directory of a log is not synced after a segment was created in it."""
    sync_segments, run = JournalWriter._sync_segments, Flush.run

    def sync_files_only(self: JournalWriter, state: JournaledLog) -> None:
        with _without_syncs(self, "sync_directory"):
            sync_segments(self, state)

    def flush_files_only(self: Flush) -> None:
        with _without_syncs(self, "sync_directory"):
            run(self)

    with (
        replaced(JournalWriter, "_sync_segments", sync_files_only),
        replaced(Flush, "run", flush_files_only),
    ):
        yield


@PLANTED_BUGS.plant
def checkpoint_without_flush() -> Iterator[None]:
    """A checkpoint lets the journal go without a sync of the segments."""
    with replaced(Journal, "run_flush", lambda self, log, flush: None):
        yield


@PLANTED_BUGS.plant
def drop_last_frame_of_group() -> Iterator[None]:
    """The last batches of a group do not get into the journal."""
    sync_journal = JournalWriter._sync_journal

    def shortened(self: JournalWriter) -> bool:
        if len(self._buffers) > 4:
            dropped = self._buffers[-2:]
            size_bytes = sum(map(len, dropped))
            del self._buffers[-2:]
            self._position -= size_bytes
            self._end_lsn -= size_bytes
        return sync_journal(self)

    with replaced(JournalWriter, "_sync_journal", shortened):
        yield


# Metadata


@PLANTED_BUGS.plant
def answer_before_metadata_is_committed() -> Iterator[None]:
    """The controller answers when it has decided."""
    ask = Controller.ask

    def hasty(self: Controller, body: Message, context: RequestContext | None) -> Promise[Any]:
        answer = ask(self, body, context)
        appended = [each for group in self._metadata._appended for each in group]
        in_flight = [*appended, *self._metadata._waiting]
        if in_flight and not answer.is_done:
            proposal = in_flight[-1]
            proposal.committed.resolve(None)
            proposal.committed = Promise()
        return answer

    with replaced(Controller, "ask", hasty):
        yield


@PLANTED_BUGS.plant
def forget_proposals_that_fail() -> Iterator[None]:
    """Nobody is told that a change of the metadata has failed."""

    def silent(self: MetadataLog, error: ApiError) -> None:
        self._waiting.clear()
        self._waiting_records = 0
        self.latest = self.image

    with replaced(MetadataLog, "_fail_waiting", silent):
        yield


@PLANTED_BUGS.plant
def skip_metadata_sync() -> Iterator[None]:
    """The metadata log is written and not synced."""
    prepare_sync = ReplicatedLog.prepare_sync

    def unsynced(self: ReplicatedLog) -> Any:
        self._files = _WithoutSyncs(self.log.files, "fdatasync")
        return prepare_sync(self)

    with replaced(ReplicatedLog, "prepare_sync", unsynced):
        yield


# Recovery


@PLANTED_BUGS.plant
def skip_crc_in_recovery() -> Iterator[None]:
    """Recovery takes batches at their word."""

    def stored_crc(buffer: memoryview, at: int, size_bytes: int) -> int:
        return int.from_bytes(buffer[at + _CRC_AT : at + _CRC_AT + 4], "big")

    with replaced(batch_scan, "compute_crc", stored_crc):
        yield


@PLANTED_BUGS.plant
def skip_journal_replay() -> Iterator[None]:
    """Recovery does not replay the journal."""
    with replaced(recovery, "replay_frame", lambda log, frame: None):
        yield


@PLANTED_BUGS.plant
def skip_last_journal_frame() -> Iterator[None]:
    """Recovery leaves the last frame of the journal out."""
    group_by_partition = recovery._group_by_partition

    def all_but_last(frames: list[Frame]) -> object:
        return group_by_partition(frames[:-1])

    with replaced(recovery, "_group_by_partition", all_but_last):
        yield


@PLANTED_BUGS.plant
def truncate_too_much_in_recovery() -> Iterator[None]:
    """Recovery cuts one batch too many off a log."""
    sync = recovery._DirectoryRecovery._sync

    def cut_and_sync(self: recovery._DirectoryRecovery, log: Log, recovery_point: int) -> None:
        if log.log_end_offset > log.log_start_offset:
            log.truncate_to(log.log_end_offset - 1)
        sync(self, log, recovery_point)

    with replaced(recovery._DirectoryRecovery, "_sync", cut_and_sync):
        yield


@PLANTED_BUGS.plant
def trust_every_shutdown() -> Iterator[None]:
    """Every shutdown counts as clean, so that nothing is recovered."""
    with replaced(recovery, "take_clean_shutdown", lambda files, directory: True):
        yield


# Producers


@PLANTED_BUGS.plant
def forget_producers_at_restart() -> Iterator[None]:
    """What a log knows of its producers is gone after a start."""

    def nothing(*_args: object, **_kwargs: object) -> None:
        pass

    with (
        replaced(SnapshotFiles, "load", nothing),
        replaced(log_loading, "replay", nothing),
    ):
        yield


@PLANTED_BUGS.plant
def forget_producers_of_snapshot() -> Iterator[None]:
    """A snapshot of producers lacks the last batch of each."""
    take = SnapshotFiles.take

    def take_without_last(self: SnapshotFiles, producers: ProducerStates) -> object:
        shortened = ProducerStates()
        shortened.map_end_offset = producers.map_end_offset
        for state in producers.active():
            copied = state.copy()
            del copied.batches[-1:]
            shortened.producers[state.producer_id] = copied
        return take(self, shortened)

    with replaced(SnapshotFiles, "take", take_without_last):
        yield


@PLANTED_BUGS.plant
def accept_duplicates() -> Iterator[None]:
    """A batch that was sent again is appended again."""
    check_batch = ProducerState.check_batch

    def lenient(self: ProducerState, *arguments: Any) -> BatchMetadata | None:
        check_batch(self, *arguments)
        return None

    with replaced(ProducerState, "check_batch", lenient):
        yield


# Reading


@PLANTED_BUGS.plant
def serve_above_high_watermark() -> Iterator[None]:
    """Consumers are given records that are not durable yet."""
    read = Partition.read

    def read_all(self: Partition, *arguments: Any, **options: Any) -> PartitionRead:
        high_watermark = self.high_watermark
        self.state.high_watermark = self.log.log_end_offset
        try:
            return read(self, *arguments, **options)
        finally:
            self.state.high_watermark = high_watermark

    with replaced(Partition, "read", read_all):
        yield


@PLANTED_BUGS.plant
def answer_with_batch_before() -> Iterator[None]:
    """A second read at the same offset gives the batch before it.

    Not of the metadata log: a node that reads that in circles never ends its turn.
    """
    read = Log.read
    last: dict[Log, int] = {}

    def read_before(self: Log, offset: int, *arguments: Any, **options: Any) -> LogSlice:
        if self.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return read(self, offset, *arguments, **options)
        is_repeated = last.get(self) == offset
        last[self] = offset
        if is_repeated and offset > self.log_start_offset:
            try:
                return read(self, offset - 1, *arguments, **options)
            except ApiError:
                pass
        return read(self, offset, *arguments, **options)

    with replaced(Log, "read", read_before):
        yield


@PLANTED_BUGS.plant
def read_beyond_a_gap() -> Iterator[None]:
    """Now and then a read leaves a batch out."""
    read = Log.read
    reads = count(1)

    def read_later(self: Log, offset: int, size: int, max_offset: int, **options: Any) -> LogSlice:
        if next(reads) % 50 == 0 and offset + 8 < max_offset:
            return read(self, offset + 4, size, max_offset, **options)
        return read(self, offset, size, max_offset, **options)

    with replaced(Log, "read", read_later):
        yield


# Answers


@PLANTED_BUGS.plant
def answer_out_of_order() -> Iterator[None]:
    """Of several answers that are ready, the last leaves first."""
    put_out = Pipeline.put_out

    def reversed_answers(self: Pipeline) -> bool:
        if len(self.pending) > 1 and all(deferred.ready for deferred in self.pending):
            self.pending.reverse()
        return put_out(self)

    with replaced(Pipeline, "put_out", reversed_answers):
        yield


@PLANTED_BUGS.plant
def answer_twice() -> Iterator[None]:
    """Now and then an answer is sent a second time."""
    respond = Pipeline.respond
    answers = count(1)

    def respond_twice(self: Pipeline, request: Request, response: bytes) -> None:
        respond(self, request, response)
        if next(answers) % 20 == 0:
            respond(self, request, response)

    with replaced(Pipeline, "respond", respond_twice):
        yield


@PLANTED_BUGS.plant
def lose_a_waiter() -> Iterator[None]:
    """A producer is not answered when a consumer waits for the same partition."""
    wait = DelayedProduce.wait

    def wait_unless_polled(
        self: DelayedProduce,
        waiting: Waiting,
        acks: int,
        appended: list[tuple[int, Partition, int]],
        deadline: float,
    ) -> None:
        waits = [each for _, partition, _ in appended for each in partition.waits or ()]
        if not any(isinstance(waiter, DelayedFetch) for _, _, waiter, _ in waits):
            wait(self, waiting, acks, appended, deadline)

    with replaced(DelayedProduce, "wait", wait_unless_polled):
        yield


@PLANTED_BUGS.plant
def strand_a_promise() -> Iterator[None]:
    """Now and then nobody hears that a promise is settled."""
    then = Promise.then
    chains = count(1)

    def then_or_never(self: Promise[Any], make: Callable[[Any], Any]) -> Promise[Any]:
        following = then(self, make)
        return Promise() if next(chains) % 40 == 0 else following

    with replaced(Promise, "then", then_or_never):
        yield


@PLANTED_BUGS.plant
def forget_long_polls() -> Iterator[None]:
    """A fetch that waits is not woken by new records."""

    with replaced(DelayedFetch, "reached", lambda self, place: None):
        yield


@PLANTED_BUGS.plant
def forget_backlog() -> Iterator[None]:
    """Requests that have to wait for an earlier one are dropped."""
    held = FrameReader.held

    def drop_held(self: FrameReader) -> Frames:
        for _ in held(self):
            pass
        return held(self)

    with replaced(FrameReader, "held", drop_held):
        yield


_RARE = {
    "skip-crc-in-recovery",
    "serve-above-high-watermark",
    "ignore-failed-sync",
    "forget-proposals-that-fail",
}
"""These need a bit flipped in just the right sector, a power cut within a millisecond, or a disk
that is full or fails just when metadata is written."""
FOUND_WITHIN = {name: 200 if name in _RARE else 60 for name in PLANTED_BUGS}
"""Within how many seeds, from 0 on, each is found."""
