"""Followers: the same bytes at the same offsets, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.replication.replicas import NOW, Replica, Replicas, content
from tests.cluster.replication.test_partition import append, batch, end_transaction
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.follower_session import FollowerSession
from tidelog.cluster.replication.partition import EpochEnd, Partition
from tidelog.cluster.replication.replica_fetcher import FollowerState, ReplicaFetcher
from tidelog.cluster.replication.replication_state import ReplicationState
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, encode_batch
from tidelog.storage.log import Log

Make = Callable[..., Replicas]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Replicas] = []

    def make(node_ids: tuple[int, ...] = (1, 2)) -> Replicas:
        replicas = Replicas(tmp_path / f"{len(made)}", node_ids)
        made.append(replicas)
        return replicas

    yield make
    for replicas in made:
        replicas.close()


@pytest.fixture
def replicas(make: Make) -> Replicas:
    """Two replicas, led by 1."""
    replicas = make()
    replicas.elect(1)
    return replicas


def state_of(replica: Replica) -> FollowerState | None:
    assert replica.fetcher is not None
    return replica.fetcher.state_of(replica.partition)


def append_value(replica: Replica, value: bytes) -> None:
    record = Record(0, NOW, None, value)
    replica.partition.append_as_leader(memoryview(encode_batch([record])), NOW)


def test_a_follower_has_the_same_bytes_and_the_high_watermark_follows(replicas: Replicas) -> None:
    leader, follower = replicas.all
    append(leader.partition, NOW, NOW)
    append(leader.partition)
    replicas.run(30)
    assert content(follower) == content(leader)
    assert leader.partition.high_watermark == 3
    assert follower.partition.high_watermark == 3


def test_a_fetch_waits_until_what_came_before_is_durable(replicas: Replicas) -> None:
    leader, follower = replicas.all
    append(leader.partition)
    leader.sink.sync()
    replicas.run(30, syncs=False)
    assert follower.partition.log_end_offset == 1
    assert leader.partition.high_watermark == 0, "the follower has not synced it"
    append(leader.partition)
    replicas.run(30, syncs=False)
    assert follower.partition.log_end_offset == 1, "the next fetch has not left"
    replicas.run(30)
    assert follower.partition.log_end_offset == leader.partition.high_watermark == 2


def test_a_leader_that_becomes_a_follower_syncs_before_it_fetches(replicas: Replicas) -> None:
    """Else it would report what a power cut can still take from it."""
    first, second = replicas.all
    append(first.partition)
    first.sink.sync()
    second.sink.sync()
    replicas.run(10)
    append(first.partition)
    replicas.run(3, syncs=False)
    assert second.log.log_end_offset == 2
    second.sink.sync()
    replicas.elect(2)
    replicas.run(30, syncs=False)
    assert first.log.durable_offset == 1
    assert second.partition.high_watermark == 1
    replicas.run(30)
    assert second.partition.high_watermark == 2


def test_only_what_is_new_is_named_in_a_session(replicas: Replicas) -> None:
    leader = replicas.leader
    asked: list[tuple[int, int]] = []
    serve = leader.serve

    def note(message: object) -> object:
        asked.append((message.session_epoch, len(message.topics)))  # type: ignore[attr-defined]
        return serve(message)  # type: ignore[arg-type]

    leader.serve = note  # type: ignore[method-assign, assignment]
    replicas.run(7)
    append(leader.partition)
    replicas.run(12)
    epochs = [epoch for epoch, _ in asked]
    assert epochs == list(range(len(asked)))
    # The first names it, and the one after its position has moved.
    assert [rows for _, rows in asked].count(1) == 2


def test_a_leader_that_forgot_the_session_gets_a_new_one(replicas: Replicas) -> None:
    leader, follower = replicas.all
    replicas.run(10)
    leader.sessions.__init__(10, 120_000, Random(9))  # type: ignore[misc]
    append(leader.partition)
    replicas.run(20)
    assert content(follower) == content(leader) != b""
    assert follower.lines.events == []


def test_a_leader_that_cannot_be_reached_is_tried_again(replicas: Replicas) -> None:
    leader, follower = replicas.all
    leader.is_reachable = False
    append(leader.partition)
    replicas.run(30)
    assert follower.lines.events.count("replica_fetch_failed") > 1
    assert replicas.now > 3, "its pauses become longer"
    leader.is_reachable = True
    replicas.run(20)
    assert content(follower) == content(leader) != b""


def test_a_log_that_went_another_way_is_cut_where_the_leaders_does(replicas: Replicas) -> None:
    first, second = replicas.all
    append_value(first, b"both have it")
    replicas.run(30)
    append_value(first, b"only the first has it")
    first.sink.sync()
    first.is_reachable = False
    replicas.elect(2)
    append_value(second, b"only the second has it")
    second.sink.sync()
    assert content(first) != content(second)
    replicas.run(30)
    assert content(first) == content(second)
    assert "replica_truncated" in first.lines.events
    assert second.partition.high_watermark == 2


def test_divergence_over_several_epochs_is_found_step_by_step(replicas: Replicas) -> None:
    """Each wrote in epochs that the other never saw."""
    first, second = replicas.all
    append_value(first, b"a")
    replicas.run(30)
    second.is_reachable = first.is_reachable = False
    for leader_id in (1, 2, 1, 2, 1, 2):
        replicas.elect(leader_id)
        append_value(replicas.leader, b"of epoch %d" % replicas.leader_epoch)
        replicas.sync()
    second.is_reachable = True
    replicas.elect(2)
    replicas.run(60)
    assert content(first) == content(second)
    assert second.log.log_end_offset == 4


def test_a_follower_behind_the_leaders_start_starts_over_there(replicas: Replicas) -> None:
    leader, follower = replicas.all
    replicas.run(5)
    leader.is_reachable = False
    replicas.elect(1, isr=(1,))
    for _ in range(3):
        append(leader.partition)
    leader.sink.sync()
    leader.partition.delete_records(2)
    leader.is_reachable = True
    replicas.run(30)
    assert follower.log.log_start_offset == 2
    assert follower.partition.high_watermark == 3
    assert content(follower) == content(leader)


def test_a_follower_follows_the_leaders_start(replicas: Replicas) -> None:
    leader, follower = replicas.all
    for _ in range(3):
        append(leader.partition)
    replicas.run(30)
    leader.partition.delete_records(2)
    replicas.run(30)
    assert follower.log.log_start_offset == 2


def test_a_follower_longer_than_a_leader_without_epochs_is_cut(replicas: Replicas) -> None:
    """The leader was elected without its log: KAFKA-12996's cousin."""
    leader, follower = replicas.all
    append(leader.partition)
    replicas.run(30)
    leader.log.sink = None
    leader.log.truncate_fully_and_start_at(0)
    leader.log.sink = leader.sink
    replicas.elect(1)
    replicas.run(30)
    assert follower.partition.log_end_offset == 0
    append(leader.partition)
    replicas.run(30)
    assert content(follower) == content(leader) != b""


def test_a_follower_starts_over_when_the_leader_cannot_tell_whether_the_logs_agree(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's log lost its epochs: KAFKA-15608."""
    leader, follower = replicas.all
    append_value(leader, b"a")
    append_value(leader, b"b")
    replicas.run(30)
    monkeypatch.setattr(Partition, "_end_offset_for", lambda self, epoch: EpochEnd(-1, -1))
    replicas.run(12)
    assert follower.lines.events.count("replica_truncated") == 1
    monkeypatch.undo()
    replicas.run(30)
    assert content(follower) == content(leader) != b""


def test_a_large_answer_is_appended_over_several_turns(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients of the follower's node would wait for all of it."""
    leader, follower = replicas.all
    monkeypatch.setattr("tidelog.cluster.replication.replica_fetcher._BYTES_PER_TURN_MAX", 1)
    append_value(leader, b"a")
    leader.sink.sync()
    replicas.step()
    replicas.step()
    assert follower.partition.log_end_offset == 1
    append_value(leader, b"b")
    replicas.run(30)
    assert content(follower) == content(leader)


def test_the_leader_hears_where_a_followers_log_starts(replicas: Replicas) -> None:
    leader, follower = replicas.all
    for _ in range(3):
        append(leader.partition)
    replicas.run(30)
    follower.log.advance_log_start(2)
    assert follower.fetcher is not None
    follower.fetcher.look_again(follower.partition)
    replicas.run(10)
    assert leader.partition.state.followers[2].log_start_offset == 2
    assert leader.partition.state.low_watermark(3, lambda _: True) == 2
    assert leader.partition.state.low_watermark(3, lambda _: False) == 3


# Throttles


@pytest.fixture
def throttled(make: Make) -> Replicas:
    """Two replicas, led by 1. 2 has nothing yet and is not in sync; it gets a batch with each
    fetch, and is throttled to 1,000 bytes a second."""
    replicas = make()
    replicas.partition_bytes_max = 1
    replicas.lag_ms_max = 500
    follower = replicas[2]
    follower.throttle.choose("orders", None)
    follower.throttle.bytes.set_limit(1_000)
    replicas.elect(1, isr=(1,))
    for number in range(20):
        append_value(replicas[1], b"%03d" % number * 100)
    return replicas


def run_until(replicas: Replicas, holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
    end = replicas.now + seconds
    while not holds():
        assert replicas.now < end, "it does not come true"
        replicas.sync()
        assert replicas.step()


def has_all(replicas: Replicas) -> bool:
    leader, follower = replicas.all
    return follower.log.log_end_offset == leader.log.log_end_offset


def test_a_throttled_follower_takes_the_time_that_its_limit_says(throttled: Replicas) -> None:
    leader, follower = throttled.all
    fetches: list[object] = []
    serve = leader.serve

    def note(message: object) -> object:
        fetches.append(message)
        return serve(message)  # type: ignore[arg-type]

    leader.serve = note  # type: ignore[method-assign, assignment]
    run_until(throttled, lambda: state_of(follower) is FollowerState.HELD_BACK)
    assert 0 < follower.log.log_end_offset < 20
    run_until(throttled, lambda: has_all(throttled))
    size_bytes = len(content(leader))
    assert content(follower) == content(leader)
    assert size_bytes / 1_000 - 2 <= throttled.now <= size_bytes / 1_000 + 1
    assert len(fetches) <= 21, "nothing is asked for while it is held back"


def test_a_follower_goes_on_at_once_when_its_throttle_is_lifted(throttled: Replicas) -> None:
    follower = throttled[2]
    run_until(throttled, lambda: state_of(follower) is FollowerState.HELD_BACK)
    begun = throttled.now
    follower.throttle.choose("orders", frozenset())
    run_until(throttled, lambda: has_all(throttled))
    assert throttled.now - begun < 0.5


def test_a_follower_goes_on_at_once_when_its_limit_is_raised(throttled: Replicas) -> None:
    follower = throttled[2]
    run_until(throttled, lambda: state_of(follower) is FollowerState.HELD_BACK)
    begun = throttled.now
    follower.throttle.bytes.set_limit(10**9)
    run_until(throttled, lambda: has_all(throttled))
    assert throttled.now - begun < 0.5


def test_a_follower_in_the_in_sync_set_is_never_held_back(throttled: Replicas) -> None:
    throttled.elect(1)
    run_until(throttled, lambda: has_all(throttled))
    assert throttled.now < 0.5
    assert throttled[2].throttle.bytes.is_exceeded, "what it fetches counts all the same"


def test_a_follower_that_had_everything_lately_is_not_held_back(throttled: Replicas) -> None:
    """The leader may wait for it, and so may producers, before the metadata has it in sync."""
    run_until(throttled, lambda: has_all(throttled))
    assert throttled[2].throttle.bytes.is_exceeded
    begun = throttled.now
    for number in range(20):
        append_value(throttled[1], b"%03d" % number * 100)
    run_until(throttled, lambda: has_all(throttled))
    assert throttled.now - begun < 0.5


def test_a_follower_that_has_been_behind_for_too_long_is_held_back(throttled: Replicas) -> None:
    """It is as if it had never caught up."""
    leader, follower = throttled.all
    run_until(throttled, lambda: has_all(throttled))
    caught_up = throttled.now
    # As fast as one batch for each answer cannot follow.
    while state_of(follower) is FollowerState.FETCHING:
        for _ in range(3):
            append_value(leader, b"more" * 75)
        throttled.sync()
        assert throttled.step()
    assert state_of(follower) is FollowerState.HELD_BACK
    assert throttled.lag_ms_max / 1000 < throttled.now - caught_up < 2


def test_a_follower_that_is_held_back_hears_of_a_new_leader_epoch(throttled: Replicas) -> None:
    follower = throttled[2]
    run_until(throttled, lambda: state_of(follower) is FollowerState.HELD_BACK)
    throttled.elect(1, isr=(1,))
    run_until(throttled, lambda: has_all(throttled))
    assert content(follower) == content(throttled[1])


def test_a_partition_that_is_given_up_while_it_is_held_back_is_left_alone(
    throttled: Replicas,
) -> None:
    follower = throttled[2]
    run_until(throttled, lambda: state_of(follower) is FollowerState.HELD_BACK)
    assert follower.fetcher is not None
    follower.fetcher.unfollow(follower.partition)
    end = follower.log.log_end_offset
    throttled.run(50)
    assert follower.log.log_end_offset == end


def test_what_is_damaged_on_the_way_is_fetched_again(replicas: Replicas) -> None:
    leader, follower = replicas.all
    leader.corrupts = 1
    append(leader.partition)
    replicas.run(30)
    assert "replica_fetch_delayed" in follower.lines.events
    assert content(follower) == content(leader) != b""


def test_a_follower_whose_disk_was_full_goes_on_when_there_is_room(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = replicas.all

    def refuse(self: Log, placed: object) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    monkeypatch.setattr(Log, "append_replicated", refuse)
    append(leader.partition)
    replicas.run(20)
    assert "replica_fetch_delayed" in follower.lines.events
    monkeypatch.undo()
    replicas.run(30)
    assert content(follower) == content(leader) != b""


def test_a_follower_whose_disk_has_failed_stops(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = replicas.all
    follower.log.storage_error = "the disk is gone"
    append(leader.partition)
    replicas.run(20)
    assert state_of(follower) is FollowerState.STOPPED
    follower.log.storage_error = None


def test_a_follower_whose_disk_fails_does_not_say_that_it_has_the_records(
    replicas: Replicas,
) -> None:
    leader, follower = replicas.all
    append(leader.partition)
    leader.sink.sync()
    replicas.run(10, syncs=False)
    assert follower.partition.log_end_offset == 1
    assert follower.log.durable_offset == 0
    follower.waiting.refuse(follower.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    replicas.run(60, syncs=False)
    assert leader.partition.state.followers[2].log_end_offset == 0
    assert leader.partition.high_watermark == 0
    replicas.run(60)
    assert leader.partition.high_watermark == 1


def test_a_fenced_follower_stops_until_it_hears_of_a_newer_epoch(replicas: Replicas) -> None:
    leader, follower = replicas.all
    replicas.run(5)
    # The leader has heard of an epoch that the follower has not.
    leader.partition.lead(PartitionImage(0, 1, 5, 5, (1, 2), (1, 2)), NOW)
    replicas.run(10)
    assert state_of(follower) is FollowerState.STOPPED
    replicas.leader_epoch = replicas.partition_epoch = 5
    replicas.elect(1)
    append(leader.partition)
    replicas.run(20)
    assert content(follower) == content(leader) != b""


def test_an_answer_of_an_older_epoch_is_dropped(replicas: Replicas) -> None:
    leader, follower = replicas.all
    append(leader.partition)
    leader.sink.sync()
    replicas.step()  # the request leaves
    replicas.elect(2)
    assert replicas.leader is follower
    replicas.run(20)
    assert follower.partition.log_end_offset == 0, "what came late was not appended"
    assert content(leader) == content(follower)


def test_a_replica_that_is_being_cut_leads_when_that_is_done(replicas: Replicas) -> None:
    first, second = replicas.all
    append_value(first, b"only the first has it")
    first.sink.sync()
    first.is_reachable = False
    replicas.elect(2)
    append_value(second, b"only the second has it")
    second.sink.sync()
    replicas.run(6, syncs=False)
    assert first.log.is_truncating
    replicas.elect(1)
    assert not first.partition.is_leader, "it would serve what is about to go"
    with pytest.raises(ApiError):
        first.partition.read(0, 1000, replica_id=2)
    first.sink.sync()
    assert first.partition.is_leader
    assert first.partition.state.leader_epoch_start_offset == first.log.log_end_offset == 0
    first.is_reachable = True
    replicas.run(40)
    assert content(first) == content(second)


def test_a_follower_knows_the_last_stable_offset(replicas: Replicas) -> None:
    leader, follower = replicas.all
    append(leader.partition)
    leader.partition.append_as_leader(
        batch(NOW, producer_id=7, sequence=0, transactional=True), NOW
    )
    end_transaction(leader.partition, 7, commit=True)
    leader.sink.sync()
    replicas.step()
    replicas.step()  # all three batches in one answer
    assert follower.partition.log_end_offset == 3
    # The leader had committed nothing when it answered: the transaction's end may still be lost.
    assert follower.partition.last_stable_offset == 0
    replicas.run(30)
    assert follower.partition.last_stable_offset == 3


def test_a_transaction_that_ends_above_the_high_watermark_is_still_open(
    replicas: Replicas,
) -> None:
    leader, follower = replicas.all
    leader.partition.append_as_leader(
        batch(NOW, producer_id=7, sequence=0, transactional=True), NOW
    )
    end_transaction(leader.partition, 7, commit=False)
    leader.sink.sync()
    replicas.step()
    replicas.step()
    follower.partition.hear_from_leader(1, 0)
    assert follower.partition.high_watermark == 1
    assert follower.partition.last_stable_offset == 0
    follower.sink.sync()
    follower.partition.truncate_to(1, lambda failure: None)
    follower.sink.sync()
    assert follower.partition.last_stable_offset == 0, "its marker was cut off: it is open again"


def run_history(replicas: Replicas, seed: int) -> None:
    """Three replicas, all in sync: elections, crashes that lose what was not synced, cuts of the
    network and slow disks. What was committed is in every later leader's log, and in the end all
    logs are the same."""
    random = Random(seed)
    replicas.elect(1)
    committed = b""
    values = 0
    for _ in range(random.randint(50, 300)):
        replica = random.choice(replicas.all)
        match random.choice(("append",) * 4 + ("step",) * 12 + ("sync",) * 4 + ("cut", "fault")):
            case "append" if replicas.leader.partition.is_leader:
                values += 1
                append_value(replicas.leader, b"%d" % values)
            case "sync":
                replica.sink.sync()
                replica.waiting.serve()
            case "cut":
                replica.is_reachable = not replica.is_reachable
            case "fault":
                if random.random() < 0.5:
                    replica.crash()
                replicas.elect(random.choice((1, 2, 3)))
            case _:
                replicas.step()
        leader = replicas.leader
        if not leader.partition.is_leader:
            continue
        held = content(leader)
        assert held.startswith(committed)
        committed = max(committed, _below(held, leader.partition.high_watermark), key=len)
    for replica in replicas.all:
        replica.is_reachable = True
    replicas.elect(random.choice((1, 2, 3)))
    replicas.run(400)
    append_value(replicas.leader, b"the last")
    replicas.run(400)
    logs = {content(replica) for replica in replicas.all}
    assert len(logs) == 1
    assert logs.pop().startswith(committed)
    assert {each.partition.high_watermark for each in replicas.all} == {
        replicas.leader.log.log_end_offset
    }


@pytest.mark.parametrize("seed", range(40))
def test_replicas_agree_after_any_history(make: Make, seed: int) -> None:
    run_history(make((1, 2, 3)), seed)


def _report_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "tidelog.cluster.replication.replica_fetcher._Follower.is_durable",
        property(lambda self: True),
    )


def _cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "divergence", lambda self, leader_end: self.high_watermark)


def _keep_what_diverges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_diverging_epoch", lambda self, offset, epoch: None)


def _take_answers_of_older_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ReplicaFetcher,
        "_is_current",
        lambda self, follower, wanted: not follower.partition.is_leader,
    )


def _commit_without_followers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationState, "awaits", lambda self, broker_id: False)


def _forget_the_session_of_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerSession, "lose", lambda self: None)


@pytest.mark.parametrize(
    "plant",
    [
        _report_what_is_not_synced,
        _cut_to_the_high_watermark,
        _keep_what_diverges,
        _take_answers_of_older_epochs,
        _commit_without_followers,
        _forget_the_session_of_a_lost_answer,
    ],
)
def test_a_planted_mistake_is_found(
    make: Make, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    for seed in range(60):
        try:
            run_history(make((1, 2, 3)), seed)
        except (AssertionError, ApiError):
            return
    pytest.fail("60 histories have not found it")


def _below(data: bytes, offset: int) -> bytes:
    """The batches below an offset."""
    end = 0
    for at, header in iterate_headers(memoryview(data)):
        if header.next_offset > offset:
            break
        end = at + header.size_bytes
    return data[:end]
