"""Deliberate mistakes in replication and in the controller, to show that the simulator finds them.

Each is a context manager that makes the real code wrong in one way, as a person might. A test runs
seeds with each of them until one fails; without the bug the same seed is clean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidelog.cluster.controller.partition_changes import Elected, PartitionChange
from tidelog.cluster.metadata.quorum_member import QuorumMember
from tidelog.cluster.replication import replica_fetcher
from tidelog.cluster.replication.follower_progress import FollowerProgress
from tidelog.cluster.replication.partition import Partition, PartitionRead
from tidelog.cluster.replication.replication_state import IsrProposal, ReplicationState
from tidelog.raft.outputs import Persist
from tidelog.testing.simulation.planting import Plantation, replaced

PLANTED_BUGS = Plantation()
planted = PLANTED_BUGS.planted


@PLANTED_BUGS.plant
def commit_without_the_last_in_sync_replica() -> Iterator[None]:
    """The high watermark does not wait for one of the in-sync replicas."""

    def is_counted(self: ReplicationState, broker_id: int) -> bool:
        return broker_id in self.isr and broker_id != max(self.isr)

    with replaced(ReplicationState, "_is_counted", is_counted):
        yield


@PLANTED_BUGS.plant
def report_what_is_not_synced() -> Iterator[None]:
    """A follower's fetch says that it has what is only in its page cache."""
    with replaced(replica_fetcher._Follower, "is_durable", property(lambda self: True)):
        yield


@PLANTED_BUGS.plant
def vote_without_persisting() -> Iterator[None]:
    """Votes and epochs of the quorum are not written down."""

    def persist(self: QuorumMember, output: Persist) -> None:
        def persisted(_: object, error: OSError | None) -> None:
            self.replica.persisted(self._now_ms())

        self._submit(lambda: None, persisted)

    with replaced(QuorumMember, "_persist", persist):
        yield


@PLANTED_BUGS.plant
def serve_what_is_not_committed() -> Iterator[None]:
    """Consumers are given everything that the leader has."""
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
def take_in_followers_that_lag() -> Iterator[None]:
    """A follower is in sync with its first fetch, however far behind it is."""

    def propose(
        self: ReplicationState, replica_id: int, is_eligible: Callable[[FollowerProgress], bool]
    ) -> IsrProposal | None:
        follower = self.followers.get(replica_id)
        if (
            not self.is_leader
            or self._pending is not None
            or follower is None
            or replica_id in self.isr
            or not is_eligible(follower)
        ):
            return None
        return self._propose((*self.isr, replica_id))

    with replaced(ReplicationState, "propose_expansion", propose):
        yield


@PLANTED_BUGS.plant
def elect_outside_the_in_sync_set() -> Iterator[None]:
    """The controller lets any replica lead that is alive."""
    elect = PartitionChange._elect

    def elect_anybody(
        self: PartitionChange, replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int]
    ) -> Elected:
        return elect(self, replicas, replicas, elr)

    with replaced(PartitionChange, "_elect", elect_anybody):
        yield
