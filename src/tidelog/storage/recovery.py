"""Brings the logs of one directory back after a start.

After a clean shutdown the files are taken at their word. Otherwise, in this order: read the journal
up to the first torn frame; open each log, which checks its segments from the recovery point on and
cuts what is torn; replay the frames that the log lacks; sync. Logs are opened in parallel, because
the work is waiting for the disk. Nothing of the old journal is dropped before all of that is done,
so recovery may itself be cut off at any point and starts over.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID, format_uuid
from tidelog.storage.directories.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN
from tidelog.storage.directories.clean_shutdown import take_clean_shutdown
from tidelog.storage.directories.log_directory import LOCK_FILE_NAME
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.storage.directories.meta_properties import JOINED_CLUSTER
from tidelog.storage.directories.offset_checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from tidelog.storage.directories.partition_directory import (
    METADATA_LOG,
    deleted_directory_name,
    is_deleted_directory,
    is_future_directory,
    parse_moved_mark,
    parse_partition_directory,
    partition_directory_name,
    remove_partition_directory,
    was_directory_of,
)
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.storage.directories.partition_metadata import read_topic_id, sync_topic_id
from tidelog.storage.files import NO_SPACE, CorruptFileError, read_file
from tidelog.storage.journal.checkpoint import FILE_NAME as JOURNAL_CHECKPOINT
from tidelog.storage.journal.format import Frame, FrameKind
from tidelog.storage.journal.reader import JournalContents, read_journal, read_journal_end
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.storage.segment.file_names import LOG_SUFFIX, offset_of_file
from tidelog.world import World

logger = logging.getLogger(__name__)

_METADATA_BYTES = len("version: 0\ntopic_id: ") + 22
_OWN_NAMES = frozenset(
    {
        "journal",
        JOURNAL_CHECKPOINT,
        CLEAN_SHUTDOWN,
        LOCK_FILE_NAME,
        META_PROPERTIES,
        METADATA_LOG,
        JOINED_CLUSTER,
        RECOVERY_POINTS,
        LOG_START_OFFSETS,
        HIGH_WATERMARKS,
        "cleaner-offset-checkpoint",
        "bootstrap.checkpoint",
        "lost+found",
    }
)

ConfigFor = Callable[[TopicPartition], LogConfig]


class RecoveryError(TidelogError):
    """Logs could not be recovered without losing acknowledged records; says which and why."""


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far the recovery of a directory is."""

    directory: Path
    recovered: int
    total: int


@dataclass(frozen=True, slots=True)
class RecoveredDirectory:
    """What a log directory holds, ready to serve."""

    logs: dict[TopicPartition, Log]
    strays: list[Path]
    deleted: list[Path]  # directories that wait to be removed
    moved: dict[TopicPartition, str]  # logs that came from another directory, which is named by id
    clean: bool
    next_sequence: int
    next_lsn: int


class Replay:
    """What the journal holds for one partition of one topic id, in order."""

    __slots__ = ("deleted", "frames", "lowest_offset", "restarted")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.deleted = False
        self.restarted = False
        self.lowest_offset: int | None = None  # to which the log was cut since the checkpoint

    def add(self, frame: Frame) -> None:
        if frame.kind is FrameKind.SEGMENTS_SYNCED:
            self.frames.clear()
        elif frame.kind is FrameKind.DELETION:
            self.frames.clear()
            self.deleted = True
        elif frame.kind is FrameKind.RESTART:
            self.restarted = True
            self.frames = [frame]
        else:
            if frame.kind is FrameKind.TRUNCATION:
                self._truncate(frame.offset)
            self.frames.append(frame)

    def _truncate(self, offset: int) -> None:
        # The segments may be cut already, and then earlier batches above would not fit.
        self.frames = [
            frame
            for frame in self.frames
            if frame.offset < offset or frame.kind is not FrameKind.BATCHES
        ]
        self.lowest_offset = min(
            offset, offset if self.lowest_offset is None else self.lowest_offset
        )

    def trusted_offset(self, recovery_point: int) -> int:
        """Below this the log is as it was when the recovery point was written."""
        if self.restarted:
            return 0
        if self.lowest_offset is None:
            return recovery_point
        # One less, so that the segment which the truncation shortened is among those checked:
        # the disk may still have all of it.
        return max(0, min(recovery_point, self.lowest_offset - 1))


def recover_directory(
    world: World,
    directory: Path,
    *,
    config_for: ConfigFor,
    threads: int,
    progress: Callable[[RecoveryProgress], None] | None = None,
) -> RecoveredDirectory:
    """Opens all logs of a directory. Raises OSError (the disk), RecoveryError, CorruptFileError."""
    files = world.files
    clean = take_clean_shutdown(files, directory)
    if clean:
        journal = JournalContents([], 0, *read_journal_end(files, directory))
    else:
        journal = read_journal(files, directory)
    recovery = _DirectoryRecovery(world, directory, config_for, clean, journal)
    logs = recovery.run(threads, progress)
    return RecoveredDirectory(
        logs,
        recovery.strays,
        recovery.deleted + recovery.copies,
        recovery.moved,
        clean,
        journal.next_sequence,
        journal.next_lsn,
    )


class _DirectoryRecovery:
    def __init__(
        self,
        world: World,
        directory: Path,
        config_for: ConfigFor,
        clean: bool,
        journal: JournalContents,
    ) -> None:
        self._world = world
        self._files = world.files
        self._directory = directory
        self._config_for = config_for
        self._clean = clean
        self.strays: list[Path] = []
        self.deleted: list[Path] = []
        self._deleted_without_id: list[Path] = []
        self.copies: list[Path] = []  # that a move was making when the node ended
        self.moved: dict[TopicPartition, str] = {}
        recovery_points = self._read_offsets(RECOVERY_POINTS)
        self._has_recovery_points = recovery_points is not None
        self._recovery_points = recovery_points or {}
        self._log_start_offsets = self._read_offsets(LOG_START_OFFSETS) or {}
        self._high_watermarks = self._read_offsets(HIGH_WATERMARKS) or {}
        self._replays = _group_by_partition(journal.frames)

    def run(
        self, threads: int, progress: Callable[[RecoveryProgress], None] | None
    ) -> dict[TopicPartition, Log]:
        partitions = self._list_partitions()
        if self._clean:
            # Nothing to wait for: threads would only get into each other's way.
            return {
                topic_partition: self._open_clean(topic_partition) for topic_partition in partitions
            }
        logs: dict[TopicPartition, Log] = {}
        problems: list[str] = []
        recovered = self._world.side_by_side(self._try_to_recover, partitions, threads=threads)
        for done, outcome in enumerate(recovered, 1):
            if isinstance(outcome, Log):
                logs[outcome.topic_partition] = outcome
            else:
                problems.append(outcome)
            if progress is not None:
                progress(RecoveryProgress(self._directory, done, len(partitions)))
        if problems:
            raise RecoveryError("\n".join(sorted(problems)))
        self._files.sync_directory(self._directory)
        return dict(sorted(logs.items()))

    def _read_offsets(self, name: str) -> dict[TopicPartition, int] | None:
        """The offsets of a checkpoint file; None when it is lost or damaged."""
        path = self._directory / name
        try:
            return read_offsets(self._files, path) if self._files.exists(path) else None
        except CorruptFileError as error:
            logger.warning("%s; logs are checked from their start", str(error))
            self._clean = False
            return None

    def _list_partitions(self) -> list[TopicPartition]:
        """The partitions to recover: those with a directory, and those only the journal knows."""
        found = set()
        for name in sorted(self._files.listdir(self._directory)):
            path = self._directory / name
            topic_partition = parse_partition_directory(name)
            if is_deleted_directory(name):
                self._note_deleted(path)
            elif is_future_directory(name) and self._is_directory(path):
                self.copies.append(path)
            elif (moved := parse_moved_mark(name)) is not None:
                self.moved[moved] = read_file(self._files, path).decode("ascii", "replace")
            elif topic_partition is not None and self._is_directory(path):
                if self._finish_deletion(topic_partition, path):
                    continue
                found.add(topic_partition)
            elif name not in _OWN_NAMES and not name.endswith(".tmp"):
                self.strays.append(path)
        for topic_partition, replays in self._replays.items():
            if any(replay.frames for replay in replays.values()):
                found.add(topic_partition)
        return sorted(found)

    def _note_deleted(self, path: Path) -> None:
        """A crash may have kept the new name of a deleted directory and lost the journal's mark."""
        self.deleted.append(path)
        try:
            topic_id = read_topic_id(self._files, path)
        except (CorruptFileError, OSError):
            topic_id = None
        if topic_id is None:
            # Half removed, so the mark was on disk; or new, and its id was not.
            self._deleted_without_id.append(path)
            return
        for topic_partition, replays in self._replays.items():
            if topic_id in replays and was_directory_of(path.name, topic_partition):
                replays[topic_id].frames.clear()
                replays[topic_id].deleted = True

    def _checkpointed(
        self, offsets: dict[TopicPartition, int], topic_partition: TopicPartition
    ) -> int:
        """The offset in a checkpoint file, unless it is that of a deleted topic of this name."""
        replays = self._replays.get(topic_partition, {})
        if any(replay.deleted for replay in replays.values()) or any(
            was_directory_of(path.name, topic_partition) for path in self.deleted
        ):
            return 0
        return offsets.get(topic_partition, 0)

    def _is_contiguous(self, topic_partition: TopicPartition) -> bool:
        """Whether no offsets may be missing above the recovery point.

        Compaction leaves some out, but only below it, so that a recovery point which was lost, or
        which somebody removed to give up records, says nothing.
        """
        return self._has_recovery_points and (
            topic_partition in self._recovery_points
            or topic_partition not in self._high_watermarks  # they are written together
        )

    def _is_directory(self, path: Path) -> bool:
        return stat.S_ISDIR(self._files.stat(path).st_mode)

    def _finish_deletion(self, topic_partition: TopicPartition, path: Path) -> bool:
        """Renames a directory that the journal knows as deleted; says whether it was one."""
        replays = self._replays.get(topic_partition, {})
        if not any(replay.deleted for replay in replays.values()):
            return False
        if not self._is_deleted(replays, path):
            return False
        target = self._directory / deleted_directory_name(topic_partition, self._world.random)
        try:
            self._files.rename(path, target)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A full disk has no room for another name, and the journal that knows is not kept.
            remove_partition_directory(self._files, path)
        else:
            self.deleted.append(target)
        return True

    def _is_deleted(self, replays: dict[bytes, Replay], path: Path) -> bool:
        try:
            topic_id = read_topic_id(self._files, path)
        except CorruptFileError:
            if not self._was_creation_cut_off(path):
                return False
            topic_id = None
        if topic_id is None and ZERO_UUID not in replays:
            # The deleted log or one of the same name that came after it. Either was too young to
            # have its identity on disk, so all that counts of it is in the journal.
            return True
        replay = replays.get(topic_id or ZERO_UUID)
        return replay is not None and replay.deleted

    def _open_clean(self, topic_partition: TopicPartition) -> Log:
        recovery_point = self._checkpointed(self._recovery_points, topic_partition)
        log = self._open(topic_partition, None, recovery_point, clean=True)
        _check_end(log, recovery_point)
        return log

    def _try_to_recover(self, topic_partition: TopicPartition) -> Log | str:
        """The log, or what is the matter with it."""
        try:
            return self._recover(topic_partition)
        except (CorruptFileError, RecoveryError) as error:
            return str(error)

    def _recover(self, topic_partition: TopicPartition) -> Log:
        topic_id, replay = self._find_replay(topic_partition)
        recovery_point = replay.trusted_offset(
            self._checkpointed(self._recovery_points, topic_partition)
        )
        log = self._open(topic_partition, topic_id, recovery_point, clean=False)
        _check_end(log, recovery_point)
        for frame in replay.frames:
            replay_frame(log, frame)
        self._sync(log, recovery_point)
        return log

    def _sync(self, log: Log, recovery_point: int) -> None:
        """A flush, and what it does not see: files that were cut and names that went, and the topic
        id, which a killed process may have left in the page cache."""
        log.flush()
        if log.topic_id != ZERO_UUID:
            sync_topic_id(self._files, log.directory)
        for segment in log.local.segments.from_offset(recovery_point):
            self._files.fdatasync(segment.open().fd)
        self._files.sync_directory(log.directory)
        log.release()

    def _open(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        recovery_point: int,
        *,
        clean: bool,
    ) -> Log:
        return open_log(
            self._directory / partition_directory_name(topic_partition),
            topic_partition,
            self._config_for(topic_partition),
            world=self._world,
            topic_id=topic_id,
            recovery_point=recovery_point,
            log_start_offset=self._checkpointed(self._log_start_offsets, topic_partition),
            clean=clean,
            contiguous=self._is_contiguous(topic_partition),
            sink=None,
        )

    def _find_replay(self, topic_partition: TopicPartition) -> tuple[bytes | None, Replay]:
        """The topic id of a partition and the frames that belong to it."""
        path = self._directory / partition_directory_name(topic_partition)
        replays = {
            topic_id: replay
            for topic_id, replay in self._replays.get(topic_partition, {}).items()
            if replay.frames
        }
        try:
            topic_id = read_topic_id(self._files, path)
        except CorruptFileError:
            if not replays and not self._was_creation_cut_off(path):
                raise
            # The frames say which topic it is; without frames its creation was cut off.
            self._files.unlink(path / PARTITION_METADATA)
            topic_id = None
        if topic_id is not None and any(_is_damaged(topic_id, other) for other in replays):
            self._files.unlink(path / PARTITION_METADATA)
            topic_id = None
        if topic_id is not None and any(
            was_directory_of(deleted.name, topic_partition) for deleted in self._deleted_without_id
        ):
            # What is not of the topic that has the name now is of the one that had it before.
            replays = {topic_id: replays[topic_id]} if topic_id in replays else {}
        if topic_id is None and replays:
            topic_id = max(replays, key=lambda other: replays[other].frames[-1].lsn)
        for other in replays:
            if other != topic_id:
                raise RecoveryError(
                    f"{path / PARTITION_METADATA}: it says the topic id "
                    f"{format_uuid(topic_id or ZERO_UUID)}, but the journal holds records of "
                    f"{format_uuid(other)} for {topic_partition}. Delete this file if it is "
                    "damaged, or move the directory away if it is a copy from elsewhere"
                )
        known = self._replays.get(topic_partition, {})
        return topic_id, known.get(topic_id or ZERO_UUID, Replay())

    def _was_creation_cut_off(self, path: Path) -> bool:
        """Whether a damaged partition.metadata may be that of a log too young to have it on disk:
        it is half written, or it says nothing that matters because the log was never used."""
        content = read_file(self._files, path / PARTITION_METADATA)
        if b"\0" in content or b"topic_id" not in content or len(content) < _METADATA_BYTES:
            return True
        return all(
            offset_of_file(name) == 0 and not self._files.stat(path / name).st_size
            for name in self._files.listdir(path)
            if name.endswith(LOG_SUFFIX)
        )


def _is_damaged(topic_id: bytes, journaled: bytes) -> bool:
    """Whether a topic id was the one in the journal, which unlike its file has checksums, before a
    character of it changed. Ids are random: no two topics have nearly the same."""
    pairs = zip(format_uuid(topic_id), format_uuid(journaled), strict=True)
    return sum(here != there for here, there in pairs) == 1


def replay_frame(log: Log, frame: Frame) -> None:
    """Does to the log what the frame says, unless the log has it already."""
    if frame.kind is FrameKind.RESTART:
        log.truncate_fully_and_start_at(frame.offset)
    elif frame.kind is FrameKind.TRUNCATION:
        if frame.offset < log.log_end_offset:
            log.truncate_to(frame.offset)
    elif frame.next_offset > log.log_end_offset:
        _replay_batches(log, frame)


def _replay_batches(log: Log, frame: Frame) -> None:
    log_start_offset = log.log_start_offset
    if frame.offset < log_start_offset:
        log.truncate_fully_and_start_at(frame.offset)
    elif frame.offset < log.log_end_offset:
        log.truncate_to(frame.offset)
    elif frame.offset > log.log_end_offset:
        raise RecoveryError(
            f"{log.segments[-1].path}: the log ends at offset {log.log_end_offset} and the journal "
            f"goes on at {frame.offset}: records between them are lost. Restore the partition's "
            "files from a copy, or move the directory away to give up the partition"
        )
    try:
        log.append_as_follower(frame.batches)
    except ApiError as error:
        raise RecoveryError(f"{log.directory}: cannot replay the journal: {error}") from error
    if log_start_offset > log.log_start_offset:
        log.advance_log_start(log_start_offset)


def _check_end(log: Log, recovery_point: int) -> None:
    if log.log_end_offset < recovery_point:
        raise RecoveryError(
            f"{log.segments[-1].path}: the log ends at offset {log.log_end_offset}, but everything "
            f"below {recovery_point} was on disk: the file is damaged or a later one is missing. "
            "Restore it from a copy, or remove the partition's line from "
            f"{log.directory.parent / RECOVERY_POINTS} to give up these records"
        )


def _group_by_partition(frames: list[Frame]) -> dict[TopicPartition, dict[bytes, Replay]]:
    replays: dict[TopicPartition, dict[bytes, Replay]] = {}
    for frame in frames:
        if frame.kind not in (FrameKind.CHECKPOINT, FrameKind.FILE_OPENED):
            by_topic_id = replays.setdefault(frame.topic_partition, {})
            by_topic_id.setdefault(frame.topic_id, Replay()).add(frame)
    return replays
