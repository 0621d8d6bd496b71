"""Heartbeats and sessions: when brokers serve, are fenced, and may stop."""

import pytest

from tests.cluster.cluster_host import ClusterHost, broker_uuid
from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import (
    BrokerState,
    Heartbeat,
    fence_expired_broker,
    fence_unreachable_broker,
    heartbeat,
)
from tidelog.cluster.controller.broker_registrations import BrokerRegistration
from tidelog.cluster.controller.directory_changes import (
    DirectoryAssignment,
    assign_replicas_to_dirs,
)
from tidelog.protocol.errors import ApiError, ErrorCode

SESSION_MS = 9000
SERVES = BrokerState(is_caught_up=True, is_fenced=False, should_shut_down=False)
STOPS = BrokerState(is_caught_up=True, is_fenced=True, should_shut_down=True)


def beat(
    host: ClusterHost, broker_id: int, offset: int | None = None, **wants: object
) -> BrokerState:
    """A heartbeat; the broker's image is as new as the controller's unless told otherwise."""
    broker = host.image.brokers[broker_id]
    return host.decide(
        heartbeat(
            Heartbeat(
                broker_id,
                broker.epoch,
                host.image.offset if offset is None else offset,
                **wants,  # type: ignore[arg-type]
            ),
            host.image,
            host.settings,
            host.heartbeats,
            now_ms=host.now_ms,
            next_offset=host.image.offset + 1,
        )
    )


def expire(host: ClusterHost) -> int | None:
    return host.decide(
        fence_expired_broker(host.image, host.settings, host.heartbeats, now_ms=host.now_ms)
    )


def test_a_broker_serves_when_its_image_has_its_registration() -> None:
    host = ClusterHost([1])
    epoch = host.register(2)
    host.create("orders")
    assert beat(host, 2, epoch - 1) == BrokerState(False, True, False)
    assert beat(host, 2, epoch, wants_fence=True) == BrokerState(True, True, False)
    # That the controller is further ahead by now does not matter (KAFKA-13959).
    assert beat(host, 2, epoch) == SERVES
    assert host.image.brokers[2].is_active
    assert beat(host, 2, wants_fence=True) == BrokerState(True, True, False)


def test_a_heartbeat_of_another_epoch_is_refused_and_changes_no_session() -> None:
    host = ClusterHost([1])
    for broker_id in (1, 9):
        wrong = Heartbeat(broker_id, 12345, 99999)
        with pytest.raises(ApiError) as caught:
            heartbeat(wrong, host.image, host.settings, host.heartbeats, now_ms=0, next_offset=100)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert not host.heartbeats.has_session(host.image.brokers[1], 0)


def test_a_broker_that_is_silent_for_the_session_timeout_is_fenced() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2, 3]})
    for broker_id in (1, 2, 3):
        beat(host, broker_id)
    host.now_ms = SESSION_MS
    beat(host, 3)
    assert expire(host) is None
    assert host.heartbeats.next_expiry_ms(host.image) == SESSION_MS + 1
    host.now_ms = SESSION_MS + 1
    # One at a time, so that the second does not get what the first loses.
    assert (expire(host), expire(host), expire(host)) == (1, 2, None)
    assert host.describe("orders") == "orders-0: leader 3 at epoch 2, replicas [1, 2, 3], isr [3]"


def test_a_controller_that_takes_over_waits_a_session_for_brokers_that_served() -> None:
    """Without that a broker that died with the last controller would never be fenced."""
    host = ClusterHost([1, 2])
    host.register(3)
    host.heartbeats = BrokerHeartbeats(SESSION_MS)
    host.now_ms = 50_000
    host.heartbeats.activate(host.image, host.now_ms, dead_broker_ids=[1])
    assert host.heartbeats.has_session(host.image.brokers[2], host.now_ms)
    for broker_id in (1, 3):  # one that is known to be dead, and one that was fenced
        assert not host.heartbeats.has_session(host.image.brokers[broker_id], host.now_ms)
    assert (expire(host), expire(host)) == (1, None)
    host.now_ms += SESSION_MS + 1
    assert (expire(host), expire(host)) == (2, None)


def test_a_broker_whose_fencing_was_not_committed_is_fenced_again() -> None:
    host = ClusterHost([1, 2])
    beat(host, 1)
    beat(host, 2)
    host.now_ms = SESSION_MS + 1
    beat(host, 1)
    failed = fence_expired_broker(host.image, host.settings, host.heartbeats, now_ms=host.now_ms)
    assert failed.rows == 2
    assert expire(host) == 2
    assert host.image.brokers[2].fenced


def test_a_broker_that_cannot_be_reached_is_fenced_at_once() -> None:
    host = ClusterHost([1, 2])
    beat(host, 2)
    epoch = host.image.brokers[2].epoch

    def lost(broker_epoch: int) -> None:
        host.decide(
            fence_unreachable_broker(2, broker_epoch, host.image, host.settings, host.heartbeats)
        )

    lost(epoch - 1)
    assert host.image.brokers[2].is_active, "an older connection of it does not matter"
    lost(epoch)
    assert host.image.brokers[2].fenced
    assert not host.heartbeats.has_session(host.image.brokers[2], host.now_ms)


# Registrations


def test_a_process_cannot_take_the_place_of_one_that_lives() -> None:
    host = ClusterHost([1, 2])
    beat(host, 2)
    with pytest.raises(ApiError) as caught:
        host.register(2, incarnation=2)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert host.register(2, incarnation=1) == host.image.brokers[2].epoch
    host.now_ms = SESSION_MS + 1
    assert host.register(2, incarnation=2) > 0


def test_a_process_that_was_told_to_stop_is_replaced_at_once() -> None:
    host = ClusterHost([1, 2])
    beat(host, 2)
    assert beat(host, 2, wants_shut_down=True) == STOPS
    assert host.register(2, incarnation=2) == host.image.brokers[2].epoch


def test_a_registration_is_the_last_record_and_its_offset_the_epoch() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [2, 1], 1: [1, 2], 2: [1, 3]})
    first = host.image.offset + 1
    epoch = host.register(2, incarnation=2, stopped_cleanly=False)
    assert epoch == host.image.offset == first + 2
    assert [type(record).__name__ for record in host.records[-3:]] == [
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "RegisterBrokerRecord",
    ]
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [2, 1], isr [1]"


@pytest.mark.parametrize(("stopped_cleanly", "eligible"), [(True, (2,)), (False, ())])
def test_who_stopped_uncleanly_is_not_eligible_any_more(
    stopped_cleanly: bool, eligible: tuple[int, ...]
) -> None:
    host = ClusterHost([1, 2, 3])
    configs = {"min.insync.replicas": "2"}
    host.create("orders", assignments={0: [1, 2]}, configs=configs)
    host.fence(2)
    assert host.partition("orders").eligible_leader_replicas == (2,)
    host.register(2, incarnation=2, stopped_cleanly=stopped_cleanly)
    assert host.partition("orders").eligible_leader_replicas == eligible


def test_the_last_replica_standing_does_not_make_others_cut_their_logs() -> None:
    """KIP-966: it loses its page cache in a crash and used to be elected all the same."""
    host = ClusterHost([1, 2, 3])
    configs = {"min.insync.replicas": "2"}
    host.create("orders", assignments={0: [1, 2, 3]}, configs=configs)
    for broker_id in (3, 2, 1):
        host.fence(broker_id)
    assert host.describe("orders") == (
        "orders-0: leader -1 at epoch 1, replicas [1, 2, 3], isr [], eligible [1, 2], "
        "last led by [1]"
    )
    host.register(1, incarnation=2, stopped_cleanly=False)
    host.unfence(1)
    assert host.partition("orders").leader == -1
    host.unfence(2)
    assert host.describe("orders") == "orders-0: leader 2 at epoch 2, replicas [1, 2, 3], isr [2]"
    assert not host.unclean_elections


@pytest.mark.parametrize(
    ("log_dirs", "reason"),
    [
        ((), "No directories"),
        ((broker_uuid(1),), "Reserved directory"),
        ((broker_uuid(300), broker_uuid(300)), "Duplicate directory"),
        ((broker_uuid(100),), "Broker 1 is already registered with directory"),
    ],
)
def test_a_registration_needs_directories_of_its_own(
    log_dirs: tuple[bytes, ...], reason: str
) -> None:
    host = ClusterHost([1])
    with pytest.raises(ApiError, match=reason) as caught:
        host.registering(BrokerRegistration(2, broker_uuid(1), (), log_dirs=log_dirs))
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION


# Controlled shutdown


def test_a_broker_stops_when_it_leads_nothing_and_everybody_knows() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2, 3]})
    old = host.image.offset
    for broker_id in (1, 2, 3):
        beat(host, broker_id)
    waits = BrokerState(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert beat(host, 1, wants_shut_down=True) == waits
    assert host.image.brokers[1].in_controlled_shutdown
    assert host.describe("orders") == (
        "orders-0: leader 2 at epoch 1, replicas [1, 2, 3], isr [2, 3]"
    )
    assert beat(host, 1, wants_shut_down=True) == waits
    beat(host, 2)
    beat(host, 3, old)
    assert beat(host, 1, wants_shut_down=True) == waits, "3 may still send clients to 1"
    beat(host, 3)
    assert beat(host, 1, wants_shut_down=True) == STOPS
    assert host.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_or_is_fenced_stops_at_once() -> None:
    host = ClusterHost([1, 2])
    host.register(3)
    assert beat(host, 2, wants_shut_down=True) == STOPS
    assert beat(host, 3, wants_shut_down=True).should_shut_down


def test_a_new_controller_lets_a_broker_stop_only_after_the_others_know() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2]})
    beat(host, 1, wants_shut_down=True)
    host.heartbeats = BrokerHeartbeats(SESSION_MS)
    host.heartbeats.activate(host.image, host.now_ms)
    assert not beat(host, 1, wants_shut_down=True).should_shut_down
    beat(host, 2)
    assert beat(host, 1, wants_shut_down=True) == STOPS


# Log directories


def test_what_was_in_a_directory_that_fails_gets_another_leader() -> None:
    host = ClusterHost([2])
    host.register(1, log_dirs=2)
    host.unfence(1)
    first, second = host.image.brokers[1].log_dirs
    host.create("orders", assignments={0: [1, 2], 1: [1, 2]})
    topic_id = host.image.topics_by_name["orders"].topic_id
    assert host.partition("orders").directories[0] == broker_uuid(1), "not known yet"
    epoch = host.image.brokers[1].epoch
    assignments = [
        DirectoryAssignment(first, topic_id, 0),
        DirectoryAssignment(second, topic_id, 1),
    ]
    rows = host.decide(assign_replicas_to_dirs(assignments, 1, epoch, host.image, host.settings))
    assert [row.error for row in rows] == [None, None]
    assert host.partition("orders").directories[0] == first

    assert not beat(host, 1, offline_log_dirs=(first,)).is_fenced
    assert host.image.brokers[1].log_dirs == (second,)
    assert host.describe("orders") == "orders-0: leader 2 at epoch 1, replicas [1, 2], isr [2]"
    assert host.partition("orders", 1).leader == 1
    before = host.image
    beat(host, 1, offline_log_dirs=(first,))
    assert host.image is before, "it is known already"

    # A replica that the broker puts into a directory that is offline by now leaves too.
    gone = [DirectoryAssignment(first, topic_id, 1)]
    host.decide(assign_replicas_to_dirs(gone, 1, epoch, host.image, host.settings))
    assert host.describe("orders", 1) == "orders-1: leader 2 at epoch 1, replicas [1, 2], isr [2]"


def test_a_broker_that_comes_back_without_a_directory_does_not_lead_what_was_in_it() -> None:
    host = ClusterHost([2])
    host.register(1, log_dirs=2)
    first, _ = host.image.brokers[1].log_dirs
    host.unfence(1)
    host.create("orders", assignments={0: [1]})
    topic_id = host.image.topics_by_name["orders"].topic_id
    assignment = DirectoryAssignment(first, topic_id, 0)
    epoch = host.image.brokers[1].epoch
    host.decide(assign_replicas_to_dirs([assignment], 1, epoch, host.image, host.settings))
    host.fence(1)
    state = beat(host, 1, offline_log_dirs=(first,))
    assert not state.is_fenced
    assert host.partition("orders").leader == -1


def test_cordoned_directories_are_kept_and_get_no_new_replicas() -> None:
    host = ClusterHost([1, 2])
    (directory,) = host.image.brokers[2].log_dirs
    before = host.image
    beat(host, 2)
    assert host.image is before, "the broker does not know yet which are"
    beat(host, 2, cordoned_log_dirs=(directory,))
    assert host.image.brokers[2].cordoned_log_dirs == (directory,)
    host.create("orders", partition_count=6)
    assert {each.leader for each in host.image.topics_by_name["orders"].partitions} == {1}
    beat(host, 2, cordoned_log_dirs=())
    assert not host.image.brokers[2].cordoned_log_dirs
