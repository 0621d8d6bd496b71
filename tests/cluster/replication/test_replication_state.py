"""What a replica decides: roles, the high watermark, and whom to take into the in-sync set."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.cluster.replication.test_partition import NOW, code_of, state
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.replication_state import IsrProposal, ReplicationState, Transition
from tidelog.protocol.errors import ApiError, ErrorCode

LAG_MS = 30_000


def leading(**image: object) -> ReplicationState:
    """Node 1 leads three replicas, all in sync, with nothing in the log."""
    replica = ReplicationState(1, 0)
    replica.lead(state(**{"replicas": (1, 2, 3), **image}), 0, NOW)  # type: ignore[arg-type]
    return replica


def everybody(_: object) -> bool:
    return True


def test_an_image_is_a_new_epoch_the_same_or_stale() -> None:
    replica = ReplicationState(1, 0)
    assert replica.lead(state(leader_epoch=3, partition_epoch=5), 0, NOW) is Transition.NEW_EPOCH
    again = state(leader_epoch=3, partition_epoch=6)
    assert replica.lead(again, 7, NOW) is Transition.SAME_EPOCH
    assert replica.leader_epoch_start_offset == 0
    assert replica.lead(state(leader_epoch=2, partition_epoch=9), 7, NOW) is Transition.STALE
    assert replica.follow(state(leader=2, leader_epoch=4, partition_epoch=5)) is Transition.STALE
    newer = state(leader=2, leader_epoch=4, partition_epoch=7)
    assert replica.follow(newer) is Transition.NEW_EPOCH
    assert replica.follow(newer._replace(partition_epoch=8)) is Transition.SAME_EPOCH
    assert not replica.is_leader


def test_the_high_watermark_waits_for_every_replica_in_sync() -> None:
    replica = leading()
    assert not replica.advance(5, 1)
    replica.follower_fetched(2, 4, 0, 5, NOW)
    assert not replica.advance(5, 1)
    replica.follower_fetched(3, 3, 0, 5, NOW)
    assert replica.advance(5, 1)
    assert replica.high_watermark == 3
    replica.lead(state(partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2)), 5, NOW)
    assert replica.advance(5, 1)
    assert replica.high_watermark == 4


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    replica = leading(isr=(1,))
    assert not replica.advance(5, 2)
    assert replica.advance(5, 1)
    alone = ReplicationState(1, 0)
    alone.lead(state(), 0, NOW)
    assert alone.advance(5, 2)  # one replica cannot be asked to be two


def test_a_proposal_counts_before_it_is_answered() -> None:
    """The controller may have taken it: a leader that is elected from it must have everything."""
    replica = leading(isr=(1,))
    replica.follower_fetched(2, 5, 0, 5, NOW)
    proposal = replica.propose_expansion(2, everybody)
    assert proposal == IsrProposal(0, 0, (1, 2), (-1, -1))
    assert replica.propose_expansion(2, everybody) is None  # one at a time
    assert replica.advance(7, 1)
    assert replica.high_watermark == 5
    replica.proposal_refused(proposal)
    assert replica.advance(7, 1)
    assert replica.high_watermark == 7


def test_a_follower_that_is_taken_out_counts_until_the_controller_has_said_so() -> None:
    replica = leading(isr=(1, 2))
    replica.follower_fetched(2, 3, 0, 5, NOW)
    assert replica.propose_shrinking(5, NOW + LAG_MS, LAG_MS) is None
    proposal = replica.propose_shrinking(5, NOW + LAG_MS + 1, LAG_MS)
    assert proposal == IsrProposal(0, 0, (1,), (-1,))
    assert replica.advance(5, 1)
    assert replica.high_watermark == 3
    replica.lead(state(partition_epoch=1, replicas=(1, 2, 3), isr=(1,)), 5, NOW)
    assert replica.advance(5, 1)
    assert replica.high_watermark == 5


def test_only_who_has_caught_up_with_this_epoch_and_is_eligible_is_proposed() -> None:
    replica = ReplicationState(1, 0)
    replica.lead(state(leader_epoch=1, replicas=(1, 2), isr=(1,)), 10, NOW)
    assert replica.propose_expansion(2, everybody) is None  # nothing is known of it yet
    replica.follower_fetched(2, 9, 0, 10, NOW)
    assert replica.propose_expansion(2, everybody) is None  # below the start of the epoch
    replica.follower_fetched(2, 10, 0, 12, NOW)
    assert replica.propose_expansion(2, lambda _: False) is None
    assert replica.propose_expansion(9, everybody) is None
    assert replica.propose_expansion(2, everybody) == IsrProposal(1, 0, (1, 2), (-1, -1))


def test_a_follower_caught_up_when_it_asked_for_what_was_the_end() -> None:
    replica = leading()
    replica.follower_fetched(2, 2, 0, 2, NOW + 20_000)
    replica.follower_fetched(2, 2, 0, 3, NOW + 40_000)
    assert replica.followers[2].last_caught_up_ms == NOW + 20_000
    replica.follower_fetched(2, 3, 0, 4, NOW + 50_000)
    assert replica.followers[2].last_caught_up_ms == NOW + 40_000


def test_who_is_no_replica_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        leading().follower_fetched(9, 0, 0, 0, NOW)
    assert code_of(caught) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_begins_does_not_know_the_end_at_once() -> None:
    replica = ReplicationState(1, 4)
    replica.lead(state(leader_epoch=1, replicas=(1, 2)), 6, NOW)
    assert not replica.knows_end
    replica.follower_fetched(2, 6, 0, 6, NOW)
    assert replica.advance(6, 1)
    assert replica.knows_end


def test_a_follower_takes_the_leaders_high_watermark_as_far_as_its_log_goes() -> None:
    replica = ReplicationState(1, 4)
    replica.follow(state(leader=2, leader_epoch=1, replicas=(1, 2)))
    assert replica.leader_said(9, 0, 6)
    assert replica.high_watermark == 6
    assert replica.leader_said(5, 0, 6)  # a leader that knows less
    assert not replica.leader_said(5, 0, 6)
    replica.truncated(0, 3)
    assert replica.high_watermark == 3
    assert not replica.advance(6, 1)


class Leading(RuleBasedStateMachine):
    """A leader, its followers and a controller, which takes proposals or not, and loses answers."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = ReplicationState(1, 0)
        self.end_offset = 0
        self.durable_offset = 0
        self.now_ms = NOW
        self.image: PartitionImage = state(replicas=(1, 2, 3))
        self.fetched = {2: -1, 3: -1}
        self.on_its_way: IsrProposal | None = None
        self.high_watermark = 0

    @initialize(isr=st.sampled_from([(1,), (1, 2), (1, 2, 3)]))
    def begin(self, isr: tuple[int, ...]) -> None:
        self.image = state(replicas=(1, 2, 3), isr=isr)
        self.replica.lead(self.image, 0, self.now_ms)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end_offset += count

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.durable_offset = data.draw(st.integers(self.durable_offset, self.end_offset))
        self.replica.advance(self.durable_offset, 1)

    @rule(replica_id=st.sampled_from([2, 3]), data=st.data())
    def fetch(self, replica_id: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.fetched[replica_id], 0), self.end_offset))
        self.fetched[replica_id] = offset
        self.replica.follower_fetched(replica_id, offset, 0, self.end_offset, self.now_ms)
        self.replica.advance(self.durable_offset, 1)

    @rule(milliseconds=st.sampled_from([10, LAG_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule(replica_id=st.sampled_from([2, 3]))
    def expand(self, replica_id: int) -> None:
        self.on_its_way = self.replica.propose_expansion(replica_id, everybody) or self.on_its_way

    @rule()
    def shrink(self) -> None:
        proposal = self.replica.propose_shrinking(self.end_offset, self.now_ms, LAG_MS)
        self.on_its_way = proposal or self.on_its_way

    @precondition(lambda self: self.on_its_way is not None)
    @rule(takes=st.booleans(), tells=st.booleans())
    def answer(self, takes: bool, tells: bool) -> None:
        """The controller takes a proposal and the image comes, now or with the next change; or it
        refuses."""
        proposal = self.on_its_way
        assert proposal is not None
        if takes:
            self.image = self.image._replace(
                isr=proposal.isr, partition_epoch=self.image.partition_epoch + 1
            )
            self.on_its_way = None
            if tells:
                self.replica.lead(self.image, self.end_offset, self.now_ms)
                self.replica.advance(self.durable_offset, 1)
        else:
            self.on_its_way = None
            self.replica.proposal_refused(proposal)

    @rule()
    def catch_up_with_the_image(self) -> None:
        self.replica.lead(self.image, self.end_offset, self.now_ms)
        self.replica.advance(self.durable_offset, 1)

    @invariant()
    def whoever_the_controller_may_elect_has_what_is_committed(self) -> None:
        committed = self.replica.high_watermark
        ends = {1: self.durable_offset, **self.fetched}
        # Of the set that the controller has now, known here or not.
        assert all(max(ends[broker_id], 0) >= committed for broker_id in self.image.isr)

    @invariant()
    def the_high_watermark_never_goes_back(self) -> None:
        assert self.replica.high_watermark >= self.high_watermark
        self.high_watermark = self.replica.high_watermark


TestLeading = Leading.TestCase
TestLeading.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_join() -> None:
    """Else it would run away from a follower that is always one fetch behind."""
    replica = leading(replicas=(1, 2), isr=(1,))
    replica.follower_fetched(2, 4, 0, 4, NOW, broker_epoch=9)
    replica.note_joining(4, NOW, LAG_MS, everybody)
    assert replica.advance(6, 1)
    assert replica.high_watermark == 4
    replica.note_joining(6, NOW + LAG_MS + 1, LAG_MS, everybody)
    assert replica.advance(6, 1), "it has not caught up for too long"
    assert replica.high_watermark == 6


def test_a_follower_that_may_not_join_holds_nothing_up() -> None:
    replica = leading(replicas=(1, 2), isr=(1,))
    replica.follower_fetched(2, 4, 0, 4, NOW, broker_epoch=9)
    replica.note_joining(4, NOW, LAG_MS, lambda follower: follower.broker_epoch == 8)
    assert replica.advance(6, 1)
    assert replica.high_watermark == 6


def test_a_proposal_names_the_broker_epochs_at_which_it_was_made() -> None:
    """A follower that has restarted since may have lost what made it eligible."""
    replica = leading(isr=(1, 3))
    replica.follower_fetched(2, 5, 0, 5, NOW, broker_epoch=20)
    proposal = replica.propose_expansion(2, everybody)
    assert proposal == IsrProposal(0, 0, (1, 3, 2), (-1, -1, 20))
    replica.follower_fetched(2, 0, 0, 5, NOW, broker_epoch=21)
    assert replica.is_pending(proposal)
    assert replica.maximal_isr_size == 3


def test_an_idle_follower_was_caught_up_until_its_last_fetch() -> None:
    replica = leading(replicas=(1, 2))
    replica.follower_fetched(2, 5, 0, 5, NOW)
    replica.followers[2].fetched_nothing_new(NOW + 10 * LAG_MS)
    later = NOW + 11 * LAG_MS
    assert replica.propose_shrinking(6, later, LAG_MS) is None
    assert replica.propose_shrinking(6, later + 1, LAG_MS) is not None
