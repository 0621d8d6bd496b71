"""Brokers register, come back, and are forgotten."""

import pytest

from tests.cluster.cluster_host import ClusterHost, broker_uuid
from tidelog.cluster.controller.broker_lifecycle import (
    BrokerState,
)
from tidelog.cluster.controller.broker_registrations import (
    BrokerRegistration,
    unregister_broker,
)
from tidelog.protocol.errors import ApiError, ErrorCode

STOPS = BrokerState(is_caught_up=True, is_fenced=True, should_shut_down=True)
SESSION_MS = 9000


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


def test_a_process_cannot_take_the_place_of_one_that_lives() -> None:
    host = ClusterHost([1, 2])
    host.beat(2)
    with pytest.raises(ApiError) as caught:
        host.register(2, incarnation=2)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert host.register(2, incarnation=1) == host.image.brokers[2].epoch
    host.now_ms = SESSION_MS + 1
    assert host.register(2, incarnation=2) > 0


def test_a_process_that_was_told_to_stop_is_replaced_at_once() -> None:
    host = ClusterHost([1, 2])
    host.beat(2)
    assert host.beat(2, wants_shut_down=True) == STOPS
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


def test_a_broker_can_be_unregistered_for_good() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [2, 1]})
    host.decide(unregister_broker(2, host.image, host.settings))
    assert set(host.image.brokers) == {1}
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [2, 1], isr [1]"
    with pytest.raises(ApiError) as caught:
        unregister_broker(2, host.image, host.settings)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
