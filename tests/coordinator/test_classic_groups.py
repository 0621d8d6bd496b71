from dataclasses import replace

import pytest

from tests.coordinator.group_driver import FAST, Driver, subscription
from tidelog.coordinator.records.group import GroupMetadataValue
from tidelog.protocol.errors import ErrorCode

NONE = ErrorCode.NONE


def test_a_new_member_is_sent_away_with_an_id_first() -> None:
    driver = Driver()
    first = driver.join()
    assert first.response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.response.member_id.startswith("c-")
    second = driver.join(member_id=first.response.member_id)
    assert second.waits
    driver.advance(1)
    assert second.response.error_code == NONE
    assert second.response.leader == second.response.member_id
    assert [m.member_id for m in second.response.members] == [second.response.member_id]


def test_clients_before_version_4_join_at_once() -> None:
    driver = Driver()
    ticket = driver.join(version=3)
    driver.advance(1)
    assert ticket.response.generation_id == 1


def test_a_new_group_waits_for_more_members() -> None:
    driver = Driver(replace(FAST, group_initial_rebalance_delay_ms=3_000))
    first = driver.join_with_id()
    driver.advance(2_000)
    second = driver.join_with_id()
    driver.advance(1_500)
    assert first.waits, "a member that joined meanwhile makes the delay longer"
    driver.advance(3_000)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    driver = Driver(replace(FAST, group_initial_rebalance_delay_ms=3_000))
    first = driver.join_with_id(rebalance_ms=7_000)
    for _ in range(5):
        driver.advance(2_000)
        driver.join_with_id(rebalance_ms=7_000)
    assert not first.waits


def test_the_leader_gets_the_metadata_of_all_and_members_their_assignment() -> None:
    driver = Driver()
    tickets = [driver.join(version=3, protocols=[("range", bytes([i]))]) for i in range(3)]
    driver.advance(1)
    responses = [ticket.response for ticket in tickets]
    (leader,) = {response.leader for response in responses}
    by_id = {response.member_id: response for response in responses}
    assert sorted(m.metadata for m in by_id[leader].members) == [b"\0", b"\1", b"\2"]
    assert all(not r.members for r in responses if r.member_id != leader)

    followers = [driver.sync(m, 1) for m in by_id if m != leader]
    assert all(ticket.waits for ticket in followers)
    big = {m: bytes(100_000) + m.encode() for m in by_id}
    assert driver.sync(leader, 1, big).response.assignment == big[leader]
    assert sorted(t.response.assignment for t in followers) == sorted(
        big[m] for m in by_id if m != leader
    )
    late = next(m for m in by_id if m != leader)
    assert driver.sync(late, 1).response.assignment == big[late]


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    driver = Driver()
    first = driver.join(version=3, protocols=[("range", b"1"), ("range", b"2")])
    second = driver.join(version=3, protocols=[("range", b"3")])
    driver.advance(1)
    assert first.response.error_code == second.response.error_code == NONE
    assert first.response.protocol_name == "range"


def test_a_member_that_joins_makes_the_others_rejoin() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2)
    third = driver.join(version=3)
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = [driver.join(member_id=m) for m in (leader, other)]
    assert third.response.generation_id == 2
    assert {t.response.generation_id for t in rejoined} == {2}
    assert len(rejoined[0].response.members) == 3


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2, session_ms=1_000_000, rebalance_ms=5_000)
    third = driver.join(version=3, rebalance_ms=5_000)
    again = driver.join(member_id=leader, rebalance_ms=5_000)
    driver.advance(4_999)
    assert again.waits
    driver.advance(2)
    assert again.response.generation_id == third.response.generation_id == 2
    assert driver.heartbeat(other, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leadership_moves_when_the_leader_does_not_come_back() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2, rebalance_ms=5_000)
    third = driver.join(version=3, rebalance_ms=5_000)
    again = driver.join(member_id=other, rebalance_ms=5_000)
    driver.advance(5_001)
    assert again.response.leader == third.response.leader != leader


def test_a_silent_member_loses_its_session() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2, session_ms=10_000)
    driver.advance(6_000)
    assert driver.heartbeat(leader, 1) == NONE
    driver.advance(6_000)
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_late_sync_keeps_a_session_alive() -> None:
    driver = Driver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(1)
    leader = tickets[0].response.leader
    (follower,) = [t.response.member_id for t in tickets if t.response.member_id != leader]
    assert driver.sync(leader, 1, {follower: b"late"}).response.error_code == NONE
    driver.advance(9_000)
    assert driver.heartbeat(leader, 1) == NONE
    assert driver.sync(follower, 1).response.assignment == b"late"
    driver.advance(9_000)
    assert driver.heartbeat(follower, 1) == NONE


def test_offset_commits_keep_a_session_alive() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1, session_ms=10_000)
    for _ in range(5):
        driver.advance(8_000)
        assert driver.commit(member_id=member, epoch=1) == NONE
    assert driver.heartbeat(member, 1) == NONE


def test_a_pending_member_that_never_comes_back_is_forgotten() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    driver.join(session_ms=10_000)
    again = driver.join(member_id=member)
    assert again.waits, "the pending member may still come"
    driver.advance(10_001)
    assert again.response.generation_id == 2


def test_wrong_generations_and_unknown_members_are_refused() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    assert driver.heartbeat(member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(member, 1, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync(member, 9).response.error_code == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("nobody", 1).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    unknown = driver.join(member_id="nobody")
    assert unknown.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    elsewhere = driver.join("elsewhere", "nobody")
    assert elsewhere.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_session_timeouts_have_limits() -> None:
    driver = Driver()
    for session_ms in (5_999, 1_800_001):
        ticket = driver.join(session_ms=session_ms)
        assert ticket.response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_protocols_must_have_something_in_common() -> None:
    driver = Driver()
    driver.stable_group(1, protocols=[("range", b""), ("roundrobin", b"")])
    for protocol_type, protocols in (
        ("connect", [("range", b"")]),
        ("consumer", [("sticky", b"")]),
        ("consumer", []),
    ):
        ticket = driver.join(version=3, protocol_type=protocol_type, protocols=protocols)
        assert ticket.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_members_prefer_wins() -> None:
    driver = Driver()
    preferences = [("a", "b"), ("b", "a"), ("b", "a", "c")]
    tickets = [
        driver.join(version=3, protocols=[(name, name.encode()) for name in names])
        for names in preferences
    ]
    driver.advance(1)
    assert {ticket.response.protocol_name for ticket in tickets} == {"b"}


def test_opaque_protocol_types_pass_through() -> None:
    driver = Driver()
    for protocol_type in ("connect", "sr"):
        group = f"{protocol_type}-cluster"
        ticket = driver.join(
            group, version=3, protocol_type=protocol_type, protocols=[("v0", b"\xff\x00")]
        )
        driver.advance(1)
        response = ticket.response
        assert (response.protocol_type, response.protocol_name) == (protocol_type, "v0")
        sync = driver.sync(response.member_id, 1, {response.member_id: b"\x01\xff"}, group=group)
        assert sync.response.assignment == b"\x01\xff"


def test_a_group_has_room_for_so_many() -> None:
    driver = Driver(replace(FAST, group_max_size=2))
    driver.stable_group(2)
    assert driver.join(version=3).response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_leave_in_a_batch() -> None:
    driver = Driver()
    leader, second, third = driver.stable_group(3)
    assert driver.leave(second, "nobody", third) == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE]
    again = driver.join(member_id=leader)
    assert again.response.generation_id == 2
    assert len(again.response.members) == 1


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    driver.leave(member)
    described = driver.shard.describe("g", 6)
    assert (described.group_state, described.protocol_type) == ("Empty", "consumer")
    driver.restart()
    assert driver.shard.describe("g", 6).group_state == "Empty"


def test_a_sync_that_never_comes_starts_the_group_over() -> None:
    driver = Driver()
    tickets = [driver.join(version=3, rebalance_ms=5_000, session_ms=60_000) for _ in range(2)]
    driver.advance(1)
    leader = tickets[0].response.leader
    waiting = driver.sync(leader, 1, {})
    driver.advance(5_001)
    assert waiting.response.error_code == NONE
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(member_id=leader).response.generation_id == 2


def test_followers_in_sync_are_sent_back_when_a_member_joins() -> None:
    driver = Driver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(1)
    leader = tickets[0].response.leader
    (follower,) = [t.response.member_id for t in tickets if t.response.member_id != leader]
    waiting = driver.sync(follower, 1)
    driver.join(version=3)
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.sync(leader, 1).response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_sent_twice_is_answered_twice() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2)
    driver.join(version=3)
    first = driver.join(member_id=leader)
    second = driver.join(member_id=leader)
    assert first.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(member_id=other)
    assert second.response.generation_id == 2


def test_a_follower_that_joins_again_unchanged_keeps_the_generation() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2)
    assert driver.join(member_id=other).response.generation_id == 1
    changed = driver.join(member_id=other, protocols=[("range", b"new")])
    assert changed.waits
    assert driver.join(member_id=leader).response.generation_id == 2


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2)
    assert driver.join(member_id=leader).waits
    assert driver.heartbeat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def static_group(driver: Driver, *instance_ids: str, session_ms: int = 10_000) -> dict[str, str]:
    tickets = {each: driver.join(instance_id=each, session_ms=session_ms) for each in instance_ids}
    driver.advance(1)
    for _ in range(2):
        if len({t.response.generation_id for t in tickets.values() if not t.waits}) != 1:
            tickets = {
                each: driver.join(
                    instance_id=each, member_id=t.response.member_id, session_ms=session_ms
                )
                for each, t in tickets.items()
            }
    members = {each: ticket.response.member_id for each, ticket in tickets.items()}
    generation = next(iter(tickets.values())).response.generation_id
    leader = next(iter(tickets.values())).response.leader
    driver.sync(leader, generation, {m: f"a-{e}".encode() for e, m in members.items()})
    for member in members.values():
        assert driver.sync(member, generation).response.error_code == NONE
    return members


def test_a_static_member_restarts_without_a_rebalance() -> None:
    driver = Driver()
    members = static_group(driver, "one", "two")
    generation = driver.shard.groups.classic("g").generation  # type: ignore[union-attr]
    for instance_id in ("one", "two"):
        again = driver.join(instance_id=instance_id)
        response = again.response
        assert (response.error_code, response.generation_id) == (NONE, generation)
        assert response.member_id != members[instance_id]
        if response.leader == response.member_id:
            assert response.skip_assignment
            assert len(response.members) == 2
        sync = driver.sync(response.member_id, generation, instance_id=instance_id)
        assert sync.response.assignment == f"a-{instance_id}".encode()
        assert driver.heartbeat(members[instance_id], generation) == ErrorCode.UNKNOWN_MEMBER_ID
        fenced = driver.heartbeat(members[instance_id], generation, instance_id=instance_id)
        assert fenced == ErrorCode.FENCED_INSTANCE_ID
        members[instance_id] = response.member_id
    for instance_id, member_id in members.items():
        assert driver.heartbeat(member_id, generation, instance_id=instance_id) == NONE


def test_an_old_client_that_is_a_static_leader_is_not_told_so() -> None:
    driver = Driver()
    members = static_group(driver, "one")
    again = driver.join(instance_id="one", version=8)
    assert again.response.leader == members["one"] != again.response.member_id


def test_a_static_swap_that_the_log_refuses_changes_nothing() -> None:
    driver = Driver()
    members = static_group(driver, "one")
    driver.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.join(instance_id="one").response.error_code != NONE
    assert driver.heartbeat(members["one"], 1, instance_id="one") == NONE


def test_a_static_member_that_stays_away_is_removed() -> None:
    driver = Driver()
    members = static_group(driver, "one", "two")
    generation = driver.shard.groups.classic("g").generation  # type: ignore[union-attr]
    for _ in range(3):
        driver.advance(4_000)
        driver.heartbeat(members["one"], generation, instance_id="one")
    assert (
        driver.heartbeat(members["one"], generation, instance_id="one")
        == ErrorCode.REBALANCE_IN_PROGRESS
    )


def test_an_operator_removes_a_static_member_by_its_instance_id() -> None:
    driver = Driver()
    static_group(driver, "one", "two")
    assert driver.leave(instance_ids=("one", "three")) == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(driver.shard.describe("g", 6).members) == 1


def test_two_live_clients_with_one_instance_id_fence_each_other() -> None:
    driver = Driver()
    members = static_group(driver, "one", "two")
    leader_ticket = driver.join(instance_id="two", member_id=members["two"])
    other = driver.join(instance_id="two")
    if leader_ticket.waits or leader_ticket.response.error_code:
        assert leader_ticket.response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(members["two"], 1, instance_id="two").response.error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert other.waits or other.response.error_code == NONE


def test_when_the_assignment_cannot_be_stored_everybody_is_told() -> None:
    driver = Driver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(1)
    leader = tickets[0].response.leader
    (follower,) = [t.response.member_id for t in tickets if t.response.member_id != leader]
    waiting = driver.sync(follower, 1)
    driver.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = driver.sync(leader, 1, {})
    assert refused.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_restart_keeps_members_generation_and_assignments() -> None:
    driver = Driver()
    leader, other = driver.stable_group(2, protocols=[("range", subscription("t"))])
    driver.restart()
    assert driver.heartbeat(leader, 1) == NONE
    assert driver.sync(other, 1).response.assignment == f"a-{other}".encode()
    described = driver.shard.describe("g", 6)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    driver.advance(10_001)
    assert driver.shard.describe("g", 6).group_state == "Empty", "sessions run on after a restart"


def test_groups_are_listed_by_state_and_type() -> None:
    driver = Driver()
    driver.stable_group(1, "stable")
    driver.commit("simple")
    driver.consumer("m", 0, group="modern")

    def listed(*states: str, types: tuple[str, ...] = ()) -> set[tuple[str, str, str]]:
        return {
            (row.group_id, row.group_state, row.group_type)
            for row in driver.shard.list_groups(states, types)
        }

    assert listed() == {
        ("stable", "Stable", "classic"),
        ("simple", "Empty", "classic"),
        ("modern", "Stable", "consumer"),
    }
    assert listed("empty") == {("simple", "Empty", "classic")}
    assert listed(types=("Consumer",)) == {("modern", "Stable", "consumer")}
    assert listed("Stable", types=("classic",)) == {("stable", "Stable", "classic")}


def test_unknown_groups_are_dead_or_not_found() -> None:
    driver = Driver()
    assert driver.shard.describe("nope", 5).group_state == "Dead"
    assert driver.shard.describe("nope", 5).error_code == NONE
    assert driver.shard.describe("nope", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.shard.describe_consumer("nope").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_empty_groups_can_be_deleted() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    driver.commit(member_id=member, epoch=1)

    def delete() -> ErrorCode:
        return ErrorCode(driver.run(driver.shard.delete(["g"]))[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    driver.leave(member)
    assert delete() == NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.fetch().committed_offset == -1
    driver.restart()
    assert driver.shard.list_groups((), ()) == []


def test_unloading_sends_everybody_to_the_new_coordinator() -> None:
    driver = Driver()
    tickets = [driver.join(version=3) for _ in range(2)]
    for reply in driver.shard.unload():
        reply.ticket.resolve(reply.response)
    assert {t.response.error_code for t in tickets} == {ErrorCode.NOT_COORDINATOR}


def records_of(driver: Driver, group: str) -> list[tuple[str, str | None]]:
    """The records of a group in the log, as hexadecimal digits."""
    wanted = b"\x00\x02" + len(group).to_bytes(2, "big") + group.encode()
    return [
        (key.hex(), None if value is None else value.hex())
        for key, value, _, _ in driver.log
        if key == wanted
    ]


EMPTY_GROUP = (
    "0003"  # the version
    "0000"  # no protocol type yet
    "00000000"  # generation 0
    "ffff"  # no protocol
    "ffff"  # no leader
    "{since:016x}"
    "00000000"  # no members
)


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_the_first_record_of_a_group_is_an_empty_one(version: int) -> None:
    """Kafka writes it with the join that makes the group, whatever the answer."""
    driver = Driver()
    driver.join("new", version=version)
    empty = EMPTY_GROUP.format(since=driver.now_ms)
    assert records_of(driver, "new") == [("000200036e6577", empty)]


def test_a_group_whose_first_member_never_came_back_outlives_a_restart_and_is_removed() -> None:
    driver = Driver()
    driver.join("new", version=9)
    driver.restart()
    assert [row.group_id for row in driver.shard.list_groups([], [])] == ["new"]
    driver.advance(driver.config.offsets_retention_check_interval_ms + 1)
    assert records_of(driver, "new")[1:] == [("000200036e6577", None)]
    driver.restart()
    assert driver.shard.list_groups([], []) == []


def test_a_join_is_refused_when_its_group_cannot_be_written() -> None:
    driver = Driver()
    driver.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    ticket = driver.join("new", version=9)
    assert ticket.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.shard.list_groups([], []) == []


def test_the_record_of_a_generation_tells_when_its_state_began() -> None:
    """Of the rebalance that it completes, as in Kafka, and not of the write."""
    driver = Driver()
    ticket = driver.join("g", version=3)
    driver.advance(1)
    joined_ms = driver.now_ms
    member_id = ticket.response.member_id
    driver.advance(500)
    driver.sync(member_id, 1, {member_id: b"a"})
    _, last = records_of(driver, "g")[-1]
    assert last is not None
    record = GroupMetadataValue.decode(bytes.fromhex(last), 3, 2)
    assert joined_ms - 1 <= record.current_state_timestamp <= joined_ms
