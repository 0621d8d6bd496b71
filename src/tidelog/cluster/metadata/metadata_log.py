"""The metadata log: `__cluster_metadata-0`, where every decision becomes a fact.

A decision is proposed, and its proposal commits or fails. Committed it is when the quorum has it on
disk; then the image is replaced, then listeners hear of it, then the one who proposed. What is
proposed meanwhile waits and shares the next sync. `latest` is what decisions build on: the image
with everything that is proposed. When the disk refuses something, or leadership goes, all that is
in flight fails and `latest` goes back to what is committed.

Opening loads the newest snapshot that is whole, replays the log from there, and begins a new leader
epoch with a leader-change record, as Kafka's quorum does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

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
from tidelog.cluster.metadata.metadata_damage import refuse_damage
from tidelog.cluster.metadata.metadata_replay import replay_log
from tidelog.cluster.metadata.metadata_snapshot import Snapshot, SnapshotId, newest_snapshot
from tidelog.cluster.metadata.proposal import Proposal, encode_group, take_group
from tidelog.cluster.metadata.quorum_of_one import QuorumOfOne
from tidelog.cluster.metadata.records.framing import encode_record
from tidelog.cluster.metadata.records.log_control import AbortTransactionRecord
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.cluster.metadata.records.topics import RemoveTopicRecord
from tidelog.cluster.metadata.snapshotting import SnapshotOptions, Snapshotting
from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.errors import TidelogError
from tidelog.promise import Promise
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    MetadataLogControl,
    Voter,
    VoterEndpoint,
    VotersRecord,
    VoterVersionFeature,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.storage.directories.partition_metadata import write_topic_id
from tidelog.storage.log import Log
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.world import World
from tidelog.world.workers import OnCrash, log_crash

logger = logging.getLogger(__name__)

DIRECTORY_NAME = f"{CLUSTER_METADATA_TOPIC}-0"

# The quorum syncs what it appends, so the log needs no journal.
LOG_CONFIG = LogConfig(
    segment_ms=LONG_MAX,
    segment_index_bytes=1 << 20,
    retention_ms=-1,
    max_message_bytes=1 << 30,
    message_timestamp_after_max_ms=LONG_MAX,
    file_delete_delay_ms=0,
    durability="page-cache",
)
# A disk that is behind by more than this is told from one that is slow for a moment.
WAITING_RECORDS_MAX = 100_000

Listener = Callable[[MetadataImage, MetadataImage, MetadataDelta], None]
Post = Callable[[Callable[[], None]], None]


def _log_exception() -> None:
    logger.exception("a listener of the metadata has failed")


class MetadataLogError(TidelogError):
    """The metadata cannot be loaded; the message says which file is the matter and what to do."""


class MetadataLog:
    """Open one with `MetadataLog.open`. All of it belongs to the loop thread.

    image: what is committed. latest: also what is proposed and in flight; decide on it.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        log: Log,
        options: SnapshotOptions,
        supported_features: Mapping[str, LevelRange],
        post: Post,
        on_crash: OnCrash,
        on_exception: Callable[[], None],
    ) -> None:
        self.log = log
        self.directory = directory
        self.image = self.latest = MetadataImage()
        self.leader_epoch = 0
        self._open_transaction_offset: int | None = None
        self.leader_id = -1
        self.directory_id = ZERO_UUID
        self.kraft_version = 0
        self.voters: list[Voter] = []
        self.may_forget_removals: Callable[[], bool] = lambda: True
        """Whether the logs of all removed topics are gone for good: until then a start has to find
        the removals, and no part of the log is dropped."""
        self.listeners: list[Listener] = []
        self._files = world.files
        self._clock = world.wall_ms
        self._supported_features = supported_features
        self._post = post
        self._on_exception = on_exception
        # In the order of the log: proposals that wait, that the quorum has, that are committed and
        # not published yet.
        self._waiting: deque[Proposal] = deque()
        self._appended: list[Proposal] = []
        self._publications: deque[Proposal] = deque()
        self._waiting_records = 0
        self._is_publishing = False
        self._committed = self.image  # `image` and `_publications`
        self._newest_committed: Promise[None] = Promise.of(None)  # of what `latest` is made of
        self._refusal: ApiError | None = None  # why nothing more can be proposed
        self._finished_jobs: deque[Callable[[], None]] = deque()
        self._sync_worker = world.start_worker(f"tidelog-metadata {directory}", on_crash)
        self._snapshot_worker = world.start_worker("tidelog-metadata-snapshots", on_crash)
        self._quorum = QuorumOfOne(world, directory, log, self._sync_worker, self._post_back)
        self._snapshots = Snapshotting(
            world,
            directory,
            log,
            self._quorum,
            options,
            self._snapshot_worker,
            self._post_back,
            self._stop_leading,
            lambda: self.may_forget_removals(),
        )

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        node_id: int,
        directory_id: bytes,
        world: World,
        post: Post = lambda call: call(),
        on_crash: OnCrash = log_crash,
        on_exception: Callable[[], None] = _log_exception,
        options: SnapshotOptions | None = None,
        initial_levels: Mapping[str, int] = DEFAULT_LEVELS,
        supported_features: Mapping[str, LevelRange] = SUPPORTED_FEATURES,
    ) -> MetadataLog:
        """Loads what is there, or begins a new cluster, and becomes leader of a new epoch.

        A new cluster starts with the features at `initial_levels`, metadata.version among them.
        `directory_id` is the id of the log directory that `directory` lies in. `post` schedules a
        call on the loop thread. `on_exception` is called while the exception of a listener, or of
        somebody who waits for a proposal, is being handled. Raises MetadataLogError,
        CorruptFileError, OSError, and ApiError when the disk does not take the first records.
        """
        files = world.files
        if not files.exists(directory):
            files.mkdir(directory)
            files.sync_directory(directory.parent)
        if not files.exists(directory / PARTITION_METADATA):
            write_topic_id(files, directory, METADATA_TOPIC_ID, durable=True)
        snapshot_id, snapshot, damaged = newest_snapshot(files, directory)
        refuse_damage(files, directory, snapshot_id.offset)
        log = open_log(
            directory,
            TopicPartition(CLUSTER_METADATA_TOPIC, 0),
            LOG_CONFIG,
            world=world,
            topic_id=METADATA_TOPIC_ID,
            recovery_point=snapshot_id.offset,
            contiguous=True,
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
        metadata = cls(
            world,
            directory,
            log,
            options or SnapshotOptions(),
            supported_features,
            post,
            on_crash,
            on_exception,
        )
        try:
            metadata._load(snapshot_id, snapshot)
            metadata._begin_epoch(node_id, directory_id, initial_levels)
        except BaseException:
            metadata._close_workers()
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
        self._open_transaction_offset = replayed.open_transaction_offset
        self.leader_epoch = epoch
        image = image.with_kraft_version(self.kraft_version)
        self.image = self.latest = self._committed = image
        self._snapshots.note(replayed.size_bytes, len(replayed.records))

    def removed_topic_ids(self) -> frozenset[bytes]:
        """The topics that the log removes, as far back as it goes, which is before the newest
        snapshot. Cost: reads all of the log. Raises MetadataLogError."""
        try:
            replayed = replay_log(self.log, self._files, self.log.log_start_offset)
        except MetadataReplayError as error:
            raise MetadataLogError(f"{self.directory} is not whole: {error}") from error
        return frozenset(
            record.topic_id for record in replayed.records if isinstance(record, RemoveTopicRecord)
        )

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
        leader_change = LeaderChangeMessage(
            version=0, leader_id=node_id, voters=[voter], granting_voters=[voter]
        )
        aborted = self._abort_of_open_transaction()
        if self.latest.metadata_version:
            began = self._propose(aborted, control=[leader_change])
            # Nobody waits for its sync: the rest of the start goes on meanwhile.
            if began.committed.is_done:
                began.committed.result()
            return
        levels = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in initial_levels.items()
        ]
        first = self._propose(
            [*aborted, *levels],
            control=[leader_change],
            kraft_version=DEFAULT_KRAFT_VERSION,
            voters=[_voter(node_id, directory_id, ())],
        )
        self.settle()
        first.committed.result()

    def _abort_of_open_transaction(self) -> list[Message]:
        """What follows in the log would belong to a transaction that another software left open."""
        if self._open_transaction_offset is None:
            return []
        return [AbortTransactionRecord(reason="Controller failover")]

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Says at a start, when the ports are known, where this node's controller is reached.

        Other voters and what is the same already stay as they are.
        """
        own = _voter(self.leader_id, self.directory_id, endpoints)
        others = [voter for voter in self.voters if voter.voter_id != self.leader_id]
        if own in self.voters or (self.voters and len(others) == len(self.voters)):
            return
        if self.kraft_version:
            self._propose([], voters=[*others, own])
        else:
            self.voters = [*others, own]

    # Proposing

    @property
    def next_offset(self) -> int:
        """The offset that the first record of the next proposal gets."""
        return self.latest.offset + 1

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed, and in the image."""
        return self.image.offset + 1

    @property
    def has_proposals(self) -> bool:
        """Whether something is in flight."""
        return bool(self._appended or self._waiting)

    def propose(self, records: Sequence[Message], *, kraft_version: int = 0) -> Proposal:
        """Sets out to make a decision a fact. Returns at once; see `Proposal` for how it ends.

        Without records it is a question, which was answered from `latest`: the answer holds when
        what it was taken from is committed. A `kraft_version` above that of now puts the voters
        into the log, whose quorum was fixed by configuration before. Raises MetadataReplayError
        for records that cannot be applied: those do not get into the log.
        """
        if kraft_version > self.latest.finalized_level(KRAFT_VERSION):
            return self._propose(records, kraft_version=kraft_version, voters=self.voters)
        return self._propose(records)

    def _propose(
        self,
        records: Sequence[Message],
        *,
        control: Sequence[MetadataLogControl] = (),
        kraft_version: int = 0,
        voters: Sequence[Voter] | None = None,
    ) -> Proposal:
        now_ms = self._clock()
        latest = self.latest
        if kraft_version:
            control = [*control, KRaftVersionRecord(version=0, kraft_version=kraft_version)]
        if voters is not None:
            control = [*control, VotersRecord(version=0, voters=list(voters))]
        refusal = self._refusal
        if refusal is None and self._waiting_records + len(records) > WAITING_RECORDS_MAX:
            refusal = ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: the disk does not keep up"
            )
        if refusal is not None:
            return Proposal(latest, MetadataDelta(), (), now_ms, committed=Promise.failed(refusal))
        if not records and not control:
            committed = self._newest_committed
            return Proposal(latest, MetadataDelta(), (), now_ms, committed=committed)
        offset = latest.offset + len(control) + len(records)
        after, delta = latest.apply(records, offset, self.leader_epoch, now_ms)
        if kraft_version:
            after = after.with_kraft_version(kraft_version)
        metadata_version = self._metadata_version_for(records)
        values = [encode_record(record, metadata_version) for record in records]
        proposal = Proposal(after, delta, values, now_ms, control, voters)
        self.latest = after
        self._newest_committed = proposal.committed
        self._waiting.append(proposal)
        self._waiting_records += len(values)
        self._append_waiting()
        return proposal

    def _metadata_version_for(self, records: Sequence[Message]) -> int:
        """The version that records are written in, which they may set themselves."""
        for record in records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                return record.feature_level
        return self.latest.metadata_version

    def _append_waiting(self) -> None:
        """The quorum takes what waits, unless it has something already."""
        if self._appended or not self._waiting:
            return
        group = self._appended = take_group(self._waiting)
        self._waiting_records -= sum(len(proposal.values) for proposal in group)
        batches = encode_group(group)
        try:
            last_offset = self._quorum.append(
                batches, self.leader_epoch, partial(self._synced, group, len(batches))
            )
        except ApiError as error:
            # The disk is full. What is built on it has to go too; later there may be room.
            self._fail_in_flight(error)
            return
        except BaseException as bug:
            # Nobody knows what the log holds now, and no sync will tell how this ends.
            self._stop_leading(
                ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"an append to the metadata log {self.directory} failed "
                    f"({type(bug).__name__}: {bug}): the node has to be restarted",
                )
            )
            raise
        assert last_offset == group[-1].after.offset

    def _synced(self, group: list[Proposal], size_bytes: int, error: ApiError | None) -> None:
        if self._appended is not group:
            return  # it has failed already
        if error is not None:
            self._stop_leading(error)
            return
        self._appended = []
        self._committed = group[-1].after
        self._publications += group
        self._snapshots.note(size_bytes, sum(len(proposal.values) for proposal in group))
        try:
            # The disk works on what waits while this is published.
            self._append_waiting()
        finally:
            if not self._is_publishing:
                self._publish()

    def _publish(self) -> None:
        self._is_publishing = True
        try:
            while self._publications:
                proposal = self._publications.popleft()
                before, after = self.image, proposal.after
                self.image = after
                self.kraft_version = after.finalized_level(KRAFT_VERSION)
                if proposal.voters is not None:
                    self.voters = list(proposal.voters)
                for listener in tuple(self.listeners):
                    self._shielded(partial(listener, before, after, proposal.delta))
                self._shielded(partial(proposal.committed.resolve, None))
        finally:
            self._is_publishing = False
        if self._snapshots.is_due and self._refusal is None:
            self.snapshot()

    def _shielded(self, call: Callable[[], None]) -> None:
        """What one of those who are told raises must not keep it from the others."""
        try:
            call()
        except Exception:  # noqa: BLE001 - it is told
            self._on_exception()

    # Failing

    def resign(self) -> None:
        """This node leads no longer: what is in flight fails, and so does whatever is proposed."""
        self._stop_leading(
            ApiError(ErrorCode.NOT_CONTROLLER, f"node {self.leader_id} is not the controller")
        )

    def _stop_leading(self, reason: ApiError) -> None:
        if self._refusal is None:
            self._refusal = reason
            if reason.code is ErrorCode.KAFKA_STORAGE_ERROR:
                logger.error("%s", reason.message)
        self._fail_in_flight(reason)

    def _fail_in_flight(self, error: ApiError) -> None:
        """Takes back what is decided and not committed."""
        in_flight = [*self._appended, *self._waiting]
        self._appended = []
        self._waiting.clear()
        self._waiting_records = 0
        self.latest = self._committed
        self._newest_committed = (
            self._publications[-1].committed if self._publications else Promise.of(None)
        )
        for proposal in in_flight:
            self._shielded(partial(proposal.committed.fail, error))

    # Work beside the loop

    def _post_back(self, finish: Callable[[], None]) -> None:
        """From a worker: has the result of a job taken over on the loop thread."""
        self._finished_jobs.append(finish)
        self._post(self._finish_jobs)

    def _finish_jobs(self) -> None:
        while self._finished_jobs:
            self._finished_jobs.popleft()()

    def settle(self) -> None:
        """Waits until all that was proposed has committed or failed: for a start and an end, when
        the loop does not turn."""
        while self.has_proposals:
            self._sync_worker.drain()
            self._finish_jobs()

    # Snapshots

    def snapshot(self) -> Promise[SnapshotId]:
        """Begins a snapshot of the image; afterwards what the two newest ones make needless goes.

        If one is under way, that is the one.
        """
        return self._snapshots.begin(self.image, self.kraft_version, self.voters)

    def snapshot_if_due(self, now_ms: int) -> None:
        """Call this now and then: a snapshot that no amount of records asks for comes by time."""
        if self._snapshots.is_due_by_time(now_ms) and self._refusal is None:
            self.snapshot()

    def close(self) -> None:
        """Ends in order; the next start has little to replay. Blocks."""
        self.settle()
        if self._snapshots.is_due_at_close and self._refusal is None:
            self.snapshot()
        self.resign()
        while self._snapshots.is_under_way:
            self._sync_worker.drain()
            self._finish_jobs()
            self._snapshot_worker.drain()
            self._finish_jobs()
        self._close_workers()
        try:
            self.log.close()
        except OSError as error:
            # What it writes at the end only makes the next start quicker.
            logger.warning("%s was not closed in order: %s", self.directory, error)
            self.log.release()

    def _close_workers(self) -> None:
        self._sync_worker.close()
        self._snapshot_worker.close()


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
