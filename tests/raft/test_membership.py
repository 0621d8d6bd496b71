"""Voters that come and go, as stories."""

from typing import Any

from tests.raft.story import Story, ok, replica_of, voters_of
from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    PartitionRequest,
    TopicRequest,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.raft.messages import TOPIC
from tidelog.raft.voters import Endpoint


def test_an_observer_becomes_a_voter() -> None:
    story = Story(voters=3, observers=1)
    leader = story.elected()
    story.run(2)
    assert ok(story.add_voter(leader, story.nodes[3]))
    story.run(1)
    assert {voters_of(node) for node in story.nodes} == {(0, 1, 2, 3)}


def test_a_voter_that_has_not_caught_up_is_not_added() -> None:
    story = Story(voters=1, observers=1, starts=False)
    story.nodes[0].start()
    leader = story.elected()
    story.nodes[1].start()
    response = story.add_voter(leader, story.nodes[1], seconds=0.004)
    story.run(0.05)
    response = response or story.add_voter(leader, story.nodes[1], seconds=0.002)
    assert response is None or response.error_code == ErrorCode.REQUEST_TIMED_OUT
    story.run(3)
    assert ok(story.add_voter(leader, story.nodes[1]))


def test_a_leader_that_was_alone_stays_when_it_gets_a_second_voter() -> None:
    story = Story(voters=1, observers=1)
    leader = story.elected()
    # Longer than check-quorum, which does not concern a voter alone.
    story.run(10)
    assert ok(story.add_voter(leader, story.nodes[1]))
    story.run(10)
    assert replica_of(leader).is_leader
    assert replica_of(leader).epoch == 1


def test_a_voter_is_added_once() -> None:
    story = Story(voters=2)
    leader = story.elected()
    response = story.add_voter(leader, story.others(leader)[0])
    assert response.error_code == ErrorCode.DUPLICATE_VOTER


def test_a_voter_is_removed_and_goes_on_as_observer() -> None:
    story = Story(voters=3)
    leader = story.elected()
    removed = story.others(leader)[0]
    assert ok(story.remove_voter(leader, removed))
    story.commit(leader)
    story.run(10)
    assert replica_of(leader).is_leader
    assert removed.applied_offset == leader.applied_offset


def test_leader_that_is_removed_resigns_when_that_is_committed_kafka_17608() -> None:
    story = Story(voters=3)
    leader = story.elected()
    assert ok(story.remove_voter(leader, leader, seconds=0.1))
    assert not replica_of(leader).is_leader
    successor = story.elected()
    assert successor is not leader
    assert leader.node_id not in voters_of(successor)
    story.commit(successor)
    story.run(3)
    assert leader.applied_offset == successor.applied_offset


def test_a_founder_that_is_removed_finds_the_voters_that_joined_it() -> None:
    """Nobody was there to be named in its configuration when it began."""
    story = Story(voters=1, observers=2, starts=False)
    addresses, story.cluster.addresses = story.cluster.addresses, ()
    story.nodes[0].start()
    story.cluster.addresses = addresses
    founder = story.elected()
    for joining in story.others(founder):
        joining.start()
        story.run(3)
        assert ok(story.add_voter(founder, joining))
    assert ok(story.remove_voter(founder, founder))
    successor = story.elected()
    assert successor is not founder
    story.commit(successor)
    story.run(3)
    assert founder.applied_offset == successor.applied_offset
    assert ok(story.add_voter(successor, founder))


def test_the_last_voter_is_not_removed() -> None:
    story = Story(voters=1)
    leader = story.elected()
    response = story.remove_voter(leader, leader)
    assert response.error_code == ErrorCode.VOTER_NOT_FOUND


def test_one_change_at_a_time() -> None:
    story = Story(voters=3, observers=1)
    leader = story.elected()
    story.run(2)
    story.cut(leader)
    assert story.remove_voter(leader, story.others(leader)[0], seconds=0.1) is None
    response = story.add_voter(leader, story.nodes[3], seconds=0.1)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_change_that_is_truncated_is_taken_back() -> None:
    story = Story(voters=3)
    leader = story.elected()
    removed = story.others(leader)[0]
    story.cut(leader)
    assert story.remove_voter(leader, removed, seconds=0.1) is None
    assert removed.node_id not in voters_of(leader)
    story.run(6)
    successor = story.elected()
    story.commit(successor)
    story.heal()
    story.run(5)
    assert {voters_of(node) for node in story.nodes} == {(0, 1, 2)}


def test_a_voter_with_a_new_disk_is_replaced() -> None:
    story = Story(voters=3)
    leader = story.elected()
    node = story.others(leader)[0]
    old = replica_of(node).quorum.key
    node.stop(with_power=False)
    story.cluster.replace_disk(node, 1)
    node.start()
    story.run(3)
    node.key, new = old, node.key
    assert ok(story.remove_voter(leader, node))
    node.key = new
    story.run(1)
    assert ok(story.add_voter(leader, node))
    story.run(1)
    assert all(replica_of(each).quorum.voters.is_voter(new) for each in story.nodes)


def test_voters_of_the_configuration_do_not_change() -> None:
    story = Story(voters=3, observers=1, kraft_version=0)
    leader = story.elected()
    story.run(2)
    response = story.add_voter(leader, story.nodes[3])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_voters_of_the_configuration_become_records() -> None:
    story = Story(voters=3, observers=1, kraft_version=0)
    leader = story.elected()
    # Each voter tells the leader about itself within the fetch timeout.
    story.run(5)
    assert leader.upgrade_kraft_version()
    story.run(2)
    for node in story.nodes:
        history = replica_of(node).quorum.history
        assert history.kraft_version == 1
        assert all(any(voter.key.directory_id) for voter in history.voters)
    assert ok(story.add_voter(leader, story.nodes[3]))
    story.run(1)
    leader.stop(with_power=False)
    story.commit(story.elected())


def test_voters_tell_their_new_endpoints() -> None:
    story = Story(voters=3)
    for _ in range(2):
        node = story.elected()
        node.stop(with_power=True)
        node.endpoints = (*node.endpoints, Endpoint("EXTRA", "elsewhere", 9094))
        node.start()
        story.run(6)
        for each in story.nodes:
            assert replica_of(each).quorum.voters.endpoints(node.node_id) == node.endpoints
    # The one that leads names its own when it begins to.
    leader = story.elected()
    assert replica_of(leader).quorum.voters.endpoints(leader.node_id) == leader.endpoints


def test_the_quorum_is_described_by_its_leader() -> None:
    story = Story(voters=3, observers=1)
    leader = story.elected()
    story.commit(leader)
    story.run(3)
    partition = _described(story, leader)
    assert (partition.leader_id, partition.leader_epoch) == (leader.node_id, 1)
    assert partition.high_watermark == leader.disk.end_offset
    assert sorted(each.replica_id for each in partition.current_voters) == [0, 1, 2]
    assert [each.replica_id for each in partition.observers] == [3]
    ends = {each.log_end_offset for each in (*partition.current_voters, *partition.observers)}
    assert ends == {leader.disk.end_offset}
    other = _described(story, story.others(leader)[0])
    assert other.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _described(story: Story, node: Any) -> Any:
    request = DescribeQuorumRequest(
        topics=[TopicRequest(topic_name=TOPIC, partitions=[PartitionRequest(partition_index=0)])]
    )
    response: Any = story.cluster.ask(node, request).response
    return response.topics[0].partitions[0]
