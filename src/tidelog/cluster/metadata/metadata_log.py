"""The metadata log: `__cluster_metadata-0`, where every decision becomes a fact.

A decision is proposed, and its proposal commits or fails. Committed it is when the quorum has it;
then the image is replaced, then listeners hear of it, then the one who proposed. What is proposed
while the disk works waits and shares the next sync. `latest` is what decisions build on: the image
with everything that is proposed. When the disk refuses something, or leadership goes, all that is
in flight fails and `latest` goes back to what is committed.

Only the leader of the quorum takes proposals (`is_active`). On the other nodes the same records
come from the leader, and the image follows what is committed of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tidelog.cluster.features import (
    DEFAULT_LEVELS,
    KRAFT_VERSION,
    METADATA_VERSION,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    UNSERVED_FEATURES,
    LevelRange,
)
from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.image_difference import image_difference
from tidelog.cluster.metadata.metadata_loading import MetadataLogError, open_metadata
from tidelog.cluster.metadata.metadata_replay import LogReplay
from tidelog.cluster.metadata.metadata_snapshot import Snapshot, read_snapshot
from tidelog.cluster.metadata.proposal import Proposal, encode_group, take_group
from tidelog.cluster.metadata.quorum_member import CallLater, QuorumMember, SendRequest
from tidelog.cluster.metadata.records.framing import encode_record
from tidelog.cluster.metadata.records.log_control import AbortTransactionRecord, NoOpRecord
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.cluster.metadata.records.topics import RemoveTopicRecord
from tidelog.cluster.metadata.replicated_log import ReplicatedLog
from tidelog.cluster.metadata.snapshotting import SnapshotOptions, Snapshotting
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.raft.local_node import LocalNode
from tidelog.raft.quorum import NotAppended
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import Endpoints, ReplicaKey, VoterNode, VoterSet
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log import Log
from tidelog.world import World
from tidelog.world.workers import OnCrash, log_crash

logger = logging.getLogger(__name__)

# A disk that is behind by more than this is told from one that is slow for a moment.
WAITING_RECORDS_MAX = 100_000
NO_LEADER_ID = -1

Listener = Callable[[MetadataImage, MetadataImage, MetadataDelta], None]
Post = Callable[[Callable[[], None]], None]


def _log_exception() -> None:
    logger.exception("a listener of the metadata has failed")


class MetadataLog:
    """Make one with `load` and have it take part in a quorum with `join`; `open` does both for a
    node that is the whole quorum. All of it belongs to the loop thread.

    image: what is committed. latest: also what is proposed and in flight; decide on it.
    """

    quorum: QuorumMember

    def __init__(
        self,
        world: World,
        directory: Path,
        log: Log,
        options: SnapshotOptions,
        supported_features: Mapping[str, LevelRange],
        initial_levels: Mapping[str, int],
        post: Post,
        on_crash: OnCrash,
        on_exception: Callable[[], None],
    ) -> None:
        self.log = log
        self.directory = directory
        self.image = self.latest = MetadataImage()
        self.leader_id = NO_LEADER_ID
        self.leader_epoch = 0
        self.is_active = False
        """Whether this node leads the quorum and knows all that the leaders before committed."""
        self.high_watermark = 0
        """Everything below it is committed, and in the image."""
        self.may_forget_removals: Callable[[], bool] = lambda: True
        """Whether the logs of all removed topics are gone for good: until then a start has to find
        the removals, and no part of the log is dropped."""
        self.listeners: list[Listener] = []
        self.leader_listeners: list[Callable[[], None]] = []
        """Hear when another node leads, or none, or this one becomes or ceases to be active."""
        self.failure: MetadataLogError | None = None
        """Why the image cannot follow the log any more, if that is so."""
        self._world = world
        self._files = world.files
        self._clock = world.wall_ms
        self._supported_features = supported_features
        self._initial_levels = initial_levels
        self._post = post
        self._on_crash = on_crash
        self._on_exception = on_exception
        self._replicated = ReplicatedLog(world, directory, log)
        self._replay = LogReplay(log, world.files)
        # In the order of the log: groups of proposals that the quorum has, and what waits.
        self._appended: deque[list[Proposal]] = deque()
        self._waiting: deque[Proposal] = deque()
        self._waiting_records = 0
        self._newest_committed: Promise[None] = Promise.of(None)  # of what `latest` is made of
        self._refusal: ApiError | None = self._not_active()  # why nothing can be proposed
        self._finished_jobs: deque[Callable[[], None]] = deque()
        self._sync_worker = world.start_worker(f"tidelog-metadata {directory}", on_crash)
        self._snapshot_worker = world.start_worker("tidelog-metadata-snapshots", on_crash)
        self._options = options

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        world: World,
        node_id: int,
        founder: VoterNode | None = None,
        static_voter_ids: Sequence[int] = (),
        post: Post = lambda call: call(),
        on_crash: OnCrash = log_crash,
        on_exception: Callable[[], None] = _log_exception,
        options: SnapshotOptions | None = None,
        initial_levels: Mapping[str, int] = DEFAULT_LEVELS,
        supported_features: Mapping[str, LevelRange] = SUPPORTED_FEATURES,
    ) -> MetadataLog:
        """Opens what is there, up to the newest snapshot; what the log says beyond it counts when
        the quorum has said that it is committed.

        `static_voter_ids` are the voters by configuration, for a log that names none. In a
        directory without metadata a new cluster begins with `founder` as its only voter, and with
        the features at `initial_levels`, metadata.version among them. `post` schedules a call
        on the loop thread. `on_exception` is called while the exception of a listener, or of
        somebody who waits for a proposal, is being handled. Raises MetadataLogError,
        CorruptFileError, OSError.
        """
        log, snapshot_id, snapshot = open_metadata(
            directory, world, node_id, founder, static_voter_ids
        )
        metadata = cls(
            world,
            directory,
            log,
            options or SnapshotOptions(),
            supported_features,
            initial_levels,
            post,
            on_crash,
            on_exception,
        )
        try:
            metadata.image = metadata.latest = metadata._image_of(snapshot_id, snapshot)
            metadata.high_watermark = snapshot_id.offset
        except BaseException:
            metadata._close_workers()
            log.release()
            raise
        return metadata

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        node_id: int,
        directory_id: bytes,
        world: World,
        endpoints: Endpoints = (),
        post: Post = lambda call: call(),
        on_crash: OnCrash = log_crash,
        on_exception: Callable[[], None] = _log_exception,
        options: SnapshotOptions | None = None,
        initial_levels: Mapping[str, int] = DEFAULT_LEVELS,
        supported_features: Mapping[str, LevelRange] = SUPPORTED_FEATURES,
    ) -> MetadataLog:
        """The metadata of a node that is the whole quorum, and leads it.

        Raises as `load` does, and ApiError when the disk does not take the first records.
        """
        voter = VoterNode(ReplicaKey(node_id, directory_id), endpoints)
        metadata = cls.load(
            directory,
            world=world,
            node_id=node_id,
            founder=voter,
            post=post,
            on_crash=on_crash,
            on_exception=on_exception,
            options=options,
            initial_levels=initial_levels,
            supported_features=supported_features,
        )
        local = LocalNode(voter.key, endpoints, "", "", static_voters=VoterSet([voter]))
        try:
            metadata.join(local, QuorumSettings())
            metadata.settle_start()
        except BaseException:
            metadata.abandon()
            raise
        return metadata

    def join(
        self,
        local: LocalNode,
        settings: QuorumSettings,
        call_later: CallLater | None = None,
        send: SendRequest | None = None,
    ) -> None:
        """Take part in the quorum. Raises QuorumStateError and OSError."""
        self.quorum = QuorumMember(
            self._world,
            self._replicated,
            local,
            settings,
            self,
            self._sync_worker,
            self._post_back,
            call_later,
            send,
        )
        self._snapshots = Snapshotting(
            self._world,
            self.directory,
            self.log,
            self.quorum,
            self._options,
            self._snapshot_worker,
            self._post_back,
            lambda: self.may_forget_removals(),
        )
        self.quorum.start()

    def settle_start(self) -> None:
        """Waits, at a start and before the loop turns, until the disk has nothing more to do: a
        node that is the whole quorum leads it then, and has committed its first records.

        Raises MetadataLogError, and ApiError when the disk does not take them.
        """
        first = self._newest_committed
        self.settle()
        if self.failure is not None:
            raise self.failure
        if self.quorum.refusal is not None:
            raise self.quorum.refusal
        if self.quorum.persist_error is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.quorum.persist_error))
        if self.quorum.voters.is_only_voter(self.quorum.replica.quorum.key):
            if not self.is_active:
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self.directory}: the disk does not take the first records of an epoch",
                )
            for promise in (first, self._newest_committed):
                promise.result()

    def fill_reserve(self) -> None:
        """To be called about once a second: keeps room for when the disk is full."""
        try:
            self._replicated.reserve.fill()
        except OSError as error:
            # What is wrong with the disk, an append or a sync will say.
            logger.debug("no reserve of room in %s: %s", self.directory, error)

    # What the quorum says: quorum_member.QuorumListener

    def committed(self, high_watermark: int) -> None:
        if self.failure is not None:
            return
        if self.is_active:
            self.high_watermark = high_watermark
            self._pass_control_records()
            return
        before = self.image
        try:
            replayed = self._replay.read(before.offset + 1, high_watermark)
            after, delta = before.apply(
                replayed.records,
                high_watermark - 1,
                max(before.epoch, replayed.epoch),
                max(before.timestamp_ms, replayed.timestamp_ms),
            )
            if replayed.kraft_version is not None:
                after = after.with_kraft_version(replayed.kraft_version)
            self._check_supported(after)
        except MetadataReplayError as error:
            self._fail(MetadataLogError(f"{self.directory} is not whole: {error}"))
            return
        except MetadataLogError as error:
            self._fail(error)
            return
        except (OSError, ApiError) as error:
            self._fail(MetadataLogError(f"{self.directory} cannot be read: {error}"))
            return
        self.high_watermark = high_watermark
        self._snapshots.note(replayed.size_bytes, len(replayed.records))
        self.latest = after
        self._publish(after, delta)
        self._snapshot_if_due()

    def leader_changed(self, leader_id: int | None, epoch: int) -> None:
        self.leader_id = NO_LEADER_ID if leader_id is None else leader_id
        self.leader_epoch = epoch
        was_active, self.is_active = self.is_active, False
        if leader_id == self.quorum.replica.quorum.key.id and self.failure is None:
            self._activate()
        elif was_active:
            self._refusal = self._not_active()
            self._fail_in_flight(self._refusal)
        for listener in tuple(self.leader_listeners):
            self._shielded(listener)

    def _activate(self) -> None:
        """This node leads; a new cluster gets its first records."""
        self.is_active = True
        self._refusal = None
        self.latest = self.image
        self._newest_committed = Promise.of(None)
        records: list[Message] = []
        if self._replay.open_transaction_offset is not None:
            # What follows in the log would belong to a transaction that another software left open.
            records.append(AbortTransactionRecord(reason="Controller failover"))
            self._replay.restart()
        if not self.image.metadata_version:
            records += [
                FeatureLevelRecord(name=name, feature_level=level)
                for name, level in self._initial_levels.items()
            ]
        if records:
            self.propose(records)

    def _not_active(self) -> ApiError:
        leads = "no node" if self.leader_id < 0 else f"node {self.leader_id}"
        return ApiError(ErrorCode.NOT_CONTROLLER, f"this node is not the controller; {leads} is")

    def proposal_ended(self, token: object, error: ApiError | None) -> None:
        if error is not None:
            self._not_committed(token, error)
            return
        group = self._appended.popleft()
        assert group is token, "proposals commit in the order of the log"
        for proposal in group:
            self._snapshots.note(sum(map(len, proposal.values)), len(proposal.values))
        for proposal in group:
            self._publish(proposal.after, proposal.delta)
            self._shielded(partial(proposal.committed.resolve, None))
        self._pass_control_records()
        self._snapshot_if_due()

    def _not_committed(self, token: object, error: ApiError) -> None:
        if not any(group is token for group in self._appended):
            return  # it has failed already, with those before it
        if isinstance(error, NotAppended) and self._appended[-1] is token:
            # The disk is full. What is built on it has to go too; later there may be room.
            self._waiting.extendleft(reversed(self._appended.pop()))
            self._fail_waiting(error)
        else:
            # Leadership has gone: nobody knows what becomes of what is in the log.
            self._refusal = ApiError(ErrorCode.NOT_CONTROLLER, error.message)
            self._fail_in_flight(self._refusal)

    def synced(self) -> None:
        self._append_waiting()

    def prepare_load(self, snapshot_id: SnapshotId) -> Callable[[], Callable[[], None]]:
        def load() -> Callable[[], None]:
            try:
                snapshot = read_snapshot(self._files, self.directory, snapshot_id)
                image = self._image_of(snapshot_id, snapshot)
            except (CorruptFileError, MetadataLogError) as error:
                return partial(self._fail, MetadataLogError(f"the snapshot of the leader: {error}"))
            return partial(self._take_over, image)

        return load

    def _take_over(self, image: MetadataImage) -> None:
        self._replay.restart()
        self.high_watermark = image.offset + 1
        before, self.latest = self.image, image
        self._publish(image, image_difference(before, image))

    def stopped(self, error: ApiError) -> None:
        self.is_active = False
        self._refusal = error
        self._fail_in_flight(error)
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            logger.error("%s", error.message)
            if len(self.quorum.voters) > 1 and self.failure is None:
                # The others go on without this node, which would know less and less of them.
                self._on_crash("tidelog-metadata", error)
        for listener in tuple(self.leader_listeners):
            self._shielded(listener)

    def _fail(self, error: MetadataLogError) -> None:
        """The image cannot follow the log: the node has to end."""
        self.failure = error
        self.quorum.stop(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self._on_crash("tidelog-metadata", error)

    # Images

    def _image_of(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> MetadataImage:
        image = MetadataImage()
        try:
            if snapshot.records:
                image, _ = image.apply(
                    snapshot.records,
                    snapshot_id.offset - 1,
                    snapshot_id.epoch,
                    snapshot.timestamp_ms,
                )
        except MetadataReplayError as error:
            raise MetadataLogError(f"{self.directory} is not whole: {error}") from error
        self._check_supported(image)
        image = image.at(snapshot_id.offset - 1, snapshot_id.epoch, snapshot.timestamp_ms)
        return image.with_kraft_version(snapshot.kraft_version)

    def removed_topic_ids(self) -> frozenset[bytes]:
        """The topics that the log removes, as far back as it goes, which is before the newest
        snapshot. Cost: reads all of the log. Raises MetadataLogError."""
        try:
            replayed = LogReplay(self.log, self._files).read(
                self.log.log_start_offset, self.high_watermark
            )
        except MetadataReplayError as error:
            raise MetadataLogError(f"{self.directory} is not whole: {error}") from error
        return frozenset(
            record.topic_id for record in replayed.records if isinstance(record, RemoveTopicRecord)
        )

    def _check_supported(self, image: MetadataImage) -> None:
        for feature, level in image.features.items():
            supported = self._supported_features.get(feature, NOT_SUPPORTED)
            if level not in supported and feature not in UNSERVED_FEATURES:
                raise MetadataLogError(
                    f"{self.directory} is at {feature} {level}; this software supports "
                    f"{supported}. Use the software that wrote it, if only to lower the level."
                )

    def _publish(self, after: MetadataImage, delta: MetadataDelta) -> None:
        before, self.image = self.image, after
        for listener in tuple(self.listeners):
            self._shielded(partial(listener, before, after, delta))

    def _pass_control_records(self) -> None:
        """The quorum's own records lie between decisions, and change nothing of the image."""
        end_offset = self.high_watermark
        if self._appended:
            end_offset = min(end_offset, self._appended[0][0].first_offset)
        image = self.image
        if image.offset + 1 < end_offset:
            level = self.quorum.kraft_version_at(end_offset - 1)
            self.image = image.at(end_offset - 1, self.leader_epoch, image.timestamp_ms)
            if level != image.finalized_level(KRAFT_VERSION):
                self.image = self.image.with_kraft_version(level)
            if not self._appended and not self._waiting:
                self.latest = self.image

    def _shielded(self, call: Callable[[], None]) -> None:
        """What one of those who are told raises must not keep it from the others."""
        try:
            call()
        except Exception:  # noqa: BLE001 - it is told
            self._on_exception()

    # Proposing

    @property
    def kraft_version(self) -> int:
        return self.image.finalized_level(KRAFT_VERSION)

    @property
    def next_offset(self) -> int:
        """The offset that the first record of the next proposal gets."""
        return self.latest.offset + 1 if self._waiting else self.log.log_end_offset

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
        now_ms = self._clock()
        refusal = self._refusal
        upgrades = kraft_version > self.latest.finalized_level(KRAFT_VERSION)
        if refusal is None and self._waiting_records + len(records) > WAITING_RECORDS_MAX:
            refusal = ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: the disk does not keep up"
            )
        if refusal is None and upgrades:
            refusal = self._upgrade(kraft_version)
            records = records or [NoOpRecord()]
        latest = self.latest
        if refusal is not None:
            return Proposal(
                latest, MetadataDelta(), (), now_ms, 0, committed=Promise.failed(refusal)
            )
        if not records:
            return Proposal(
                latest, MetadataDelta(), (), now_ms, 0, committed=self._newest_committed
            )
        first_offset = self.next_offset
        after, delta = latest.apply(
            records,
            first_offset + len(records) - 1,
            self.leader_epoch,
            # As the others replay it, whose clocks may be ahead.
            max(latest.timestamp_ms, now_ms),
        )
        if upgrades:
            after = after.with_kraft_version(kraft_version)
        metadata_version = self._metadata_version_for(records)
        values = [encode_record(record, metadata_version) for record in records]
        proposal = Proposal(after, delta, values, now_ms, first_offset)
        self.latest = after
        self._newest_committed = proposal.committed
        self._waiting.append(proposal)
        self._waiting_records += len(values)
        self._append_waiting()
        return proposal

    def _upgrade(self, kraft_version: int) -> ApiError | None:
        """The quorum's own level is its own record, in front of the decision's."""
        if self._waiting:
            return ApiError(ErrorCode.NOT_CONTROLLER, "other changes are under way; try again")
        try:
            self.quorum.upgrade_kraft_version(kraft_version)
        except ApiError as error:
            return error
        return None

    def _metadata_version_for(self, records: Sequence[Message]) -> int:
        """The version that records are written in, which they may set themselves."""
        for record in records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                return record.feature_level
        return self.latest.metadata_version

    def _append_waiting(self) -> None:
        """The quorum takes what waits, unless the disk is busy with what it has already."""
        if not self._waiting or not self.quorum.is_synced:
            return
        if self._waiting[0].first_offset != self.log.log_end_offset:
            # A record of the quorum itself has got in between, and decisions know their offsets.
            self._fail_waiting(
                ApiError(ErrorCode.NOT_CONTROLLER, "the quorum has changed meanwhile; try again")
            )
            return
        group = take_group(self._waiting)
        self._waiting_records -= sum(len(proposal.values) for proposal in group)
        self._appended.append(group)
        try:
            self.quorum.propose(encode_group(group), group)
        except BaseException as bug:
            # Nobody knows what the log holds now, and no sync will tell how this ends.
            self.quorum.stop(
                ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"an append to the metadata log {self.directory} failed "
                    f"({type(bug).__name__}: {bug}): the node has to be restarted",
                )
            )
            raise

    # Failing

    def _fail_in_flight(self, error: ApiError) -> None:
        """Takes back what is decided and not committed."""
        appended, self._appended = self._appended, deque()
        waiting, self._waiting = self._waiting, deque()
        self._waiting_records = 0
        self.latest = self.image
        self._newest_committed = Promise.of(None)
        for proposal in [*(each for group in appended for each in group), *waiting]:
            self._shielded(partial(proposal.committed.fail, error))

    def _fail_waiting(self, error: ApiError) -> None:
        """Takes back what is decided and in no log yet."""
        waiting, self._waiting = self._waiting, deque()
        self._waiting_records = 0
        newest = self._appended[-1][-1] if self._appended else None
        self.latest = self.image if newest is None else newest.after
        self._newest_committed = Promise.of(None) if newest is None else newest.committed
        for proposal in waiting:
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
        """Waits until the disk has nothing more to do: for a start and an end, when the loop does
        not turn. A quorum of one node has committed or failed all that was proposed then."""
        while self.quorum.has_jobs or self._finished_jobs:
            self._sync_worker.drain()
            self._finish_jobs()

    # Snapshots

    def snapshot(self) -> Promise[SnapshotId]:
        """Begins a snapshot of the image; afterwards what the two newest ones make needless goes.

        If one is under way, that is the one.
        """
        offset = self.image.offset
        voters = self.quorum.voters_at(offset).to_record().voters
        return self._snapshots.begin(self.image, self.quorum.kraft_version_at(offset), voters)

    def _snapshot_if_due(self) -> None:
        if self._snapshots.is_due and self.quorum.refusal is None:
            self.snapshot()

    def snapshot_if_due(self, now_ms: int) -> None:
        """Call this now and then: a snapshot that no amount of records asks for comes by time."""
        if self._snapshots.is_due_by_time(now_ms) and self.quorum.refusal is None:
            self.snapshot()

    # The end

    def close(self) -> None:
        """Ends in order; the next start has little to replay. Blocks."""
        self.settle()
        if self._snapshots.is_due_at_close and self.quorum.refusal is None:
            self.snapshot()
            self._finish_snapshot()
        self.quorum.stop(ApiError(ErrorCode.NOT_CONTROLLER, "the node stops"))
        self._finish_snapshot()  # one that the replica's end has cut off
        self._close_workers()
        try:
            self.log.close()
        except OSError as error:
            # What it writes at the end only makes the next start quicker.
            logger.warning("%s was not closed in order: %s", self.directory, error)
            self.log.release()

    def _finish_snapshot(self) -> None:
        while self._snapshots.is_under_way:
            self._sync_worker.drain()
            self._finish_jobs()
            self._snapshot_worker.drain()
            self._finish_jobs()

    def abandon(self) -> None:
        """Ends after a start that failed."""
        self._close_workers()
        self.log.release()

    def _close_workers(self) -> None:
        self._sync_worker.close()
        self._snapshot_worker.close()
