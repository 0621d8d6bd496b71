"""Sessions: when a broker counts as gone."""

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import (
    fence_expired_broker,
    fence_unreachable_broker,
)

SESSION_MS = 9000


def expire(host: ClusterHost) -> int | None:
    return host.decide(
        fence_expired_broker(host.image, host.settings, host.heartbeats, now_ms=host.now_ms)
    )


def test_a_broker_that_is_silent_for_the_session_timeout_is_fenced() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2, 3]})
    for broker_id in (1, 2, 3):
        host.beat(broker_id)
    host.now_ms = SESSION_MS
    host.beat(3)
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
    host.beat(1)
    host.beat(2)
    host.now_ms = SESSION_MS + 1
    host.beat(1)
    failed = fence_expired_broker(host.image, host.settings, host.heartbeats, now_ms=host.now_ms)
    assert failed.rows == 2
    assert expire(host) == 2
    assert host.image.brokers[2].fenced


def test_a_broker_that_cannot_be_reached_is_fenced_at_once() -> None:
    host = ClusterHost([1, 2])
    host.beat(2)
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
