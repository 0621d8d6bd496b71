"""Replication, divergence and snapshots, as stories."""

import errno

import pytest

from tests.raft.story import Story, replica_of
from tidelog.protocol.errors import ApiError
from tidelog.raft.quorum import NotAppended
from tidelog.raft.raft_log import SnapshotId


def test_what_is_proposed_is_committed_and_applied_by_everybody() -> None:
    story = Story(voters=3, observers=2)
    leader = story.elected()
    story.commit(leader, 10)
    story.run(1)
    assert {node.applied_offset for node in story.nodes} == {leader.disk.end_offset}


def test_a_proposal_to_a_follower_is_refused_and_in_no_log() -> None:
    story = Story()
    leader = story.elected()
    number = story.propose(story.others(leader)[0])
    assert isinstance(story.outcome(number), NotAppended)


def test_a_leader_that_cannot_read_its_log_goes_on_when_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    leader = story.elected()

    def fail(offset: int, max_bytes: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(leader.disk, "read", fail)
    number = story.propose(leader)
    story.run(0.3)
    assert story.outcome(number) is None
    monkeypatch.undo()
    story.run(8)
    story.commit(story.elected())
    assert all(node.disk.end_offset == leader.disk.end_offset for node in story.nodes)


def test_nothing_is_committed_before_a_majority_has_synced_it() -> None:
    story = Story()
    leader = story.elected()
    story.cut(leader)
    number = story.propose(leader)
    story.run(1)
    assert story.outcome(number) is None
    assert leader.disk.synced_end() == leader.disk.end_offset


def test_partitioned_leader_loses_what_it_could_not_commit() -> None:
    story = Story()
    leader = story.elected()
    story.commit(leader)
    story.cut(leader)
    lost = [story.propose(leader) for _ in range(3)]
    story.run(6)
    successor = story.elected()
    assert successor is not leader
    story.commit(successor, 2)
    assert leader.disk.batches != successor.disk.batches
    story.heal()
    story.run(5)
    assert leader.disk.batches == successor.disk.batches
    assert all(isinstance(story.outcome(number), ApiError) for number in lost)


def test_follower_that_lost_its_page_cache_gets_it_again() -> None:
    story = Story()
    leader = story.elected()
    follower = story.others(leader)[0]
    for _ in range(5):
        story.commit(leader, 3)
        follower.stop(with_power=False)
        story.commit(leader)
        follower.start()
        story.run(3)
    assert follower.applied_offset == leader.disk.end_offset


def test_full_disk_of_a_follower_stops_nobody() -> None:
    story = Story()
    leader = story.elected()
    follower = story.others(leader)[0]
    follower.disk.is_full = True
    story.commit(leader, 3)
    story.run(5)
    assert replica_of(leader).is_leader
    follower.disk.is_full = False
    story.run(2)
    assert follower.applied_offset == leader.disk.end_offset


def test_replica_that_is_too_far_behind_loads_a_snapshot_kafka_12996() -> None:
    story = Story(voters=3)
    leader = story.elected()
    follower = story.others(leader)[0]
    story.commit(leader)
    follower.stop(with_power=False)
    story.commit(leader, 5)
    leader.take_snapshot(forgets_log=True)
    assert leader.disk.start_offset > follower.disk.end_offset
    story.commit(leader, 2)
    follower.start()
    story.run(3)
    assert follower.disk.start_offset == leader.disk.start_offset
    assert follower.disk.snapshots == leader.disk.snapshots
    assert follower.applied_offset == leader.disk.end_offset
    assert replica_of(follower).quorum.voters == replica_of(leader).quorum.voters


def test_new_observer_begins_with_the_snapshot() -> None:
    story = Story(voters=1, observers=1, starts=False)
    story.nodes[0].start()
    leader = story.elected()
    story.commit(leader, 4)
    leader.take_snapshot(forgets_log=True)
    story.nodes[1].start()
    story.run(3)
    assert story.nodes[1].applied_offset == leader.applied_offset
    assert story.nodes[1].disk.start_offset == leader.disk.start_offset


def test_snapshot_that_goes_while_it_is_read_is_replaced_by_a_newer_one() -> None:
    story = Story(voters=3)
    leader = story.elected()
    follower = story.others(leader)[0]
    follower.stop(with_power=False)
    story.commit(leader, 3)
    leader.take_snapshot(forgets_log=True)
    story.commit(leader, 3)
    follower.start()
    while not _is_downloading(follower):
        story.run(0.001)
    leader.take_snapshot(forgets_log=True)
    story.run(3)
    assert follower.disk.start_offset == leader.disk.start_offset


def _is_downloading(node: object) -> bool:
    state = node.replica.quorum.state  # type: ignore[attr-defined]
    return getattr(state, "download", None) is not None


def test_log_that_does_not_continue_its_snapshot_restarts_there() -> None:
    """The power goes after a snapshot was received and before the old log is dropped."""
    story = Story(voters=3)
    leader = story.elected()
    follower = story.others(leader)[0]
    follower.stop(with_power=False)
    story.commit(leader, 5)
    leader.take_snapshot(forgets_log=True)
    (snapshot_id,) = leader.disk.snapshots
    follower.disk.snapshots[snapshot_id] = leader.disk.snapshots[snapshot_id]
    follower.start()
    assert follower.disk.start_offset == follower.disk.end_offset == snapshot_id.offset
    story.run(3)
    assert follower.applied_offset == leader.disk.end_offset
    assert snapshot_id == SnapshotId(*snapshot_id)
