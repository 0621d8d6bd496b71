"""The metadata log: `__cluster_metadata-0`, where every decision becomes a fact.

A decision's records are one batch, so they count together or not at all. They are committed when
they are synced to disk (this node is the whole quorum; a larger quorum will replace `_append` and
`_commit`, not the shape), then the image is replaced, then listeners hear of it, then the one who
submitted. What is submitted while that goes on waits its turn, so that all see the same order.

Opening loads the newest snapshot that is whole, replays the log from there, and begins a new leader
epoch with a leader-change record, as Kafka's quorum does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.cluster.features import (
    DEFAULT_KRAFT_VERSION,
    DEFAULT_LEVELS,
    KRAFT_VERSION,
    METADATA_VERSION,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    LevelRange,
)
from tidelog.cluster.metadata.image import Endpoint, MetadataDelta, MetadataImage
from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.image_records import image_records
from tidelog.cluster.metadata.metadata_damage import refuse_damage
from tidelog.cluster.metadata.metadata_replay import replay_log
from tidelog.cluster.metadata.metadata_snapshot import (
    PART_SUFFIX,
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from tidelog.cluster.metadata.records.framing import encode_record
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.cluster.metadata.records.topics import RemoveTopicRecord
from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.errors import TidelogError
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    MetadataLogControl,
    Voter,
    VoterEndpoint,
    VotersRecord,
    VoterVersionFeature,
    encode_control,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from tidelog.storage.append_result import AppendResult, Origin
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.storage.directories.partition_metadata import write_topic_id
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log import Log
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.world import World
from tidelog.world.files import Files

logger = logging.getLogger(__name__)

DIRECTORY_NAME = f"{CLUSTER_METADATA_TOPIC}-0"

# Each decision is synced by itself, so the log needs no journal.
LOG_CONFIG = LogConfig(
    segment_ms=LONG_MAX,
    segment_index_bytes=1 << 20,
    retention_ms=-1,
    max_message_bytes=1 << 30,
    message_timestamp_after_max_ms=LONG_MAX,
    file_delete_delay_ms=0,
    durability="page-cache",
)

Listener = Callable[[MetadataImage, MetadataImage, MetadataDelta], None]


class MetadataLogError(TidelogError):
    """The metadata cannot be loaded; the message says which file is the matter and what to do."""


class SnapshotOptions(NamedTuple):
    """When a snapshot is due. Small limits keep start-up fast: what is behind is replayed."""

    bytes_max: int = 1 << 20
    records_max: int = 5_000
    records_max_at_close: int = 500
    interval_ms: int = 3600 * 1000  # 0: never by time


class MetadataLog:
    """Open one with `MetadataLog.open`. All of it belongs to the loop thread.

    image: what is committed. latest: also what is submitted and not yet published; decide on it.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        log: Log,
        options: SnapshotOptions,
        supported_features: Mapping[str, LevelRange],
    ) -> None:
        self.log = log
        self.directory = directory
        self.image = self.latest = MetadataImage()
        self.leader_epoch = 0
        self.leader_id = -1
        self.directory_id = ZERO_UUID
        self.kraft_version = 0
        self.voters: list[Voter] = []
        self.removed_topic_ids: frozenset[bytes] = frozenset()
        """Topics that the log was seen to remove when it was loaded."""
        self.listeners: list[Listener] = []
        self._files = world.files
        self._clock = world.wall_ms
        self._options = options
        self._supported_features = supported_features
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        self._last_snapshot_ms = world.wall_ms()
        self._synced_segment = -1  # base offset of the newest segment whose file is known to last
        self._failure: str | None = None
        self._publications: deque[
            tuple[MetadataImage, MetadataDelta, Callable[[], None] | None]
        ] = deque()
        self._is_publishing = False

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        node_id: int,
        directory_id: bytes,
        world: World,
        options: SnapshotOptions | None = None,
        initial_levels: Mapping[str, int] = DEFAULT_LEVELS,
        supported_features: Mapping[str, LevelRange] = SUPPORTED_FEATURES,
    ) -> MetadataLog:
        """Loads what is there, or begins a new cluster, and becomes leader of a new epoch.

        A new cluster starts with the features at `initial_levels`, metadata.version among them.
        `directory_id` is the id of the log directory that `directory` lies in. Raises
        MetadataLogError, CorruptFileError and OSError.
        """
        files = world.files
        if not files.exists(directory):
            files.mkdir(directory)
            files.sync_directory(directory.parent)
        if not files.exists(directory / PARTITION_METADATA):
            write_topic_id(files, directory, METADATA_TOPIC_ID, durable=True)
        snapshot_id, snapshot, damaged = _newest_snapshot(files, directory)
        refuse_damage(files, directory, snapshot_id.offset)
        log = open_log(
            directory,
            TopicPartition(CLUSTER_METADATA_TOPIC, 0),
            LOG_CONFIG,
            world=world,
            topic_id=METADATA_TOPIC_ID,
            recovery_point=snapshot_id.offset,
        )
        if log.log_end_offset < snapshot_id.offset:
            logger.warning(
                "%s ends at offset %d, before its snapshot at %d; going on from the snapshot",
                directory,
                log.log_end_offset,
                snapshot_id.offset,
            )
            log.truncate_fully_and_start_at(snapshot_id.offset)
        if log.log_start_offset > snapshot_id.offset:
            log.close()
            raise MetadataLogError(
                f"{directory} begins at offset {log.log_start_offset} and has no usable snapshot "
                f"up to there ({'; '.join(damaged) or 'none is there'}). Restore the snapshot "
                "files (*.checkpoint) of this directory from a copy."
            )
        metadata = cls(world, directory, log, options or SnapshotOptions(), supported_features)
        try:
            metadata._load(snapshot_id, snapshot)
            metadata._begin_epoch(node_id, directory_id, initial_levels)
        except BaseException:
            log.release()
            raise
        return metadata

    # Loading

    def _load(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        image = MetadataImage()
        try:
            if snapshot.records:
                image, _ = image.apply(
                    snapshot.records,
                    snapshot_id.offset - 1,
                    snapshot_id.epoch,
                    snapshot.timestamp_ms,
                )
            replayed = replay_log(self.log, self._files, snapshot_id.offset)
            self.kraft_version = replayed.kraft_version or snapshot.kraft_version
            self.voters = replayed.voters or snapshot.voters
            epoch = max(snapshot_id.epoch, replayed.epoch)
            image, _ = image.apply(
                replayed.records,
                self.log.log_end_offset - 1,
                epoch,
                max(image.timestamp_ms, replayed.timestamp_ms),
            )
        except MetadataReplayError as error:
            raise MetadataLogError(f"{self.directory} is not whole: {error}") from error
        self._check_supported(image)
        self.leader_epoch = epoch
        self.removed_topic_ids = frozenset(
            record.topic_id for record in replayed.records if isinstance(record, RemoveTopicRecord)
        )
        self.image = self.latest = image.with_kraft_version(self.kraft_version)
        self._bytes_since_snapshot = replayed.size_bytes
        self._records_since_snapshot = len(replayed.records)

    def _check_supported(self, image: MetadataImage) -> None:
        for feature, level in image.features.items():
            supported = self._supported_features.get(feature, NOT_SUPPORTED)
            if level not in supported:
                raise MetadataLogError(
                    f"{self.directory} is at {feature} {level}; this software supports "
                    f"{supported}. Use the software that wrote it, if only to lower the level."
                )

    def _begin_epoch(
        self, node_id: int, directory_id: bytes, initial_levels: Mapping[str, int]
    ) -> None:
        """This node is the whole quorum, so it leads; a new cluster gets its first records."""
        self.leader_epoch += 1
        self.leader_id = node_id
        self.directory_id = directory_id
        voter = LeaderChangeVoter(voter_id=node_id)
        # Kafka's own tools read version 0 only.
        self._append_control(
            LeaderChangeMessage(
                version=0, leader_id=node_id, voters=[voter], granting_voters=[voter]
            )
        )
        if not self.latest.metadata_version:
            self._bootstrap(node_id, directory_id, initial_levels)
        self._moved_on(self.latest.with_kraft_version(self.kraft_version))

    def _bootstrap(
        self, node_id: int, directory_id: bytes, initial_levels: Mapping[str, int]
    ) -> None:
        self.kraft_version = DEFAULT_KRAFT_VERSION
        self.voters = [_voter(node_id, directory_id, ())]
        self._append_control(KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
        self._append_control(VotersRecord(version=0, voters=self.voters))
        self.submit(
            [
                FeatureLevelRecord(name=name, feature_level=level)
                for name, level in initial_levels.items()
            ]
        )

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Says at a start, when the ports are known, where this node's controller is reached.

        Other voters and what is the same already stay as they are.
        """
        own = _voter(self.leader_id, self.directory_id, endpoints)
        others = [voter for voter in self.voters if voter.voter_id != self.leader_id]
        if own in self.voters or (self.voters and len(others) == len(self.voters)):
            return
        self.voters = [*others, own]
        if self.kraft_version:
            self._append_control(VotersRecord(version=0, voters=self.voters))
            self._commit()
            self._moved_on(self.latest)

    def raise_kraft_version(self, level: int) -> None:
        """Puts the voters into the log, whose quorum was fixed by configuration before."""
        if level <= self.kraft_version:
            return
        self._append_control(KRaftVersionRecord(version=0, kraft_version=level))
        self._append_control(VotersRecord(version=0, voters=self.voters))
        self._commit()
        self.kraft_version = level
        self._moved_on(self.latest.with_kraft_version(level))

    def _moved_on(self, image: MetadataImage) -> None:
        """Control records are in the log: nothing is under way that stands before them."""
        assert not self._publications
        self.image = self.latest = image.at(
            self.log.log_end_offset - 1, self.leader_epoch, self._clock()
        )

    def _append_control(self, message: MetadataLogControl) -> None:
        """Control records are synced with the next decision."""
        self._append(encode_control(message, timestamp_ms=self._clock()))

    # Writing

    @property
    def next_offset(self) -> int:
        """The offset that the first record of the next decision gets."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed."""
        return self.image.offset + 1

    def submit(
        self, records: Sequence[Message], on_committed: Callable[[], None] | None = None
    ) -> int:
        """Makes a decision a fact; returns the offset of its last record.

        `on_committed` is called when the image has it, without records at once. Blocks for one
        sync of the disk. Raises ApiError(KAFKA_STORAGE_ERROR) when the disk takes it not; then
        nothing has changed.
        """
        if not records:
            if on_committed is not None:
                on_committed()
            return self.latest.offset
        now_ms = self._clock()
        metadata_version = self._metadata_version_for(records)
        values = [encode_record(record, metadata_version) for record in records]
        batch = encode_batch(
            [Record(index, now_ms, None, value) for index, value in enumerate(values)]
        )
        # Records that cannot be applied must not get into the log.
        after, delta = self.latest.apply(
            records, self.next_offset + len(records) - 1, self.leader_epoch, now_ms
        )
        result = self._append(batch)
        self._commit()
        assert result.last_offset == after.offset
        self.latest = after
        self._bytes_since_snapshot += result.size_bytes
        self._records_since_snapshot += len(records)
        self._publications.append((after, delta, on_committed))
        if not self._is_publishing:
            self._publish()
        return result.last_offset

    def _metadata_version_for(self, records: Sequence[Message]) -> int:
        """The version that records are written in, which they may set themselves."""
        for record in records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                return record.feature_level
        return self.latest.metadata_version

    def _append(self, batch: bytearray) -> AppendResult:
        if self._failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        return self.log.append_as_leader(
            memoryview(batch), self.leader_epoch, self._clock(), origin=Origin.RAFT
        )

    def _commit(self) -> None:
        """Syncs the batch; only the newest segment can hold what is not synced yet."""
        segment = self.log.segments[-1]
        try:
            self._files.fdatasync(segment.open().fd)
            if segment.base_offset != self._synced_segment:
                self._files.sync_directory(self.directory)
                self._synced_segment = segment.base_offset
        except OSError as error:
            # Nobody knows what the disk holds now; only reading it again can tell.
            self._failure = (
                f"the metadata log {self.directory} could not be synced ({error}): "
                "the node has to be restarted"
            )
            logger.error("%s", self._failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure) from error

    def _publish(self) -> None:
        self._is_publishing = True
        try:
            while self._publications:
                after, delta, on_committed = self._publications.popleft()
                before, self.image = self.image, after
                for listener in tuple(self.listeners):
                    listener(before, after, delta)
                if on_committed is not None:
                    on_committed()
        finally:
            self._is_publishing = False
        if (
            self._bytes_since_snapshot >= self._options.bytes_max
            or self._records_since_snapshot >= self._options.records_max
        ):
            self.snapshot()

    # Snapshots

    def snapshot(self) -> SnapshotId:
        """Writes a snapshot of the image and drops what the two newest ones make needless.

        A disk that takes no snapshot costs start-up time and nothing else, so it is only told of.
        """
        now_ms = self._clock()
        image = self.image
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        try:
            # The next start trusts what is below a snapshot without looking at it.
            self.log.flush()
            write_snapshot(
                self._files,
                self.directory,
                snapshot_id,
                image_records(image),
                metadata_version=image.metadata_version,
                timestamp_ms=image.timestamp_ms,
                now_ms=now_ms,
                kraft_version=self.kraft_version,
                voters=self.voters,
            )
            self.log.roll(now_ms)
            self._drop_old(now_ms)
        except OSError as error:
            logger.warning("no snapshot of the metadata in %s: %s", self.directory, error)
        self._bytes_since_snapshot = self._records_since_snapshot = 0
        self._last_snapshot_ms = now_ms
        return snapshot_id

    def snapshot_if_due(self, now_ms: int) -> None:
        """Call this now and then: a snapshot that no amount of records asks for comes by time."""
        interval_ms = self._options.interval_ms
        if (
            interval_ms
            and self._records_since_snapshot
            and now_ms - self._last_snapshot_ms >= interval_ms
        ):
            self.snapshot()

    def _drop_old(self, now_ms: int) -> None:
        """Keeps two snapshots, and the log from the older one on, in case one gets damaged."""
        snapshots = list_snapshots(self._files, self.directory)
        for old in snapshots[2:]:
            self._files.unlink(self.directory / old.file_name)
        if len(snapshots) > 1:
            self.log.advance_log_start(snapshots[1].offset)
            self.log.delete_old_segments(now_ms, self.high_watermark)
            for path in self.log.take_deletable_files(now_ms + 1):
                self._files.unlink(path)

    def close(self) -> None:
        """Ends in order; the next start has little to replay."""
        if (
            self._failure is None
            and self._records_since_snapshot >= self._options.records_max_at_close
        ):
            self.snapshot()
        try:
            self.log.close()
        except OSError as error:
            # What it writes at the end only makes the next start quicker.
            logger.warning("%s was not closed in order: %s", self.directory, error)
            self.log.release()


def _voter(node_id: int, directory_id: bytes, endpoints: Sequence[Endpoint]) -> Voter:
    supported = SUPPORTED_FEATURES[KRAFT_VERSION]
    return Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[
            VoterEndpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ],
        kraft_version_feature=VoterVersionFeature(
            min_supported_version=supported.minimum, max_supported_version=supported.maximum
        ),
    )


def _newest_snapshot(files: Files, directory: Path) -> tuple[SnapshotId, Snapshot, list[str]]:
    """The newest snapshot that is whole (else an empty one), and what is wrong with newer ones."""
    damaged: list[str] = []
    for name in files.listdir(directory):
        if name.endswith(PART_SUFFIX):
            files.unlink(directory / name)
    for snapshot_id in list_snapshots(files, directory):
        try:
            return snapshot_id, read_snapshot(files, directory, snapshot_id), damaged
        except CorruptFileError as error:
            logger.warning("%s; trying the snapshot before it", error)
            damaged.append(str(error))
    return SnapshotId(0, 0), Snapshot(), damaged
