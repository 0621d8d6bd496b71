"""What one replica of a partition knows of the others, without a log and without I/O.

Inputs are the controller's records (`lead`, `follow`), the progress of the own log (`advance`), of
followers (`follower_fetched`) and of the leader (`leader_said`), time, and the controller's answers
to proposals. Outputs are return values: whether a new epoch began, whether the high watermark
moved, which change of the in-sync set to propose. The log does what follows from them; nothing else
decides about offsets.

The in-sync set (ISR) is the controller's. A change that was proposed and is not answered yet counts
where it makes things safer: the high watermark waits for the *maximal* set, the committed one and
the proposed one together, for the controller may have taken the proposal already and elected a
leader from it. While the set is smaller than the topic's `min.insync.replicas` (or than the number
of replicas, if that is smaller) nothing is committed at all, whatever producers ask for.

    high watermark <= durable end of every replica of the maximal in-sync set

It waits for followers that are about to join as well: those that have caught up lately and that the
controller would take.

A leader's high watermark never goes back within its epoch. One that begins may know less than the
leader before it did; until it has committed up to where its epoch began, `knows_end` is false and
readers must not be told where the log ends.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tidelog.cluster.metadata.image import NO_LEADER, PartitionImage
from tidelog.cluster.replication.follower_progress import UNKNOWN_BROKER_EPOCH, FollowerProgress
from tidelog.protocol.errors import ApiError, ErrorCode

NO_EPOCH = -1


class Transition(Enum):
    """What an image of the controller meant for this replica."""

    STALE = "stale"
    """Older than what is known already: nothing has changed."""
    SAME_EPOCH = "same epoch"
    NEW_EPOCH = "new epoch"


class IsrProposal(NamedTuple):
    """A change of the in-sync set that the leader asks the controller for.

    `broker_epochs` are those in which the followers of `isr` fetched when it was made, -1 where
    that is not known and for the leader itself. A later attempt must not name later ones: a
    follower that has restarted since may have lost what made it eligible.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()


class ReplicationState:
    """The state of one replica. `lead`, `follow` and `stop` say which role it has."""

    __slots__ = (
        "_pending",
        "followers",
        "high_watermark",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "node_id",
        "partition_epoch",
        "replicas",
    )

    def __init__(self, node_id: int, high_watermark: int) -> None:
        self.node_id = node_id
        self.high_watermark = high_watermark
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.leader_epoch_start_offset = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerProgress] = {}
        """Of a leader: the other replicas."""
        self._pending: IsrProposal | None = None

    # Roles

    def lead(self, image: PartitionImage, log_end_offset: int, now_ms: int) -> Transition:
        """Become, or stay, the leader."""
        was_leader, epoch_before = self.is_leader, self.leader_epoch
        if not self._take_over(image):
            return Transition.STALE
        self.is_leader = True
        starts_epoch = not was_leader or image.leader_epoch > epoch_before
        if starts_epoch:
            self.leader_epoch_start_offset = log_end_offset
            self.followers = {}
        followers = {}
        for broker_id in image.replicas:
            if broker_id == self.node_id:
                continue
            follower = self.followers.get(broker_id)
            if follower is None:
                follower = FollowerProgress(broker_id)
                follower.reset(now_ms, log_end_offset, is_in_sync=broker_id in image.isr)
            if broker_id in image.isr:
                follower.is_joining = False
            followers[broker_id] = follower
        self.followers = followers
        return Transition.NEW_EPOCH if starts_epoch else Transition.SAME_EPOCH

    def follow(self, image: PartitionImage) -> Transition:
        """Another replica leads, or none does."""
        was_leader, epoch_before = self.is_leader, self.leader_epoch
        if not self._take_over(image):
            return Transition.STALE
        self.is_leader = False
        self.followers = {}
        starts_epoch = was_leader or image.leader_epoch > epoch_before
        return Transition.NEW_EPOCH if starts_epoch else Transition.SAME_EPOCH

    def stop(self) -> None:
        """The replica leaves this node."""
        self.is_leader = False
        self.leader = NO_LEADER
        self.followers = {}
        self._pending = None

    def _take_over(self, image: PartitionImage) -> bool:
        if image.leader_epoch < self.leader_epoch or image.partition_epoch < self.partition_epoch:
            return False
        if image.partition_epoch > self.partition_epoch:
            self._pending = None  # the controller has answered, by this very image or before it
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.isr = image.isr
        return True

    # Offsets

    @property
    def knows_end(self) -> bool:
        """Whether all that the leaders before had committed is known to be committed."""
        return self.high_watermark >= self.leader_epoch_start_offset

    def advance(self, durable_offset: int, min_insync_replicas: int) -> bool:
        """The leader's own log is durable up to there; says whether the high watermark moved.

        Cost without followers: a few attribute reads.
        """
        if not self.is_leader:
            return False
        high_watermark = durable_offset
        if self.followers:
            if len(self.isr) < min(min_insync_replicas, len(self.replicas)):
                return False
            for broker_id, follower in self.followers.items():
                if self.awaits(broker_id) and follower.log_end_offset < high_watermark:
                    high_watermark = follower.log_end_offset
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True

    def awaits(self, broker_id: int) -> bool:
        """Of a leader: whether the high watermark waits for a replica, which is in the maximal
        in-sync set, or about to be."""
        if broker_id in self.isr:
            return True
        pending = self._pending
        if pending is not None and broker_id in pending.isr:
            return True
        follower = self.followers.get(broker_id)
        return follower is not None and follower.is_joining

    @property
    def maximal_isr_size(self) -> int:
        """How many replicas the committed and the proposed in-sync set have together."""
        pending = self._pending
        if pending is None:
            return len(self.isr)
        return len({*self.isr, *pending.isr})

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Below it no live replica has records any more; `log_start_offset` is the leader's."""
        for broker_id, follower in self.followers.items():
            if follower.log_start_offset < log_start_offset and is_alive(broker_id):
                log_start_offset = follower.log_start_offset
        return log_start_offset

    def leader_said(self, high_watermark: int, log_start_offset: int, log_end_offset: int) -> bool:
        """A follower's high watermark is the leader's, as far as its own log goes; it may go back
        when a leader begins that knows less. Says whether it moved."""
        high_watermark = max(log_start_offset, min(high_watermark, log_end_offset))
        moved = high_watermark != self.high_watermark
        self.high_watermark = high_watermark
        return moved

    def truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        """A follower's log was cut: it agrees with its leader up to there now. One that starts over
        begins where its leader does, and what leaders delete was committed."""
        self.high_watermark = max(log_start_offset, min(self.high_watermark, log_end_offset))

    # Followers and the in-sync set

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> bool:
        """A follower asks for `fetch_offset` of this leader's log, which ends at `log_end_offset`:
        it has everything below it durable. Says whether its log starts elsewhere now. Raises
        ApiError when it is no replica."""
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {replica_id} is no replica of this leader"
            )
        start_moved = log_start_offset != follower.log_start_offset
        follower.record_fetch(fetch_offset, log_start_offset, log_end_offset, now_ms, broker_epoch)
        return start_moved

    def note_joining(
        self,
        log_end_offset: int,
        now_ms: int,
        lag_ms_max: int,
        is_eligible: Callable[[FollowerProgress], bool],
    ) -> None:
        """Look which followers the high watermark has to wait for before they are in sync. To be
        called when one of those that are not in sync fetches, and from time to time."""
        for broker_id, follower in self.followers.items():
            follower.is_joining = (
                broker_id not in self.isr
                and follower.is_caught_up(log_end_offset, now_ms, lag_ms_max)
                and is_eligible(follower)
            )

    @property
    def has_proposal(self) -> bool:
        """Whether a change of the in-sync set is on its way."""
        return self._pending is not None

    def is_pending(self, proposal: IsrProposal) -> bool:
        """Whether nothing has come in place of a proposal."""
        return self._pending == proposal

    def propose_expansion(
        self, replica_id: int, is_eligible: Callable[[FollowerProgress], bool]
    ) -> IsrProposal | None:
        """Add a follower that has caught up with all that is committed, and with this epoch.

        `is_eligible` says whether the controller would take it: neither fenced nor shutting down,
        and of the broker epoch that its fetch came from. None while a proposal is on its way.
        """
        follower = self.followers.get(replica_id)
        if (
            not self.is_leader
            or self._pending is not None
            or follower is None
            or replica_id in self.isr
            or follower.log_end_offset < max(self.high_watermark, self.leader_epoch_start_offset)
            or not is_eligible(follower)
        ):
            return None
        return self._propose((*self.isr, replica_id))

    def propose_shrinking(
        self, log_end_offset: int, now_ms: int, lag_ms_max: int
    ) -> IsrProposal | None:
        """Take out followers that have not caught up for too long."""
        if not self.is_leader or self._pending is not None:
            return None
        kept = tuple(
            broker_id
            for broker_id in self.isr
            if broker_id == self.node_id
            or self.followers[broker_id].is_caught_up(log_end_offset, now_ms, lag_ms_max)
        )
        return None if kept == self.isr else self._propose(kept)

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        epochs = tuple(
            UNKNOWN_BROKER_EPOCH
            if broker_id == self.node_id
            else self.followers[broker_id].broker_epoch
            for broker_id in isr
        )
        self._pending = IsrProposal(self.leader_epoch, self.partition_epoch, isr, epochs)
        return self._pending

    def proposal_refused(self, proposal: IsrProposal) -> None:
        """The controller has said no and nothing has changed. When it may have said yes, an image
        tells, and until then the proposal counts."""
        if self._pending == proposal:
            self._pending = None
