"""Opening one partition directory.

In order: finish or undo what a crash left half done (.deleted, .cleaned, .swap), find the
segments, validate what lies behind the recovery point and cut the torn tail, rebuild indexes that
are missing, then bring leader epochs and producer state up to the log end. After a clean close
nothing is behind the recovery point, and opening reads a handful of bytes.

Everything below the recovery point was synced by a flush. There the batches are trusted and only
their indexes are looked at; damage that shows later, at a lookup, is repaired then (`segment.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.storage.commit_sink import CommitSink
from tidelog.storage.compaction.segment_swap import recover_swaps
from tidelog.storage.directories.partition_metadata import read_topic_id, write_topic_id
from tidelog.storage.files import TEMPORARY_SUFFIX, CorruptFileError
from tidelog.storage.leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochCache
from tidelog.storage.local_log import LocalLog
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_segments import LogSegments
from tidelog.storage.offset_gaps import FILE_NAME as OFFSET_GAPS
from tidelog.storage.offset_gaps import OffsetGaps
from tidelog.storage.producer_state.producer_state import ProducerStates
from tidelog.storage.producer_state.replay import replay
from tidelog.storage.producer_state.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from tidelog.storage.producer_state.snapshot import SnapshotFiles
from tidelog.storage.segment.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file,
    segment_path,
)
from tidelog.storage.segment.offset_index import ENTRY_SIZE_BYTES as OFFSET_ENTRY_BYTES
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import ENTRY_SIZE_BYTES as TIME_ENTRY_BYTES
from tidelog.world import World
from tidelog.world.files import Files

_OFFSET_MAX = (1 << 63) - 1


@dataclass(slots=True)
class LoadReport:
    """What opening a log had to repair, for the log line that tells about it."""

    recovered_bytes: int = 0
    cut_bytes: int = 0
    repairs: list[str] = field(default_factory=list)


def open_log(
    directory: Path,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    world: World,
    topic_id: bytes | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    contiguous: bool = False,
    sink: CommitSink | None = None,
    report: LoadReport | None = None,
) -> Log:
    """Opens the log in `directory`, which is made when it is not there.

    `clean` says that the log was closed in order: then only its tail is looked at. Otherwise
    everything from `recovery_point` on is validated; `contiguous` says that no offsets are missing
    there, so that a segment which does not end where the next one begins is the last. `topic_id`
    is written to partition.metadata when that has none. Raises OSError, and CorruptFileError when
    the directory belongs to another topic.
    """
    files = world.files
    loader = _Loader(files, directory, config, world.wall_ms(), report or LoadReport())
    files.mkdir(directory)
    known_topic_id = _match_topic_id(files, directory, topic_id, durable=not clean)
    loader.finish_interrupted_work()
    segments = loader.load_segments(log_start_offset)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    leader_epochs = loader.load_leader_epochs()
    if clean:
        log_end_offset = recovery_point = loader.load_clean(segments)
    else:
        # Without a recovery point the gaps that compaction left cannot be told from damage.
        contiguous = (
            contiguous
            and not loader.has_offset_gaps
            and (recovery_point > 0 or not config.is_compacted)
        )
        log_end_offset = loader.recover(segments, recovery_point, leader_epochs, contiguous)
        recovery_point = min(recovery_point, log_end_offset)
    if log_end_offset < log_start_offset:
        # The records below the log start are gone with those that were to follow them.
        segments, log_end_offset = loader.start_over(segments, log_start_offset)
    loader.restore_leader_epochs(leader_epochs, segments)
    leader_epochs.truncate_to(log_end_offset)
    leader_epochs.advance_start(log_start_offset)
    producers, snapshots = loader.load_producers(
        segments, log_start_offset, log_end_offset, recovery_point
    )
    local = LocalLog(
        files,
        directory,
        config,
        segments=LogSegments(files, directory, config, segments, world.random),
        leader_epochs=leader_epochs,
        producers=producers,
        snapshots=snapshots,
        gaps=OffsetGaps(files, directory, log_end_offset, noted=loader.has_offset_gaps),
        recovery_point=recovery_point,
    )
    log = Log(
        local,
        topic_partition,
        known_topic_id,
        config,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
    )
    log.sink = sink
    log.release()
    return log


def _match_topic_id(
    files: Files, directory: Path, topic_id: bytes | None, *, durable: bool
) -> bytes:
    """The topic's id, written down if it is not yet. `durable` is for a log that is recovered:
    nobody syncs its identity later, as is done for a new one."""
    stored = read_topic_id(files, directory)
    if stored is None:
        if topic_id is not None:
            write_topic_id(files, directory, topic_id, durable=durable)
        return topic_id or ZERO_UUID
    if topic_id is not None and topic_id != stored:
        raise CorruptFileError(
            directory / "partition.metadata",
            "the directory belongs to an older topic of the same name; move it away",
        )
    return stored


class _Loader:
    def __init__(
        self, files: Files, directory: Path, config: LogConfig, now_ms: int, report: LoadReport
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._report = report
        self._names: set[str] = set()
        self._epochs_are_lost = False

    # Half-done work

    def finish_interrupted_work(self) -> None:
        """Removes what was being deleted or written, and completes swaps of compaction."""
        for name in recover_swaps(self._files, self._directory, self._end_offset_of):
            self._report.repairs.append(f"completed the swap of {name}")
        for name in self._files.listdir(self._directory):
            if name.endswith(TEMPORARY_SUFFIX):
                self._unlink(name)
            else:
                self._names.add(name)

    def _end_offset_of(self, path: Path, base_offset: int) -> int:
        """The offset after the last record of a segment file under a temporary name."""
        segment = self._segment(base_offset, self._files.stat(path).st_size)
        segment.path = path
        end_offset = base_offset + 1
        for _, header in segment.headers():
            end_offset = header.next_offset
        segment.release()
        return end_offset

    @property
    def has_offset_gaps(self) -> bool:
        return OFFSET_GAPS in self._names

    # Segments

    def load_segments(self, start_offset: int) -> list[Segment]:
        """All segments by base offset; a new one when there is none."""
        segments = []
        bases = sorted(
            offset_of_file(name)
            for name in self._names
            if name.endswith(LOG_SUFFIX) and offset_of_file(name) >= 0
        )
        for base_offset in bases:
            status = self._files.stat(segment_path(self._directory, base_offset, LOG_SUFFIX))
            segments.append(self._segment(base_offset, status.st_size, int(status.st_mtime * 1000)))
        for name in self._names:
            if name.endswith(SEGMENT_SUFFIXES[1:]) and offset_of_file(name) not in bases:
                self._unlink(name)
        self._drop_unmade(segments)
        if not segments:
            segment = self._segment(start_offset, 0)
            segment.create(self._config.segment_bytes if self._config.preallocate else 0)
            segments.append(segment)
        return segments

    def _drop_unmade(self, segments: list[Segment]) -> None:
        """Removes empty segments that begin within the one before them: the disk refused to make
        them, and the log went on without."""
        slot = 1
        while slot < len(segments):
            before, segment = segments[slot - 1], segments[slot]
            if not segment.size_bytes and self._reaches(before, segment.base_offset):
                self._report.repairs.append(f"removed {segment.path.name}, which is not in use")
                self._remove([segment])
                del segments[slot]
            else:
                slot += 1

    def _reaches(self, segment: Segment, offset: int) -> bool:
        """Whether a segment has a record at or after `offset`."""
        headers = segment.headers() if self._lacks_index(segment) else segment.headers_from(offset)
        return any(header.next_offset > offset for _, header in headers)

    def load_clean(self, segments: list[Segment]) -> int:
        """The log end after a clean close; missing and misshapen indexes are rebuilt."""
        for segment in segments[:-1]:
            self._repair_indexes(segment)
        active = segments[-1]
        file_bytes = active.size_bytes
        end_offset = self._load_tail(active) if file_bytes else active.base_offset
        if active.size_bytes < file_bytes:
            active.trim()
            self._report.cut_bytes += file_bytes - active.size_bytes
            self._report.repairs.append(f"cut {active.path.name} to {active.size_bytes} bytes")
        return end_offset

    def _load_tail(self, segment: Segment) -> int:
        if self._lacks_index(segment):
            self._report.repairs.append(f"rebuilt the indexes of {segment.path.name}")
            return segment.rebuild_indexes()
        return segment.load_tail()

    def recover(
        self,
        segments: list[Segment],
        recovery_point: int,
        leader_epochs: LeaderEpochCache,
        contiguous: bool,
    ) -> int:
        """Validates from the recovery point on; returns the log end.

        The first damaged batch ends the log: what follows it, later segments too, goes.
        """
        end_offset = segments[0].base_offset
        slot = 0
        while slot < len(segments):
            segment = segments[slot]
            slot += 1
            is_last = slot == len(segments)
            if not is_last and segments[slot].base_offset <= recovery_point:
                self._repair_indexes(segment)
                continue
            file_bytes = segment.size_bytes
            start_offset = max(segment.base_offset, recovery_point)
            if self._lacks_index(segment):
                start_offset = segment.base_offset
            end_offset = segment.base_offset
            # Below the recovery point compaction leaves gaps, whether there are indexes or not.
            contiguous_from = recovery_point if contiguous else None
            for header, batch in segment.recover(start_offset, contiguous_from):
                end_offset = header.next_offset
                self._report.recovered_bytes += len(batch)
                if header.partition_leader_epoch > leader_epochs.latest_epoch:
                    leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            torn = contiguous and not is_last and end_offset != segments[slot].base_offset
            if torn or segment.size_bytes < file_bytes:
                self._report.cut_bytes += file_bytes - segment.size_bytes
                self._report.repairs.append(
                    f"cut {segment.path.name} to {segment.size_bytes} bytes"
                )
                self._remove(segments[slot:])
                del segments[slot:]
            elif not is_last:
                segment.seal()
            segment.release()
        return end_offset

    def start_over(self, segments: list[Segment], offset: int) -> tuple[list[Segment], int]:
        """An empty log at `offset` in place of segments that do not reach it."""
        self._remove(segments)
        self._report.repairs.append(f"nothing is left from the log start {offset} on")
        self._names = set(self._files.listdir(self._directory))
        return self.load_segments(offset), offset

    def _repair_indexes(self, segment: Segment) -> None:
        if self._lacks_index(segment):
            segment.rebuild_indexes()
            segment.release()
            self._report.repairs.append(f"rebuilt the indexes of {segment.path.name}")

    def _lacks_index(self, segment: Segment) -> bool:
        if not segment.size_bytes:
            return False
        for path, entry_bytes in (
            (segment.offset_index.path, OFFSET_ENTRY_BYTES),
            (segment.time_index.path, TIME_ENTRY_BYTES),
        ):
            if path.name not in self._names:
                return True
            if self._files.stat(path).st_size % entry_bytes:
                return True
        return False

    def _segment(self, base_offset: int, size_bytes: int, created_ms: int | None = None) -> Segment:
        name = segment_path(self._directory, base_offset, TRANSACTION_INDEX_SUFFIX).name
        return Segment(
            self._files,
            self._directory,
            base_offset,
            self._config,
            size_bytes=size_bytes,
            created_ms=self._now_ms if created_ms is None else created_ms,
            has_transaction_index=name in self._names,
        )

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            for path in segment.mark_deleted():
                self._files.unlink(path)

    def _unlink(self, name: str) -> None:
        try:
            self._files.unlink(self._directory / name)
        except FileNotFoundError:
            pass

    # What the batches say

    def load_leader_epochs(self) -> LeaderEpochCache:
        try:
            if EPOCHS_FILE_NAME in self._names:
                return LeaderEpochCache.load(self._files, self._directory)
        except CorruptFileError as error:
            self._report.repairs.append(str(error))
        self._epochs_are_lost = True
        return LeaderEpochCache(self._files, self._directory, [])

    def restore_leader_epochs(self, cache: LeaderEpochCache, segments: list[Segment]) -> None:
        """Reads lost epochs out of all batch headers."""
        if not self._epochs_are_lost or not any(segment.size_bytes for segment in segments):
            return
        latest_epoch = -1
        entries = []
        for segment in segments:
            for _, header in segment.headers():
                if header.partition_leader_epoch > latest_epoch:
                    latest_epoch = header.partition_leader_epoch
                    entries.append(EpochEntry(latest_epoch, header.base_offset))
        cache.replace(entries)
        self._report.repairs.append("rebuilt the leader epochs")

    def load_producers(
        self,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> tuple[ProducerStates, SnapshotFiles]:
        """Producer state as of the log end, and the snapshots that are kept.

        Aborted transactions behind the recovery point are indexed anew, for which the producers
        must be known as of that point: later snapshots go.
        """
        bases = {segment.base_offset for segment in segments}
        found = sorted(offset_of_file(n) for n in self._names if n.endswith(SNAPSHOT_SUFFIX))
        snapshots = SnapshotFiles(
            self._files, self._directory, [offset for offset in found if offset >= 0]
        )
        last_base = segments[-1].base_offset
        snapshots.remove([o for o in snapshots.offsets if o < last_base and o not in bases])
        self._check_transaction_indexes(segments, snapshots, log_start_offset)
        for segment in segments:
            if segment.transaction_index.exists:
                segment.transaction_index.truncate_to(recovery_point)
        producers = ProducerStates()
        snapshots.load(producers, log_start_offset, recovery_point)
        replay(producers, segments, log_end_offset, index_aborted_from=recovery_point)
        producers.remove_expired(self._now_ms, self._config.producer_id_expiration_ms)
        return producers, snapshots

    def _check_transaction_indexes(
        self, segments: list[Segment], snapshots: SnapshotFiles, log_start_offset: int
    ) -> None:
        """Makes damaged transaction indexes anew, from the producers at their segment's start."""
        for slot, segment in enumerate(segments):
            index = segment.transaction_index
            if not index.exists:
                continue
            try:
                index.check()
                continue
            except CorruptFileError as error:
                self._report.repairs.append(str(error))
            index.reset()
            producers = ProducerStates()
            earlier = [offset for offset in snapshots.offsets if offset <= segment.base_offset]
            SnapshotFiles(self._files, self._directory, earlier).load(
                producers, log_start_offset, segment.base_offset
            )
            end_offset = segments[slot + 1].base_offset if slot + 1 < len(segments) else _OFFSET_MAX
            replay(producers, segments[: slot + 1], end_offset, segment.base_offset)
