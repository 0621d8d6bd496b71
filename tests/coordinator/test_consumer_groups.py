from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.group_driver import FAST, Driver, FakeTopics
from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tidelog.protocol.errors import ApiError, ErrorCode


def refused(driver: Driver, *args: object, **options: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        driver.consumer(*args, **options)  # type: ignore[arg-type]
    return caught.value.code


def test_partitions_are_let_go_before_another_member_gets_them() -> None:
    """The transcript of a rebalance, one line per heartbeat."""
    driver = Driver()
    story: list[str] = []

    def beat(member: str, epoch: int, owned: set[int] | None = None) -> None:
        given = None if owned is None else {"t": owned} if owned else {}
        response = driver.consumer(member, epoch, owned=given)
        assignment = driver.assigned(response)
        partitions = "-" if assignment is None else sorted(assignment.get("t", ()))
        story.append(f"{member} at {epoch}: epoch {response.member_epoch}, {partitions}")

    beat("a", 0)
    beat("a", 1, {0, 1, 2, 3})
    beat("b", 0)
    beat("b", 2, set())
    beat("a", 1, {0, 1, 2, 3})
    beat("b", 2, set())
    beat("a", 1, {0, 1})
    beat("b", 2, set())
    beat("a", 2, {0, 1})
    assert story == [
        "a at 0: epoch 1, [0, 1, 2, 3]",
        "a at 1: epoch 1, -",
        "b at 0: epoch 2, []",
        "b at 2: epoch 2, -",
        "a at 1: epoch 1, [0, 1]",
        "b at 2: epoch 2, -",
        "a at 1: epoch 2, -",
        "b at 2: epoch 2, [2, 3]",
        "a at 2: epoch 2, -",
    ]
    assert driver.shard.describe_consumer("g").group_state == "Stable"


def settle(driver: Driver, members: dict[str, tuple[int, set[int]]], group: str = "g") -> None:
    """Heartbeats of honest members until nothing changes; updates epochs and partitions."""
    for _ in range(20):
        before = dict(members)
        for member, (epoch, owned) in list(members.items()):
            response = driver.consumer(
                member, epoch, group=group, owned={"t": owned} if owned else {}
            )
            assigned = driver.assigned(response)
            now = owned if assigned is None else assigned.get("t", set())
            members[member] = (response.member_epoch, now)
        if members == before:
            return
    raise AssertionError(f"the group does not come to rest: {members}")


def test_everybody_gets_a_share_and_the_rest_takes_over() -> None:
    driver = Driver()
    members: dict[str, tuple[int, set[int]]] = {}
    for name in ("a", "b", "c"):
        response = driver.consumer(name, 0)
        assigned = driver.assigned(response) or {}
        members[name] = (response.member_epoch, assigned.get("t", set()))
    settle(driver, members)
    assert sorted(len(owned) for _, owned in members.values()) == [1, 1, 2]
    assert set().union(*(owned for _, owned in members.values())) == {0, 1, 2, 3}
    response = driver.consumer("b", -1)
    assert response.member_epoch == -1
    del members["b"]
    settle(driver, members)
    assert sorted(len(owned) for _, owned in members.values()) == [2, 2]


def test_epochs_fence_members_that_fell_behind() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    assert refused(driver, "a", 5) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(driver, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(driver, "a", 1, group="other") == ErrorCode.GROUP_ID_NOT_FOUND
    driver.set_topics(driver.topics.with_topic("t", 6))
    response = driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    assert response.member_epoch == 2
    lost = driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    assert lost.member_epoch == 2, "the answer may have been lost: the epoch before is accepted"
    assert refused(driver, "a", 1) == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_gets_its_assignment_again() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    again = driver.consumer("a", 0)
    assert driver.assigned(again) == {"t": {0, 1, 2, 3}}


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({"rebalance_timeout_ms": -1}, 1),
        ({"topic_partitions": None}, 1),
        ({"subscribed_topic_names": None}, 1),
        ({"instance_id": ""}, 1),
        ({"instance_id": "  "}, 1),
        ({"member_id": "", "member_epoch": -1}, 0),
        ({"member_id": "", "member_epoch": 1}, 0),
        ({"rack_id": ""}, 1),
        ({"member_id": ""}, 1),
        ({"member_epoch": -3}, 1),
        ({"member_epoch": -2}, 1),
        ({"group_id": ""}, 1),
    ],
)
def test_incomplete_requests_are_invalid(changes: dict[str, object], version: int) -> None:
    from tidelog.coordinator.groups.client_context import ClientContext
    from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    driver = Driver()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as caught:
        driver.shard.consumer_heartbeat(ClientContext("c", "/h", version), request, driver.now_ms)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("subscription", [{"topics": []}, {"topics": None, "regex": ""}])
def test_a_member_may_join_before_it_knows_its_topics(subscription: dict[str, Any]) -> None:
    """So the Java consumer does for subscribe(Pattern); it tells the topics when it has them."""
    driver = Driver()
    joined = driver.consumer("a", 0, **subscription)
    assert (joined.member_epoch, driver.assigned(joined)) == (1, {})
    assert driver.consumer("a", 1).member_epoch == 1
    response = driver.consumer("a", 1, topics=["t"])
    assert (response.member_epoch, driver.assigned(response)) == (2, {"t": {0, 1, 2, 3}})


def test_the_server_names_members_of_version_0() -> None:
    driver = Driver()
    response = driver.consumer("", 0, version=0)
    assert response.member_id == "id1"
    assert driver.consumer("id1", 1).member_epoch == 1


def test_assignors_are_chosen_by_the_members() -> None:
    driver = Driver()
    assert refused(driver, "a", 0, assignor="sticky") == ErrorCode.UNSUPPORTED_ASSIGNOR
    driver.consumer("a", 0, assignor="range")
    assert driver.shard.describe_consumer("g").assignor_name == "range"


def test_a_group_has_room_for_so_many() -> None:
    driver = Driver(replace(FAST, group_consumer_max_size=1))
    driver.consumer("a", 0)
    assert refused(driver, "b", 0) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.consumer("a", 1).member_epoch == 1


def test_a_silent_member_is_fenced_after_its_session() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    driver.consumer("b", 0)
    driver.advance(30_000)
    driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    driver.advance(15_001)
    assert refused(driver, "b", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    response = driver.consumer("a", 1, owned={"t": {0, 1}})
    assert response.member_epoch == 3
    assert driver.assigned(response) == {"t": {0, 1, 2, 3}}


def test_a_member_that_does_not_let_go_in_time_is_fenced() -> None:
    driver = Driver()
    driver.consumer("a", 0, rebalance_ms=10_000)
    driver.consumer("b", 0)
    driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    for _ in range(3):
        driver.advance(4_000)
        if driver.now_ms < 1_010_000:
            driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    assert refused(driver, "a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.assigned(driver.consumer("b", 2)) == {"t": {0, 1, 2, 3}}


def test_new_partitions_and_topics_are_assigned() -> None:
    driver = Driver()
    driver.consumer("a", 0, topics=["t", "later"])
    driver.set_topics(driver.topics.with_topic("t", 6))
    assert driver.assigned(driver.consumer("a", 1)) == {"t": set(range(6))}
    driver.set_topics(driver.topics.with_topic("later", 2))
    assert driver.assigned(driver.consumer("a", 2)) == {"t": set(range(6)), "later": {0, 1}}
    driver.set_topics(driver.topics.with_topic("unrelated", 2))
    assert driver.consumer("a", 3).member_epoch == 3


def test_a_topic_made_anew_is_another_topic() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    driver.set_topics(driver.topics.without_topic("t"))
    driver.set_topics(driver.topics.with_topic("t", 2, generation=1))
    response = driver.consumer("a", 1, owned={})
    assert driver.assigned(response) == {"t": {0, 1}}


def test_expressions_follow_the_topics() -> None:
    topics = FakeTopics().with_topic("orders-eu", 1).with_topic("users", 1)
    driver = Driver(topics=topics)
    response = driver.consumer("a", 0, regex="orders-.*")
    assert driver.assigned(response) == {"orders-eu": {0}}
    driver.advance(2_000)
    driver.set_topics(driver.topics.with_topic("orders-us", 2))
    assert driver.assigned(driver.consumer("a", 1)) == {"orders-eu": {0}, "orders-us": {0, 1}}
    driver.restart()
    assert driver.consumer("a", 2).member_epoch == 2
    driver.advance(2_000)
    driver.set_topics(driver.topics.without_topic("orders-eu"))
    response = driver.consumer("a", 2, owned={"orders-us": {0, 1}})
    assert response.member_epoch == 3
    changed = driver.consumer("a", 3, regex="users", owned={"orders-us": {0, 1}})
    assert driver.assigned(changed) == {}
    assert driver.assigned(driver.consumer("a", 3, owned={})) == {"users": {0}}
    driver.consumer("a", -1)
    assert driver.shard.groups.consumer("g").regexes == {}  # type: ignore[union-attr]


def test_a_bad_expression_is_refused_and_leaves_no_trace() -> None:
    driver = Driver()
    assert refused(driver, "a", 0, regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.shard.list_groups((), ()) == []


def test_a_static_member_comes_back_to_its_partitions() -> None:
    driver = Driver()
    driver.consumer("a", 0, instance_id="one")
    assert refused(driver, "a2", 0, instance_id="one") == ErrorCode.UNRELEASED_INSTANCE_ID
    left = driver.consumer("a", -2, instance_id="one")
    assert left.member_epoch == -2
    back = driver.consumer("a2", 0, instance_id="one")
    assert (back.member_epoch, driver.assigned(back)) == (1, {"t": {0, 1, 2, 3}})
    assert refused(driver, "a", 1, instance_id="one") == ErrorCode.FENCED_INSTANCE_ID
    assert refused(driver, "x", 1, instance_id="two") == ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.consumer("a2", -2, instance_id="one")
    assert again.member_epoch == -2
    same = driver.consumer("a2", 0, instance_id="one")
    assert (same.member_epoch, driver.assigned(same)) == (1, {"t": {0, 1, 2, 3}})


def test_a_static_member_that_stays_away_is_removed() -> None:
    driver = Driver()
    driver.consumer("a", 0, instance_id="one")
    driver.consumer("a", -2, instance_id="one")
    driver.advance(45_001)
    assert driver.shard.describe_consumer("g").group_state == "Empty"


def test_a_restart_changes_nothing() -> None:
    driver = Driver()
    members: dict[str, tuple[int, set[int]]] = {}
    for name in ("a", "b"):
        response = driver.consumer(name, 0, instance_id=f"i-{name}")
        members[name] = (response.member_epoch, (driver.assigned(response) or {}).get("t", set()))
    settle(driver, members)
    before = driver.shard.describe_consumer("g")
    driver.restart()
    assert driver.shard.describe_consumer("g") == before
    log_size = len(driver.log)
    settle(driver, members)
    assert len(driver.log) == log_size, "a settled group writes nothing"
    driver.advance(45_001)
    assert driver.shard.describe_consumer("g").group_state == "Empty"


def test_a_heartbeat_that_the_log_refuses_changes_nothing() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    before = driver.shard.describe_consumer("g")
    driver.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ApiError):
        driver.consumer("b", 0)
    assert driver.shard.describe_consumer("g") == before
    driver.set_topics(driver.topics.with_topic("t", 5))
    driver.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ApiError):
        driver.consumer("a", 1)
    assert driver.consumer("a", 1).member_epoch == 2


def test_the_session_of_a_member_goes_on_when_the_log_refuses_that_it_leaves() -> None:
    driver = Driver()
    driver.consumer("a", 0, instance_id="one")
    driver.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ApiError):
        driver.consumer("a", -1, instance_id="one")
    assert refused(driver, "a2", 0, instance_id="one") == ErrorCode.UNRELEASED_INSTANCE_ID
    driver.advance(45_001)
    assert driver.shard.describe_consumer("g").group_state == "Empty"
    assert driver.consumer("a2", 0, instance_id="one").member_id == "a2"


def test_a_member_whose_session_is_over_is_removed_though_the_log_refuses_it_first() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    driver.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    driver.advance(45_001)
    assert driver.refuse is None
    assert driver.shard.describe_consumer("g").group_state != "Empty"
    driver.advance(1_000)
    assert driver.shard.describe_consumer("g").group_state == "Empty"


def test_a_member_that_does_not_revoke_is_removed_though_the_log_refuses_it_first() -> None:
    driver = Driver()
    driver.consumer("a", 0, rebalance_ms=1_000)
    driver.consumer("b", 0)
    assert driver.assigned(driver.consumer("a", 1)) == {"t": {0, 1}}
    driver.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    driver.advance(1_000)
    assert driver.refuse is None
    assert driver.consumer("a", 1).member_epoch == 1
    driver.advance(1_000)
    assert refused(driver, "a", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_has_its_time_to_revoke_though_the_log_refuses_what_it_revoked() -> None:
    driver = Driver()
    driver.consumer("a", 0, rebalance_ms=1_000)
    driver.consumer("b", 0)
    driver.consumer("a", 1)
    driver.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ApiError):
        driver.consumer("a", 1, owned={"t": {0, 1}})
    driver.advance(1_000)
    assert refused(driver, "a", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_may_have_its_own_timers_within_the_limits() -> None:
    driver = Driver()
    settings = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "1"}
    driver.shard.set_overrides(lambda group_id, name: settings.get(name))
    response: ConsumerGroupHeartbeatResponse = driver.consumer("a", 0)
    assert response.heartbeat_interval_ms == 5_000
    driver.advance(49_000)
    assert driver.consumer("a", 1).member_epoch == 1


def test_offsets_are_committed_under_the_member_epoch() -> None:
    driver = Driver()
    driver.consumer("a", 0)
    assert driver.commit(member_id="a", epoch=1) == ErrorCode.NONE
    assert driver.commit(member_id="a", epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit(member_id="a", epoch=1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert driver.commit(member_id="b", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.fetch(member_id="a", epoch=1).committed_offset == 7
    assert driver.fetch().committed_offset == 7
    assert driver.fetch(member_id="a", epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.fetch(member_id="b", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID


SLOW = replace(FAST, group_consumer_assignment_interval_ms=1_000)


def test_the_assignment_is_computed_once_for_members_that_come_together() -> None:
    driver = Driver(SLOW)
    first = driver.consumer("a", 0)
    assert driver.assigned(first) == {"t": {0, 1, 2, 3}}, "there was none before: no reason to wait"
    for member in "bc":
        joined = driver.consumer(member, 0)
        assert (joined.member_epoch, driver.assigned(joined)) == (1, {})
    assert driver.shard.describe_consumer("g").group_state == "Assigning"
    driver.advance(999)
    assert driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}}).assignment is None
    driver.advance(1)
    response = driver.consumer("a", 1, owned={"t": {0, 1, 2, 3}})
    assert len(driver.assigned(response)["t"]) == 2  # type: ignore[index]
    assert driver.shard.describe_consumer("g").assignment_epoch == 3


def test_when_the_assignment_was_computed_outlives_the_coordinator() -> None:
    driver = Driver(SLOW)
    driver.consumer("a", 0)
    driver.restart()
    assert driver.assigned(driver.consumer("b", 0)) == {}


def test_a_clock_that_was_set_back_does_not_hold_up_the_next_assignment() -> None:
    """Found by the simulator: a group had no assignment for as long as the clock was set back."""
    driver = Driver(SLOW)
    driver.consumer("a", 0)
    driver.now_ms -= 1_000_000
    assert driver.consumer("b", 0).member_epoch == 2


def test_a_topic_that_is_no_longer_subscribed_is_let_go_before_the_next_assignment() -> None:
    driver = Driver(SLOW, FakeTopics().with_topic("t", 1).with_topic("u", 1))
    driver.consumer("a", 0, topics=["t", "u"])
    response = driver.consumer("a", 1, topics=["u"], owned={"t": {0}, "u": {0}})
    assert driver.assigned(response) == {"u": {0}}
    assert response.member_epoch == 1
    response = driver.consumer("a", 1, owned={"u": {0}})
    driver.advance(1_000)
    assert driver.consumer("a", 1, owned={"u": {0}}).member_epoch == 2


def test_a_group_may_have_an_assignment_interval_of_its_own() -> None:
    driver = Driver(SLOW)
    driver.shard.set_overrides(
        lambda group, name: {"consumer.assignment.interval.ms": "5000"}.get(name)
    )
    driver.consumer("a", 0)
    driver.consumer("b", 0)
    driver.advance(4_999)
    assert driver.consumer("b", 1).member_epoch == 1
    driver.advance(1)
    assert driver.consumer("b", 1).member_epoch == 2
