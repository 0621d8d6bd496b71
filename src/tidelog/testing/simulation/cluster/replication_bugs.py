"""Deliberate mistakes in replication: in-sync sets, high watermarks, truncations, leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication import replica_fetcher
from tidelog.cluster.replication.follower_progress import FollowerProgress
from tidelog.cluster.replication.partition import EpochEnd, Partition
from tidelog.cluster.replication.replica_fetcher import ReplicaFetcher
from tidelog.cluster.replication.replication_state import IsrProposal, ReplicationState
from tidelog.cluster.replication.waiting import Waiting
from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.server.delayed import DelayedProduce
from tidelog.storage.append_result import AppendResult
from tidelog.storage.local_log import LocalLog
from tidelog.storage.log import Log
from tidelog.storage.producer_state.producer_state import ProducerStates
from tidelog.testing.simulation.planting import Plantation, replaced

REPLICATION_BUGS = Plantation()


# Who is in sync


@REPLICATION_BUGS.plant
def commit_without_the_last_in_sync_replica() -> Iterator[None]:
    """The high watermark does not wait for one of the in-sync replicas."""

    def is_counted(self: ReplicationState, broker_id: int) -> bool:
        return broker_id in self.isr and broker_id != max(self.isr)

    with replaced(ReplicationState, "awaits", is_counted):
        yield


@REPLICATION_BUGS.plant
def commit_with_the_proposed_in_sync_set() -> Iterator[None]:
    """The high watermark waits for the in-sync set that was proposed, before it is agreed to."""

    def is_counted(self: ReplicationState, broker_id: int) -> bool:
        isr = self.isr if self._pending is None else self._pending.isr
        return broker_id in isr or self.followers[broker_id].is_joining

    with replaced(ReplicationState, "awaits", is_counted):
        yield


@REPLICATION_BUGS.plant
def commit_without_those_who_join() -> Iterator[None]:
    """The high watermark waits for the agreed in-sync set only, while a follower is let in."""

    def is_counted(self: ReplicationState, broker_id: int) -> bool:
        return broker_id in self.isr

    with replaced(ReplicationState, "awaits", is_counted):
        yield


@REPLICATION_BUGS.plant
def commit_below_min_insync_replicas() -> Iterator[None]:
    """The high watermark moves though fewer replicas are in sync than the topic asks for."""
    advance = ReplicationState.advance

    def advance_always(
        self: ReplicationState, durable_offset: int, min_insync_replicas: int
    ) -> bool:
        return advance(self, durable_offset, 1)

    with replaced(ReplicationState, "advance", advance_always):
        yield


@REPLICATION_BUGS.plant
def take_in_followers_that_lag() -> Iterator[None]:
    """A follower is in sync with its first fetch, however far behind it is."""
    with replaced(ReplicationState, "propose_expansion", _propose_from(lambda self: 0)):
        yield


@REPLICATION_BUGS.plant
def take_in_followers_before_the_epoch_start() -> Iterator[None]:
    """A new leader takes in who has its high watermark, which is behind what is committed."""
    propose = _propose_from(lambda self: self.high_watermark)
    with replaced(ReplicationState, "propose_expansion", propose):
        yield


def _propose_from(
    needed_offset: Callable[[ReplicationState], int],
) -> Callable[..., IsrProposal | None]:
    """`propose_expansion` with another idea of how far a follower must be."""

    def propose(
        self: ReplicationState, replica_id: int, is_eligible: Callable[[FollowerProgress], bool]
    ) -> IsrProposal | None:
        follower = self.followers.get(replica_id)
        if (
            not self.is_leader
            or self._pending is not None
            or follower is None
            or replica_id in self.isr
            or follower.log_end_offset < needed_offset(self)
            or not is_eligible(follower)
        ):
            return None
        return self._propose((*self.isr, replica_id))

    return propose


@REPLICATION_BUGS.plant
def count_followers_at_the_leaders_end() -> Iterator[None]:
    """A new leader takes its followers to have everything that it has itself."""
    reset = FollowerProgress.reset

    def reset_to_end(
        self: FollowerProgress, now_ms: int, log_end_offset: int, *, is_in_sync: bool
    ) -> None:
        reset(self, now_ms, log_end_offset, is_in_sync=is_in_sync)
        self.log_end_offset = log_end_offset

    with replaced(FollowerProgress, "reset", reset_to_end):
        yield


# What followers report and keep


@REPLICATION_BUGS.plant
def report_what_is_not_synced() -> Iterator[None]:
    """A follower's fetch says that it has what is only in its page cache."""
    with replaced(replica_fetcher._Follower, "is_durable", property(lambda self: True)):
        yield


@REPLICATION_BUGS.plant
def truncate_to_the_high_watermark() -> Iterator[None]:
    """A follower of a new leader cuts its log at its high watermark, as Kafka did before 0.11."""
    follow = ReplicaFetcher.follow

    def cut_and_follow(self: ReplicaFetcher, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition)
        known = self._followers.get(key)
        follow(self, partition)
        follower = self._followers[key]
        if follower is not known and partition.high_watermark < partition.log_end_offset:
            self._cut(follower, partition.high_watermark)

    with replaced(ReplicaFetcher, "follow", cut_and_follow):
        yield


@REPLICATION_BUGS.plant
def append_behind_what_diverges() -> Iterator[None]:
    """A leader does not notice that a follower's log went another way."""

    def nothing(self: Partition, fetch_offset: int, last_fetched_epoch: int) -> None:
        return None

    with replaced(Partition, "_diverging_epoch", nothing):
        yield


@REPLICATION_BUGS.plant
def cut_one_batch_too_few() -> Iterator[None]:
    """A follower whose log diverges keeps the first of the batches that do."""
    divergence = Partition.divergence

    def too_late(self: Partition, leader_end: EpochEnd) -> int:
        offset = divergence(self, leader_end)
        return min(offset + 1, self.log_end_offset)

    with replaced(Partition, "divergence", too_late):
        yield


@REPLICATION_BUGS.plant
def believe_the_leaders_high_watermark() -> Iterator[None]:
    """A follower's high watermark is its leader's, though its own log does not go so far."""

    def believe(
        self: ReplicationState, high_watermark: int, log_start_offset: int, log_end_offset: int
    ) -> bool:
        moved = high_watermark != self.high_watermark
        self.high_watermark = high_watermark
        return moved

    with replaced(ReplicationState, "leader_said", believe):
        yield


@REPLICATION_BUGS.plant
def trust_the_end_of_the_log_after_a_start() -> Iterator[None]:
    """A node that starts takes everything in its logs to be committed."""
    initialize = Partition.__init__

    def trusting(self: Partition, *arguments: Any, high_watermark: int = 0) -> None:
        initialize(self, *arguments, high_watermark=1 << 62)

    with replaced(Partition, "__init__", trusting):
        yield


@REPLICATION_BUGS.plant
def forget_producers_on_followers() -> Iterator[None]:
    """A follower does not keep what it needs to know duplicates once it leads."""
    append = Partition.append_as_follower

    def forgetful(self: Partition, batches: memoryview) -> int:
        taken = append(self, batches)
        for producer_id, state in list(self.log.producers.producers.items()):
            if state.transaction_first_offset < 0:
                del self.log.producers.producers[producer_id]
        return taken

    with replaced(Partition, "append_as_follower", forgetful):
        yield


@REPLICATION_BUGS.plant
def keep_producers_over_a_truncation() -> Iterator[None]:
    """A log that is cut goes on to know its producers by batches that it has not got any more."""

    def keep(self: LocalLog, log_start_offset: int, log_end_offset: int) -> None:
        self.producers.map_end_offset = log_end_offset
        self.leader_epochs.truncate_to(log_end_offset)

    with replaced(LocalLog, "restore", keep):
        yield


@REPLICATION_BUGS.plant
def keep_producers_of_an_emptied_log() -> Iterator[None]:
    """A log that starts over goes on to know its producers."""

    def keep(self: ProducerStates, offset: int) -> None:
        self.map_end_offset = offset

    with replaced(ProducerStates, "clear", keep):
        yield


# Leader epochs


@REPLICATION_BUGS.plant
def stamp_no_leader_epoch() -> Iterator[None]:
    """Leaders write the batches of all epochs with the same one."""
    append = Log.append_as_leader

    def unstamped(
        self: Log, batches: memoryview, leader_epoch: int, *arguments: Any, **options: Any
    ) -> AppendResult:
        if self.topic_partition.topic != CLUSTER_METADATA_TOPIC:
            leader_epoch = 0
        return append(self, batches, leader_epoch, *arguments, **options)

    with replaced(Log, "append_as_leader", unstamped):
        yield


@REPLICATION_BUGS.plant
def obey_images_of_older_epochs() -> Iterator[None]:
    """A deposed leader goes on to lead: it ignores that others follow another one."""
    follow = Partition.follow

    def keep_leading(self: Partition, image: PartitionImage) -> None:
        if not self.is_leader:
            follow(self, image)

    with replaced(Partition, "follow", keep_leading):
        yield


@REPLICATION_BUGS.plant
def answer_when_the_leader_has_it() -> Iterator[None]:
    """A producer that asks for all in-sync replicas is answered when the leader has synced."""
    wait = DelayedProduce.wait

    def wait_for_leader(
        self: DelayedProduce,
        waiting: Waiting,
        acks: int,
        appended: list[tuple[int, Partition, int]],
        deadline: float,
    ) -> None:
        wait(self, waiting, 1, appended, deadline)

    with replaced(DelayedProduce, "wait", wait_for_leader):
        yield


# What consumers see


@REPLICATION_BUGS.plant
def tell_the_end_before_the_epoch_start() -> Iterator[None]:
    """A new leader tells where the log ends before it knows what was committed before it."""
    with replaced(ReplicationState, "knows_end", property(lambda self: True)):
        yield


@REPLICATION_BUGS.plant
def serve_open_transactions() -> Iterator[None]:
    """Readers of committed records are given everything below the high watermark."""
    stable = property(lambda self: self.high_watermark)
    with replaced(Partition, "last_stable_offset", stable):
        yield
