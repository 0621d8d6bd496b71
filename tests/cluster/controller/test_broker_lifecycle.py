"""Brokers come and go: the transcripts say what becomes of a partition."""

import pytest

from tests.cluster.cluster_host import WITHOUT_ELIGIBLE_REPLICAS, ClusterHost
from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import (
    BrokerState,
    Heartbeat,
    heartbeat,
    unfence_broker,
)
from tidelog.cluster.controller.decision import UncleanElection
from tidelog.protocol.errors import ApiError, ErrorCode

STOPS = BrokerState(is_caught_up=True, is_fenced=True, should_shut_down=True)
SERVES = BrokerState(is_caught_up=True, is_fenced=False, should_shut_down=False)
SESSION_MS = 9000


def test_a_broker_serves_when_its_image_has_its_registration() -> None:
    host = ClusterHost([1])
    epoch = host.register(2)
    host.create("orders")
    assert host.beat(2, epoch - 1) == BrokerState(False, True, False)
    assert host.beat(2, epoch, wants_fence=True) == BrokerState(True, True, False)
    # That the controller is further ahead by now does not matter (KAFKA-13959).
    assert host.beat(2, epoch) == SERVES
    assert host.image.brokers[2].is_active
    assert host.beat(2, wants_fence=True) == BrokerState(True, True, False)


def test_a_heartbeat_of_another_epoch_is_refused_and_changes_no_session() -> None:
    host = ClusterHost([1])
    for broker_id in (1, 9):
        wrong = Heartbeat(broker_id, 12345, 99999)
        with pytest.raises(ApiError) as caught:
            heartbeat(wrong, host.image, host.settings, host.heartbeats, now_ms=0, next_offset=100)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert not host.heartbeats.has_session(host.image.brokers[1], 0)


def test_a_broker_stops_when_it_leads_nothing_and_everybody_knows() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2, 3]})
    old = host.image.offset
    for broker_id in (1, 2, 3):
        host.beat(broker_id)
    waits = BrokerState(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert host.beat(1, wants_shut_down=True) == waits
    assert host.image.brokers[1].in_controlled_shutdown
    assert host.describe("orders") == (
        "orders-0: leader 2 at epoch 1, replicas [1, 2, 3], isr [2, 3]"
    )
    assert host.beat(1, wants_shut_down=True) == waits
    host.beat(2)
    host.beat(3, old)
    assert host.beat(1, wants_shut_down=True) == waits, "3 may still send clients to 1"
    host.beat(3)
    assert host.beat(1, wants_shut_down=True) == STOPS
    assert host.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_or_is_fenced_stops_at_once() -> None:
    host = ClusterHost([1, 2])
    host.register(3)
    assert host.beat(2, wants_shut_down=True) == STOPS
    assert host.beat(3, wants_shut_down=True).should_shut_down


def test_a_new_controller_lets_a_broker_stop_only_after_the_others_know() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2]})
    host.beat(1, wants_shut_down=True)
    host.heartbeats = BrokerHeartbeats(SESSION_MS)
    host.heartbeats.activate(host.image, host.now_ms)
    assert not host.beat(1, wants_shut_down=True).should_shut_down
    host.beat(2)
    assert host.beat(1, wants_shut_down=True) == STOPS


def fences_and_unfences(host: ClusterHost) -> list[str]:
    host.create("orders", assignments={0: [1, 2, 3]})
    transcript = []
    for step, broker_id in (
        (host.fence, 1),
        (host.fence, 2),
        (host.fence, 3),
        (host.unfence, 1),
        (host.unfence, 3),
    ):
        step(broker_id)
        transcript.append(f"{step.__name__} {broker_id} -> {host.describe('orders')}")
    return transcript


def test_leadership_moves_when_brokers_are_fenced_and_comes_back_with_them() -> None:
    assert fences_and_unfences(ClusterHost([1, 2, 3], features=WITHOUT_ELIGIBLE_REPLICAS)) == [
        "fence 1 -> orders-0: leader 2 at epoch 1, replicas [1, 2, 3], isr [2, 3]",
        "fence 2 -> orders-0: leader 3 at epoch 2, replicas [1, 2, 3], isr [3]",
        # Only 3 has everything: it stays in sync and nobody leads.
        "fence 3 -> orders-0: leader -1 at epoch 3, replicas [1, 2, 3], isr [3]",
        "unfence 1 -> orders-0: leader -1 at epoch 3, replicas [1, 2, 3], isr [3]",
        "unfence 3 -> orders-0: leader 3 at epoch 4, replicas [1, 2, 3], isr [3]",
    ]


def test_the_last_replica_in_sync_leaves_the_set_and_stays_eligible() -> None:
    assert fences_and_unfences(ClusterHost([1, 2, 3])) == [
        "fence 1 -> orders-0: leader 2 at epoch 1, replicas [1, 2, 3], isr [2, 3]",
        "fence 2 -> orders-0: leader 3 at epoch 2, replicas [1, 2, 3], isr [3]",
        "fence 3 -> orders-0: leader -1 at epoch 3, replicas [1, 2, 3], isr [], eligible [3], "
        "last led by [3]",
        "unfence 1 -> orders-0: leader -1 at epoch 3, replicas [1, 2, 3], isr [], eligible [3], "
        "last led by [3]",
        "unfence 3 -> orders-0: leader 3 at epoch 4, replicas [1, 2, 3], isr [3]",
    ]


def test_a_topic_that_allows_it_elects_uncleanly_and_says_so() -> None:
    host = ClusterHost([1, 2])
    host.create("logs", assignments={0: [1, 2]}, configs={"unclean.leader.election.enable": "true"})
    host.fence(2)
    host.fence(1)
    assert host.describe("logs") == (
        "logs-0: leader -1 at epoch 1, replicas [1, 2], isr [], eligible [1], last led by [1]"
    )
    assert not host.unclean_elections
    host.unfence(2)
    assert host.describe("logs") == "logs-0: leader 2 at epoch 2, replicas [1, 2], isr [2]"
    assert host.partition("logs").leader_recovery_state == 1
    assert host.unclean_elections == [UncleanElection("logs", 0, 2, 2, (), was_last_leader=False)]


def test_an_old_broker_epoch_is_refused() -> None:
    host = ClusterHost([1])
    with pytest.raises(ApiError) as caught:
        unfence_broker(1, 0, host.image, host.settings)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
