"""Elections, as stories: who leads, who must not, and who hears of it."""

import pytest

from tests.raft.story import Story, replica_of
from tidelog.protocol.errors import ApiError
from tidelog.raft.outputs import LeaderChanged
from tidelog.raft.quorum import NotAppended
from tidelog.raft.states import Follower, Prospective, Resigned


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("voters", [1, 2, 3, 5, 7])
def test_a_new_cluster_elects_one_leader_and_everybody_follows(
    voters: int, kraft_version: int
) -> None:
    story = Story(voters, observers=1, kraft_version=kraft_version)
    leader = story.elected()
    story.run(2)
    for node in story.others(leader):
        assert replica_of(node).leader_id == leader.node_id
        assert isinstance(replica_of(node).quorum.state, Follower)
        assert node.disk.batches == leader.disk.batches


def test_an_observer_alone_never_leads() -> None:
    story = Story(voters=1, observers=1, starts=False)
    story.nodes[1].start()
    story.run(10)
    assert story.cluster.leader is None


def test_leader_that_dies_is_replaced_and_keeps_what_is_committed() -> None:
    story = Story()
    leader = story.elected()
    story.commit(leader, 3)
    leader.stop(with_power=False)
    successor = story.elected()
    assert successor is not leader
    story.commit(successor)
    leader.start()
    story.run(3)
    assert leader.applied_offset == successor.applied_offset


def test_leader_that_resigns_is_followed_at_once_by_the_most_advanced() -> None:
    story = Story()
    leader = story.elected()
    epoch = replica_of(leader).epoch
    leader.resign()
    assert isinstance(replica_of(leader).quorum.state, Resigned)
    story.run(0.5)
    successor = story.elected(within_s=1)
    assert successor is not leader
    assert replica_of(successor).epoch == epoch + 1


def test_leader_whose_disk_is_full_lets_another_lead() -> None:
    """It could decide nothing more: not even that its own replicas are out of sync."""
    story = Story()
    leader = story.elected()
    leader.disk.is_full = True
    refused = story.propose(leader)
    assert isinstance(story.outcome(refused), NotAppended)
    assert isinstance(replica_of(leader).quorum.state, Resigned)
    story.run(0.5)
    successor = story.elected(within_s=2)
    assert successor is not leader
    story.commit(successor)
    leader.disk.is_full = False
    story.run(3)
    assert leader.applied_offset == successor.applied_offset


def test_only_voter_whose_disk_is_full_leads_on_and_waits_for_room() -> None:
    story = Story(voters=1)
    leader = story.elected()
    epoch = replica_of(leader).epoch
    leader.disk.is_full = True
    refused = story.propose(leader)
    assert isinstance(story.outcome(refused), NotAppended)
    leader.disk.is_full = False
    story.commit(leader)
    assert replica_of(leader).epoch == epoch


def test_leader_without_a_majority_resigns_kafka_15489() -> None:
    story = Story(voters=5)
    leader = story.elected()
    story.cut(leader, story.others(leader)[0])
    number = story.propose(leader)
    settings = story.cluster.settings
    story.run(settings.check_quorum_timeout_ms / 1_000 + 0.2)
    assert not replica_of(leader).is_leader
    error = story.outcome(number)
    # Nobody can tell whether a later leader has it.
    assert isinstance(error, ApiError)
    assert not isinstance(error, NotAppended)
    assert story.elected() is not leader


def test_leader_that_hears_of_nobody_but_a_majority_leads_on() -> None:
    story = Story(voters=5)
    leader = story.elected()
    story.cut(*story.others(leader)[:2])
    story.run(20)
    assert replica_of(leader).is_leader
    story.commit(leader)


def test_voter_that_was_cut_off_does_not_depose_the_leader_when_it_is_back() -> None:
    story = Story()
    leader = story.elected()
    epoch = replica_of(leader).epoch
    lonely = story.others(leader)[0]
    story.cut(lonely)
    story.run(10)
    assert isinstance(replica_of(lonely).quorum.state, (Follower, Prospective))
    assert replica_of(lonely).epoch == epoch
    story.heal()
    story.run(5)
    assert replica_of(leader).is_leader
    assert replica_of(leader).epoch == epoch


def test_restarted_voter_does_not_vote_twice() -> None:
    story = Story(voters=2)
    leader = story.elected()
    voter = story.others(leader)[0]
    voter.stop(with_power=False)
    state = voter.disk.election
    assert state.voted == leader.key or state.leader_id == leader.node_id
    voter.start()
    # Whoever asks for a vote of that epoch hears that it is given or that there is a leader.
    quorum = replica_of(voter).quorum
    assert quorum.epoch == state.epoch
    assert quorum.election.voted == state.voted
    story.run(3)


def test_restarted_voter_says_who_leads_when_that_is_still_the_same_node() -> None:
    story = Story(voters=3)
    leader = story.elected()
    voter = story.others(leader)[0]
    story.run(1)
    voter.stop(with_power=True)
    voter.start()
    replica = replica_of(voter)
    assert replica.quorum.leader_id == leader.node_id
    assert replica.quorum._told == LeaderChanged(leader.node_id, replica.epoch)


def test_leader_that_restarts_does_not_lead_its_old_epoch() -> None:
    story = Story(voters=1)
    leader = story.elected()
    epoch = replica_of(leader).epoch
    leader.stop(with_power=True)
    leader.start()
    assert not replica_of(leader).is_leader
    story.elected()
    assert replica_of(leader).epoch > epoch


def test_high_watermark_is_unknown_until_the_epoch_has_committed_a_record_kafka_12619() -> None:
    story = Story(voters=3)
    leader = story.elected()
    story.commit(leader, 2)
    first, second = story.others(leader)
    leader.stop(with_power=False)
    # The successor has everything that is committed and must not say so yet.
    story.run(1.0)
    while story.cluster.leader is None:
        story.run(0.001)
    successor = story.cluster.leader
    state = replica_of(successor).quorum.state
    assert state.high_watermark is None or state.high_watermark > state.epoch_start_offset  # type: ignore[union-attr]
    assert story.elected() in (first, second)


def test_two_elections_without_data_leave_no_epoch_behind_kafka_10706() -> None:
    story = Story()
    for _ in range(3):
        leader = story.elected()
        # The disk does not take the first record of the next epochs: they stay empty.
        for node in story.others(leader):
            node.disk.is_full = True
        leader.stop(with_power=False)
        story.run(4)
        for node in story.others(leader):
            node.disk.is_full = False
        leader.start()
        story.commit(story.elected())
    story.run(3)
    assert len({tuple(node.disk.epochs) for node in story.nodes}) == 1


def test_message_for_a_disk_that_is_gone_is_refused() -> None:
    story = Story(voters=3)
    leader = story.elected()
    node = story.others(leader)[0]
    old_key = node.key
    node.stop(with_power=False)
    story.cluster.replace_disk(node, 1)
    node.start()
    story.run(5)
    # It follows as an observer, and its new disk has not voted for anybody.
    assert not replica_of(node).quorum.is_voter
    assert replica_of(leader).quorum.voters.is_voter(old_key)
    assert node.applied_offset == leader.applied_offset


def test_stuck_change_that_removes_the_longest_log_is_committed_by_it() -> None:
    """Of two voters one is removed, has the record of it alone, and loses its leadership: the other
    needs its vote, which it cannot give to a shorter log. It has to lead once more."""
    story = Story(voters=2)
    leader = story.elected()
    other = story.others(leader)[0]
    story.cut(leader)
    assert story.remove_voter(leader, leader, seconds=0.1) is None
    story.run(6)
    assert not replica_of(leader).is_leader
    assert not replica_of(leader).quorum.is_voter
    story.heal()
    story.run(15)
    assert replica_of(other).is_leader
    assert replica_of(other).quorum.voters.ids == (other.node_id,)


def test_observer_that_has_become_a_voter_unawares_lets_others_be_elected() -> None:
    """It follows a leader that is gone, and has no reason to stop; its pre-vote is needed."""
    story = Story(voters=3, observers=1)
    leader = story.elected()
    story.run(2)
    observer = story.nodes[3]
    first, second = (node for node in story.nodes[:3] if node is not leader)
    second.stop(with_power=True)
    story.cut(observer)
    story.run(0.05)
    story.cluster.links.heal()
    # The record that makes it a voter reaches `first` only.
    observer.pause()
    assert story.add_voter(leader, observer, seconds=0.3) is None
    story.run(0.3)
    second.start()
    observer.resume()
    story.run(5)
    leader.stop(with_power=False)
    story.commit(story.elected(within_s=20))
    assert first.replica is not None
