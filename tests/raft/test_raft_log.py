"""How two logs are compared, and how a follower's is brought to agree with the leader's."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.records import Record, encode_batch
from tidelog.raft.raft_log import (
    Diverging,
    OffsetAndEpoch,
    SnapshotId,
    SnapshotRequired,
    Valid,
    compare,
    continues_snapshot,
    end_of_epoch,
    log_end,
    truncation_point,
)
from tidelog.testing.simulation.consensus.disk import SimulatedDisk

# Epochs of records: the first leader has epoch 1.
EPOCHS = st.lists(st.integers(1, 4), max_size=8)


def log_of(epochs: list[int]) -> SimulatedDisk:
    disk = SimulatedDisk()
    for epoch in epochs:
        disk.append_as_leader(encode_batch([Record(0, 0, None, b"")]), epoch)
    return disk


def forget(disk: SimulatedDisk, offset: int) -> SnapshotId:
    """A snapshot takes the place of the log below `offset`."""
    epoch = next(each.epoch for each in disk.batches if each.next_offset == offset)
    snapshot_id = SnapshotId(offset, epoch)
    disk.snapshots[snapshot_id] = b""
    disk.advance_start(snapshot_id)
    return snapshot_id


@st.composite
def diverging_logs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Epochs of a follower and of a leader, and how many records they share. An epoch has one
    leader, so what is not shared has no epoch in common but that of the last shared record, in one
    of the two."""
    shared = sorted(draw(EPOCHS))
    last = shared[-1] if shared else 1
    steps = draw(st.lists(st.integers(1, 8), max_size=6, unique=True))
    mine = set(draw(st.lists(st.sampled_from(steps), unique=True))) if steps else set()
    rest = sorted(last + step for step in steps)
    follower = [epoch for epoch in rest if epoch - last in mine]
    leader = [epoch for epoch in rest if epoch - last not in mine]
    if draw(st.booleans()):
        follower = [last] * draw(st.integers(0, 3)) + follower
    else:
        leader = [last] * draw(st.integers(0, 3)) + leader
    return shared + follower, shared + leader, len(shared)


@given(diverging_logs())
def test_a_follower_ends_up_with_what_both_have_and_no_less(
    logs: tuple[list[int], list[int], int],
) -> None:
    follower_epochs, leader_epochs, shared = logs
    follower, leader = log_of(follower_epochs), log_of(leader_epochs)
    for _ in range(20):
        end = log_end(follower)
        found = compare(leader, end.offset, end.epoch)
        if isinstance(found, Valid):
            break
        assert isinstance(found, Diverging)
        point = truncation_point(follower, found.end)
        assert shared <= point < end.offset
        follower.truncate_to(point)
    else:
        raise AssertionError("they do not agree on where they agree")
    assert follower.end_offset >= shared
    assert follower_epochs[: follower.end_offset] == leader_epochs[: follower.end_offset]


def test_a_follower_below_the_start_of_the_log_gets_the_snapshot_kafka_12996() -> None:
    leader = log_of([1, 1, 2, 2, 3])
    snapshot_id = forget(leader, 4)
    for offset, epoch in [(0, 0), (3, 2), (3, 1), (4, 1), (5, 1)]:
        assert compare(leader, offset, epoch) == SnapshotRequired(snapshot_id)
    assert compare(leader, 4, 2) == Valid()
    assert compare(leader, 5, 3) == Valid()
    assert compare(leader, 5, 2) == Diverging(OffsetAndEpoch(4, 2))


def test_an_empty_log_after_a_snapshot_has_its_epoch() -> None:
    log = log_of([1, 1, 2])
    forget(log, 3)
    assert log_end(log) == (3, 2)
    assert end_of_epoch(log, 2) == (3, 2)


def test_a_log_continues_a_snapshot_of_the_same_epochs_only() -> None:
    log = log_of([1, 1, 2])
    assert continues_snapshot(log, SnapshotId(2, 1))
    assert continues_snapshot(log, SnapshotId(3, 2))
    assert not continues_snapshot(log, SnapshotId(2, 2))
    assert not continues_snapshot(log, SnapshotId(4, 2))
    assert not continues_snapshot(log, SnapshotId(3, 3))
