from dataclasses import replace

import pytest

from tests.coordinator.group_driver import FAST, Driver, subscription
from tidelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
)
from tidelog.protocol.errors import ApiError, ErrorCode

NONE = ErrorCode.NONE


def blob(*partitions: int) -> bytes:
    rows = [TopicPartitions(topic="t", partitions=list(partitions))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), 3)


def partitions_of(data: bytes) -> set[int]:
    return {p for row in decode_assignment(data).assigned_partitions for p in row.partitions}


def classic_pair(driver: Driver) -> tuple[str, str]:
    """Two classic consumers that share topic t."""
    protocols = [("cooperative-sticky", subscription("t")), ("range", subscription("t"))]
    tickets = [driver.join(version=3, protocols=protocols) for _ in range(2)]
    driver.advance(1)
    leader = tickets[0].response.leader
    (other,) = [t.response.member_id for t in tickets if t.response.member_id != leader]
    driver.sync(other, 1)
    driver.sync(leader, 1, {leader: blob(0, 1), other: blob(2, 3)})
    return leader, other


def rejoin(driver: Driver, member: str, owned: set[int], generation: int) -> tuple[int, set[int]]:
    """A classic member follows a rebalance; its new generation and partitions."""
    metadata = subscription("t", owned={"t": owned}, generation=generation)
    ticket = driver.join(
        member_id=member, protocols=[("cooperative-sticky", metadata), ("range", metadata)]
    )
    response = ticket.response
    assert response.error_code == NONE
    sync = driver.sync(member, response.generation_id)
    assert sync.response.error_code == NONE
    return response.generation_id, partitions_of(sync.response.assignment)


def test_a_live_classic_group_becomes_a_consumer_group() -> None:
    driver = Driver()
    leader, other = classic_pair(driver)
    driver.commit(member_id=leader, epoch=1, offset=42)

    new = driver.consumer("new", 0)
    assert driver.assigned(new) == {}
    assert [row.group_type for row in driver.shard.list_groups((), ())] == ["consumer"]
    assert driver.fetch().committed_offset == 42

    owned = {leader: {0, 1}, other: {2, 3}}
    generations = {leader: 1, other: 1}
    for _ in range(3):
        for member in (leader, other):
            beat = driver.heartbeat(member, generations[member])
            if beat == ErrorCode.REBALANCE_IN_PROGRESS:
                generations[member], owned[member] = rejoin(
                    driver, member, owned[member], generations[member]
                )
        new = driver.consumer("new", new.member_epoch, owned=driver.assigned(new) or {})
    described = driver.shard.describe_consumer("g")
    assert described.group_state == "Stable"
    assert sorted(m.member_type for m in described.members) == [0, 0, 1]
    assert sorted(map(len, owned.values())) in ([1, 1], [1, 2])
    assert driver.commit(member_id=leader, epoch=generations[leader]) == NONE
    driver.restart()
    assert driver.shard.describe_consumer("g") == described


def test_the_last_consumer_protocol_member_takes_the_group_back_to_classic() -> None:
    driver = Driver()
    leader, other = classic_pair(driver)
    driver.consumer("new", 0)
    for member, owned in ((leader, {0, 1}), (other, {2, 3})):
        rejoin(driver, member, owned, 1)
    driver.consumer("new", -1)
    assert [row.group_type for row in driver.shard.list_groups((), ())] == ["classic"]
    group = driver.shard.groups.classic("g")
    assert group is not None
    assert driver.heartbeat(leader, group.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [
        driver.join(
            member_id=m, protocols=[("cooperative-sticky", subscription("t")), ("range", b"")]
        )
        for m in (leader, other)
    ]
    generation = tickets[0].response.generation_id
    assert {t.response.generation_id for t in tickets} == {generation}
    assert tickets[0].response.protocol_name in ("cooperative-sticky", "range")
    driver.restart()
    assert driver.shard.groups.classic("g") is not None


def test_a_consumer_that_dies_takes_the_group_back_too() -> None:
    driver = Driver(replace(FAST, group_consumer_session_timeout_ms=6_000))
    leader, _ = classic_pair(driver)
    driver.consumer("new", 0)
    driver.advance(6_001)
    group = driver.shard.groups.classic("g")
    assert group is not None
    assert leader in group.members


def test_two_consumers_that_die_in_one_moment_take_the_group_back() -> None:
    driver = Driver(replace(FAST, group_consumer_session_timeout_ms=6_000))
    leader, other = classic_pair(driver)
    driver.consumer("new", 0)
    driver.consumer("newer", 0)
    driver.advance(6_001)
    group = driver.shard.groups.classic("g")
    assert group is not None
    assert set(group.members) == {leader, other}
    driver.restart()
    assert driver.shard.groups.classic("g") is not None


def test_a_migration_can_be_switched_off() -> None:
    driver = Driver(replace(FAST, group_consumer_migration_policy="disabled"))
    classic_pair(driver)
    with pytest.raises(ApiError) as caught:
        driver.consumer("new", 0)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_groups_of_consumers_can_migrate() -> None:
    driver = Driver()
    driver.stable_group(1, protocol_type="connect")
    with pytest.raises(ApiError) as caught:
        driver.consumer("new", 0)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_is_taken_over_with_its_offsets() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    driver.commit(member_id=member, epoch=1, offset=5)
    driver.leave(member)
    response = driver.consumer("new", 0)
    assert driver.assigned(response) == {"t": {0, 1, 2, 3}}
    assert driver.fetch().committed_offset == 5
    driver.restart()
    assert driver.shard.describe_consumer("g").group_state == "Stable"


def test_a_simple_group_is_taken_over_with_its_offsets() -> None:
    driver = Driver()
    driver.commit(offset=5)
    driver.consumer("new", 0)
    driver.restart()
    assert driver.fetch().committed_offset == 5
    assert driver.shard.describe_consumer("g").group_state == "Stable"


def test_an_empty_consumer_group_takes_classic_members_again() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    driver.commit(member_id="a", epoch=1, offset=9)
    driver.consumer("a", -1)
    first = driver.join()
    assert first.response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    second = driver.join(member_id=first.response.member_id)
    driver.advance(1)
    assert second.response.error_code == NONE
    assert driver.fetch().committed_offset == 9
    assert driver.shard.describe("g", 6).error_code == NONE


def test_joins_that_wait_are_sent_back_when_the_group_changes_its_kind() -> None:
    driver = Driver()
    leader, other = classic_pair(driver)
    waiting = driver.join(member_id=leader, protocols=[("range", subscription("t"))])
    assert waiting.waits
    driver.consumer("new", 0)
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_members_join_and_leave_a_consumer_group() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    protocols = [("range", subscription("t"))]
    first = driver.join(protocols=protocols)
    assert first.response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member = first.response.member_id
    joined = driver.join(member_id=member, protocols=protocols)
    assert joined.response.error_code == NONE
    generation = joined.response.generation_id
    assert partitions_of(driver.sync(member, generation).response.assignment) == set()
    driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    driver.consumer("a", 1, owned={"t": {0, 1}})
    assert driver.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(driver, member, set(), generation) == (generation, {2, 3})
    assert driver.heartbeat(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    wrong = driver.join(protocol_type="connect", protocols=protocols)
    assert wrong.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.leave(member, "a") == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.assigned(driver.consumer("a", 2, owned={"t": {0, 1}})) == {"t": {0, 1, 2, 3}}


def test_a_classic_member_that_leaves_is_removed_though_the_log_refuses_it_first() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    protocols = [("range", subscription("t"))]
    joined = driver.join_with_id(protocols=protocols, session_ms=10_000)
    member, generation = joined.response.member_id, joined.response.generation_id
    driver.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.leave(member) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert driver.heartbeat(member, generation) != ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(10_001)
    assert driver.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_rejoin_is_fenced() -> None:
    driver = Driver()
    leader, other = classic_pair(driver)
    driver.consumer("new", 0)
    epoch = 2
    for _ in range(8):
        driver.heartbeat(leader, 1)
        driver.heartbeat(other, 1)
        driver.advance(9_000)
        epoch = driver.consumer("new", epoch).member_epoch
    assert driver.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.assigned(
        driver.consumer("new", epoch, topics=["t"], owned={}, rebalance_ms=1)
    ) == {"t": {0, 1, 2, 3}}


def test_a_static_member_changes_its_protocol_in_place() -> None:
    driver = Driver()
    metadata = [("range", subscription("t"))]
    ticket = driver.join(instance_id="one", protocols=metadata)
    driver.advance(1)
    member = ticket.response.member_id
    driver.sync(member, 1, {member: blob(0, 1, 2, 3)})
    upgraded = driver.consumer("new", 0, instance_id="one")
    assert driver.assigned(upgraded) == {"t": {0, 1, 2, 3}}
    back = driver.join(instance_id="one", protocols=metadata)
    assert back.response.error_code == NONE
    assert driver.shard.groups.classic("g") is not None
    generation = driver.shard.groups.classic("g").generation  # type: ignore[union-attr]
    if back.response.generation_id == generation:
        sync = driver.sync(back.response.member_id, generation, instance_id="one")
        assert partitions_of(sync.response.assignment) == {0, 1, 2, 3}
