"""Brokers come and go: the transcripts say what becomes of a partition."""

import pytest

from tests.cluster.cluster_host import WITHOUT_ELIGIBLE_REPLICAS, ClusterHost, broker_uuid
from tidelog.cluster.controller.broker_lifecycle import unfence_broker
from tidelog.cluster.controller.broker_registrations import BrokerRegistration, unregister_broker
from tidelog.cluster.controller.decision import UncleanElection
from tidelog.protocol.errors import ApiError, ErrorCode


def test_a_brokers_epoch_is_the_offset_of_its_registration() -> None:
    host = ClusterHost([1])
    offset = host.image.offset
    epoch = host.register(2, rack="b")
    assert epoch == offset + 1
    broker = host.image.brokers[2]
    assert (broker.epoch, broker.rack, broker.fenced) == (epoch, "b", True)
    assert broker.endpoint("PLAINTEXT") == ("PLAINTEXT", "localhost", 9002, 0)
    assert broker.endpoint("SSL") is None
    host.unfence(2)
    assert host.image.brokers[2].is_active


def test_the_same_process_registers_once_and_a_new_one_gets_a_new_epoch() -> None:
    host = ClusterHost([1])
    epoch = host.image.brokers[1].epoch
    assert host.register(1, incarnation=1) == epoch
    assert host.register(1, incarnation=2) > epoch
    assert host.image.brokers[1].fenced


def test_an_unclean_stop_gives_partitions_a_new_leader_epoch() -> None:
    host = ClusterHost([1])
    host.create("orders", partition_count=2)
    host.register(1, incarnation=2)
    host.unfence(1)
    assert host.describe("orders") == "orders-0: leader 1 at epoch 0, replicas [1], isr [1]"
    host.register(1, incarnation=3, stopped_cleanly=False)
    host.unfence(1)
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [1], isr [1]"
    assert host.partition("orders", 1).leader_epoch == 1


def test_a_broker_that_cannot_do_what_the_cluster_does_is_refused() -> None:
    host = ClusterHost([1])
    registration = BrokerRegistration(
        2,
        broker_uuid(1),
        (),
        log_dirs=(broker_uuid(200),),
        features=(("metadata.version", 7, 20),),
    )
    with pytest.raises(ApiError, match="does not support finalized version 30") as caught:
        host.registering(registration)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_that_does_not_name_a_feature_of_the_cluster_is_refused() -> None:
    host = ClusterHost([1])
    registration = BrokerRegistration(
        2,
        broker_uuid(1),
        (),
        log_dirs=(broker_uuid(200),),
        features=(("metadata.version", 7, 30), ("group.version", 0, 1)),
    )
    with pytest.raises(ApiError, match=r"version 2 of transaction\.version.* between 0 and 0"):
        host.registering(registration)


def test_a_broker_that_does_not_know_voters_in_the_log_is_refused() -> None:
    host = ClusterHost([1])
    host.image = host.image.with_kraft_version(1)
    features = tuple(each for each in host.image.brokers[1].features if each[0] != "kraft.version")
    registration = BrokerRegistration(
        2, broker_uuid(1), (), log_dirs=(broker_uuid(200),), features=features
    )
    with pytest.raises(ApiError, match=r"version 1 of kraft\.version.* between 0 and 0"):
        host.registering(registration)


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


def test_a_broker_can_be_unregistered_for_good() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [2, 1]})
    host.decide(unregister_broker(2, host.image, host.settings))
    assert set(host.image.brokers) == {1}
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [2, 1], isr [1]"
    with pytest.raises(ApiError) as caught:
        unregister_broker(2, host.image, host.settings)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_an_old_broker_epoch_is_refused() -> None:
    host = ClusterHost([1])
    with pytest.raises(ApiError) as caught:
        unfence_broker(1, 0, host.image, host.settings)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_the_same_process_that_registers_again_keeps_its_epoch_and_its_state() -> None:
    host = ClusterHost([1])
    before = host.image.brokers[1]
    registration = BrokerRegistration(
        1, before.incarnation_id, before.endpoints, log_dirs=before.log_dirs
    )
    decision = host.registering(registration)
    assert (decision.records, decision.rows) == ([], before.epoch)
    moved = registration._replace(log_dirs=(broker_uuid(700), broker_uuid(800)))
    assert host.decide(host.registering(moved)) == before.epoch
    assert host.image.brokers[1] == before._replace(log_dirs=moved.log_dirs)
