"""All logs of a node, over one or several log directories.

Each directory has its own journal, checkpoints and maintenance thread, so that a disk that fails
takes only its own partitions along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.byte_throttle import ByteThrottle
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import format_uuid
from tidelog.storage.directories.log_directory import (
    DirectoryState,
    LogDirectory,
    LogDirectoryError,
    claim_directories,
)
from tidelog.storage.directories.log_move import LogMove
from tidelog.storage.directories.offset_checkpoint import HIGH_WATERMARKS, read_offsets
from tidelog.storage.directories.partition_directory import (
    moved_mark_name,
    partition_directory_name,
)
from tidelog.storage.directories.partition_metadata import write_topic_id
from tidelog.storage.directories.serving_directory import ServingDirectory
from tidelog.storage.files import CorruptFileError
from tidelog.storage.journal.journal import Post
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.storage.recovery import ConfigFor, RecoveryProgress, recover_directory
from tidelog.storage.store_options import StoreOptions
from tidelog.world import World
from tidelog.world.workers import OnCrash, log_crash

logger = logging.getLogger(__name__)


class LogStore:
    """Creates, finds, deletes and makes durable the logs of a node. Loop thread only.

    `on_directory_failure(state, partitions)` is called when a directory goes offline; requests that
    wait for these partitions will not be answered by `on_durable` any more.
    """

    def __init__(self, world: World, options: StoreOptions, cluster_id: str) -> None:
        self._world = world
        self._files = world.files
        self._options = options
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.stopped_cleanly = True  # nothing had to be recovered
        self.rivals: list[Log] = []
        """Logs of partitions that `logs` has too, from another directory and of another topic id.
        Only the metadata can tell which is whose: `set_aside` or `delete` one of each pair."""
        self.strays: list[Path] = []  # found in the directories, left alone
        self.checkpointed_high_watermarks: dict[TopicPartition, int] = {}
        self.high_watermark_of: Callable[[Log], int] = self.checkpointed_high_watermark
        self.on_directory_failure: Callable[[DirectoryState, list[TopicPartition]], None] | None = (
            None
        )
        self.on_full_directories: Callable[[list[bytes]], None] = lambda directory_ids: None
        """Called with the ids of all directories that are full, when one becomes so or has room."""
        self.on_moved: Callable[[Log], None] = lambda log: None
        """Called with the log that takes the place of one in another directory."""
        self.move_throttle: ByteThrottle | None = None
        """How fast logs move; as fast as they can without one."""
        self.moves: dict[TopicPartition, LogMove] = {}
        self._moved: dict[Path, dict[TopicPartition, str]] = {}  # found at start, by directory
        self._replaced: list[Log] = []  # found at start beside the logs that replace them
        self._directories: list[LogDirectory] = []
        self._serving: list[ServingDirectory] = []
        self._post: Post = lambda call: call()
        self._on_crash: OnCrash = log_crash

    @classmethod
    def open(
        cls,
        directories: Sequence[Path],
        options: StoreOptions,
        *,
        world: World,
        post: Post,
        config_for: ConfigFor | None = None,
        progress: Callable[[RecoveryProgress], None] | None = None,
        on_crash: OnCrash = log_crash,
    ) -> LogStore:
        """Locks the directories and recovers all logs in them.

        `post` schedules a call on the loop thread. `config_for` tells the settings of the logs that
        are found; without it they get the defaults until `set_config`. `on_crash` hears when a
        background thread meets a bug; the store does not close cleanly then. A directory whose disk
        fails is offline, as long as another one works. Raises LogDirectoryError (in use, of
        another node), RecoveryError and CorruptFileError (damaged files; the text says what to do).
        """
        paths = [Path(directory).absolute() for directory in directories]
        claimed, cluster_id = claim_directories(world, paths, options.node_id, options.cluster_id)
        store = cls(world, options, cluster_id)
        store._directories = claimed
        store._post = post
        store._on_crash = on_crash
        try:
            for directory in claimed:
                if directory.online:
                    store._start(directory, post, config_for or (lambda _: LogConfig()), progress)
            if not store._serving:
                problems = "; ".join(f"{d.path}: {d.error}" for d in claimed)
                raise LogDirectoryError(f"no log directory can be used: {problems}")
            store._settle_moves()
        except BaseException:
            store._abandon()
            raise
        return store

    @property
    def directories(self) -> list[DirectoryState]:
        return [directory.state() for directory in self._directories]

    def directory_id_of(self, log: Log) -> bytes:
        return self._serving_of(log).directory.directory_id

    @property
    def congested(self) -> bool:
        """So many bytes wait to become durable that no more should be read from clients."""
        limit = self._options.journal_waiting_bytes_max
        return any(serving.journal.waiting_bytes > limit for serving in self._serving)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """Makes a log in the online directory with the fewest partitions.

        Raises ApiError(KAFKA_STORAGE_ERROR) when the disk refuses.
        """
        if topic_partition in self.logs:
            raise ValueError(f"{topic_partition} exists already")
        serving = min(
            (serving for serving in self._serving if serving.directory.online),
            key=lambda serving: len(serving.directory.logs),
            default=None,
        )
        if serving is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        path = serving.directory.path / partition_directory_name(topic_partition)
        if serving.is_being_removed(path):
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path}: the deleted log of this name is still being removed",
            )
        try:
            log = open_log(
                path,
                topic_partition,
                config,
                world=self._world,
                topic_id=topic_id,
                clean=True,
            )
        except OSError as error:
            serving.discard_directory(path)
            serving.storage_error(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error
        self.logs[topic_partition] = log
        serving.add(log, is_new=True)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Takes a log out of service at once; its files are removed in the background."""
        log = self.logs.get(topic_partition)
        if log is not None:
            self.delete_log(log)

    def delete_log(self, log: Log) -> None:
        """The same for a log that may be one of the `rivals`."""
        self.cancel_move(log.topic_partition, "it is deleted")
        self._forget(log)
        self._serving_of(log).delete(log)

    @property
    def is_deleting(self) -> bool:
        """Whether a crash may still bring back a log that was deleted.

        A directory that has failed does not count, as long as there is another: that it is away is
        in the metadata.
        """
        online = [serving for serving in self._serving if serving.directory.online]
        return any(serving.is_deleting for serving in online or self._serving)

    def set_aside(self, log: Log) -> Path:
        """Takes a log that no topic claims out of service; its files stay, under another name.

        Raises ApiError(KAFKA_STORAGE_ERROR); the log is where it was then.
        """
        serving = self._serving_of(log)
        try:
            target = serving.set_aside(log)
        except OSError as error:
            serving.storage_error(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory}: {error}") from error
        self._forget(log)
        return target

    def has_rival(self, log: Log) -> bool:
        return any(rival.topic_partition == log.topic_partition for rival in self.rivals)

    def _forget(self, log: Log) -> None:
        topic_partition = log.topic_partition
        if log in self.rivals:
            self.rivals.remove(log)
            return
        del self.logs[topic_partition]
        for rival in self.rivals:
            if rival.topic_partition == topic_partition:
                self.logs[topic_partition] = rival
                self.rivals.remove(rival)
                break

    # Moving

    def move(self, topic_partition: TopicPartition, directory: Path) -> None:
        """Begins to move a log into another directory; `on_moved` tells when it is there.

        One for the directory it is in ends a move that is under way. Raises ApiError:
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR. Moves go on one after the other.
        """
        log = self.logs[topic_partition]
        state = next((each for each in self._directories if each.path == directory), None)
        if state is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is no log directory")
        under_way = self.moves.get(topic_partition)
        if under_way is not None:
            if under_way.destination.directory is state:
                return
            under_way.cancel(f"{directory} is asked for")
        if log.directory.parent == directory:
            return
        origin = self._serving_of(log)
        if not (state.online and origin.directory.online):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} or its own is offline")
        destination = next(s for s in self._serving if s.directory is state)
        try:
            move = LogMove(
                self._world,
                log,
                origin,
                destination,
                post=self._post,
                ended=self._move_ended,
                throttle=self.move_throttle,
            )
        except OSError as error:
            destination.storage_error(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}") from error
        if not move.is_over:
            self.moves[topic_partition] = move
            self._advance_moves()

    def cancel_move(self, topic_partition: TopicPartition, reason: str) -> None:
        move = self.moves.get(topic_partition)
        if move is not None:
            move.cancel(reason)

    def _advance_moves(self) -> None:
        """The oldest goes on: several at once would only take the disk from each other."""
        if self.moves:
            next(iter(self.moves.values())).advance()

    def _move_ended(self, move: LogMove, moved: Log | None) -> None:
        topic_partition = move.log.topic_partition
        self.moves.pop(topic_partition, None)
        if moved is not None:
            destination = move.destination
            self.logs[topic_partition] = moved
            destination.add(moved)
            self.on_moved(moved)
            self._drop(move.log, destination)
        self._post(self._advance_moves)

    def _drop(self, replaced: Log, destination: ServingDirectory) -> None:
        """Deletes a log that was moved, and then the mark that says so."""
        mark = destination.directory.path / moved_mark_name(replaced.topic_partition)
        self._serving_of(replaced).delete(replaced, lambda: destination.remove_file_later(mark))

    def _choose(self, other: Log, log: Log) -> Log:
        """Of two logs of a partition, the one that was moved from where the other is."""
        for winner, loser in ((log, other), (other, log)):
            origin_id = self._moved[winner.directory.parent].get(winner.topic_partition)
            origin = next(d for d in self._directories if d.path == loser.directory.parent)
            if origin_id == format_uuid(origin.directory_id):
                self._replaced.append(loser)
                return winner
        if log.topic_id != other.topic_id:
            self.rivals.append(log)
            return other
        raise LogDirectoryError(
            f"{log.topic_partition} is in two log directories: {other.directory} and "
            f"{log.directory}. Move one of them away"
        )

    def _settle_moves(self) -> None:
        """At start: deletes logs that were moved, and marks that are needed no more."""
        for replaced in self._replaced:
            winner = self.logs[replaced.topic_partition]
            self._drop(replaced, self._serving_of(winner))
        online = {format_uuid(s.directory.directory_id) for s in self._serving}
        kept = {replaced.topic_partition for replaced in self._replaced}
        for serving in self._serving:
            path = serving.directory.path
            for topic_partition, origin_id in self._moved[path].items():
                # A directory that is offline may still hold the old log.
                if origin_id in online and topic_partition not in kept:
                    serving.remove_file_later(path / moved_mark_name(topic_partition))

    def set_sync_threads(self, count: int) -> None:
        """How many files of a directory are synced side by side from now on."""
        for serving in self._serving:
            serving.set_sync_threads(count)

    def set_config(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        """Changes a log's settings. Durability `fsync` takes hold with a sync of what is there."""
        log = self.logs[topic_partition]
        if log.config == config:
            return
        was_synced = log.config.durability == "fsync"
        log.config = config
        if config.durability == "fsync" and not was_synced:
            self._serving_of(log).sync(log)
        elif was_synced and config.durability != "fsync":
            log.mark_durable(log.log_end_offset)

    def identify(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        """Gives a log whose partition.metadata is missing its topic id back."""
        log = self.logs[topic_partition]
        write_topic_id(self._files, log.directory, topic_id)
        log.topic_id = topic_id

    def commit(self) -> None:
        """The end of a loop turn: one sync will cover all that was appended in it."""
        for serving in self._serving:
            serving.journal.commit()

    def checkpoint(self) -> None:
        """Starts a checkpoint of every directory, in the background."""
        for serving in self._serving:
            serving.checkpoint()

    def checkpoint_of(self, log: Log) -> None:
        """Starts a checkpoint of the log's directory, in the background."""
        self._serving_of(log).checkpoint()

    def is_checkpointing(self, log: Log) -> bool:
        return self._serving_of(log).is_checkpointing

    def maintain(self, now_ms: int) -> None:
        """To be called about once a second: timed checkpoints, removal of deleted files."""
        for serving in self._serving:
            serving.maintain(now_ms)
        self._advance_moves()

    def close(self, *, clean: bool = True) -> None:
        """Makes everything durable and checkpoints it, so that the next open needs no recovery.

        With `clean` False only the threads end and the locks are released, as in a crash.
        """
        for move in list(self.moves.values()):
            move.cancel("the node stops")
        for serving in self._serving:
            serving.close(clean=clean)
        for directory in self._directories:
            directory.release()

    def _start(
        self,
        directory: LogDirectory,
        post: Post,
        config_for: ConfigFor,
        progress: Callable[[RecoveryProgress], None] | None,
    ) -> None:
        try:
            recovered = recover_directory(
                self._world,
                directory.path,
                config_for=config_for,
                threads=self._options.sync_threads,
                progress=progress,
            )
            # Before the checkpoint that follows a recovery takes its place.
            self._read_high_watermarks(directory)
            self._moved[directory.path] = recovered.moved
            for topic_partition, log in recovered.logs.items():
                other = self.logs.setdefault(topic_partition, log)
                if other is not log:
                    self.logs[topic_partition] = self._choose(other, log)
            directory.logs = recovered.logs
            serving = ServingDirectory(
                self._world,
                directory,
                self._options,
                recovered,
                post=post,
                high_watermark_of=lambda log: self.high_watermark_of(log),
                on_failure=self._directory_failed,
                on_room_changed=self._room_changed,
                on_crash=self._on_crash,
            )
        except OSError as error:
            logger.error("%s is offline: %s", directory.path, error)
            directory.error = str(error)
            self.logs = {tp: log for tp, log in self.logs.items() if tp not in directory.logs}
            return
        self._serving.append(serving)
        self.stopped_cleanly = self.stopped_cleanly and recovered.clean
        self.strays += recovered.strays
        for path in recovered.strays:
            logger.warning("%s is not a part of the store and is left alone", path)

    def checkpointed_high_watermark(self, log: Log) -> int:
        """What is known of a log's high watermark before anybody leads or follows it. That it is
        durable here says nothing about other replicas."""
        known = self.checkpointed_high_watermarks.get(log.topic_partition, 0)
        return min(max(known, log.log_start_offset), log.durable_offset)

    def _read_high_watermarks(self, directory: LogDirectory) -> None:
        try:
            offsets = read_offsets(self._files, directory.path / HIGH_WATERMARKS)
        except CorruptFileError as error:
            logger.warning("%s; high watermarks start at the log starts", error)
        else:
            self.checkpointed_high_watermarks.update(offsets)

    def _serving_of(self, log: Log) -> ServingDirectory:
        return next(s for s in self._serving if s.directory.path == log.directory.parent)

    def _directory_failed(self, serving: ServingDirectory) -> None:
        directory = serving.directory
        logger.error("%s is offline: %s", directory.path, directory.error)
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory.state(), list(directory.logs))

    def _room_changed(self) -> None:
        self.on_full_directories(
            [serving.directory.directory_id for serving in self._serving if serving.is_full]
        )

    def _abandon(self) -> None:
        for serving in self._serving:
            serving.close(clean=False)
        for directory in self._directories:
            directory.release()
