"""Internal topics get the replicas that they could not have when they were made."""

from __future__ import annotations

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.internal_topics import grow_internal_topics, may_grow
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.cluster.controller.reassignments import Reassignment, alter_partition_reassignments
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


def grow(host: ClusterHost) -> int:
    """How many records it takes."""
    decision = grow_internal_topics(host.image, host.settings)
    host.decide(decision)
    return len(decision.records)


def join(host: ClusterHost, *broker_ids: int, rack: str | None = None) -> None:
    for broker_id in broker_ids:
        host.register(broker_id, rack=rack)
        host.unfence(broker_id)


def test_replicas_are_added_as_brokers_join_and_spread_over_them() -> None:
    host = ClusterHost([1])
    host.create(CONSUMER_OFFSETS_TOPIC, partition_count=4, replication_factor=1)
    host.create("orders", replication_factor=1)
    assert grow(host) == 0
    join(host, 2, 3, 4)
    assert grow(host) == 4
    assert host.describe(CONSUMER_OFFSETS_TOPIC) == (
        "__consumer_offsets-0: leader 1 at epoch 0, replicas [1, 2, 3], isr [1], adding [2, 3]"
    )
    added = [host.partition(CONSUMER_OFFSETS_TOPIC, index).adding_replicas for index in range(4)]
    assert added == [(2, 3), (2, 4), (3, 4), (2, 3)]
    assert host.partition("orders").replicas == (1,)
    assert grow(host) == 0  # they are on their way


def test_a_broker_that_joins_in_the_middle_is_chosen_afterwards() -> None:
    host = ClusterHost([1])
    host.create(CONSUMER_OFFSETS_TOPIC, assignments={0: [1]})
    join(host, 2)
    assert may_grow(host.delta)
    grow(host)
    join(host, 3)
    assert grow(host) == 0
    topic = host.image.topics_by_name[CONSUMER_OFFSETS_TOPIC]
    leader = host.image.brokers[1]
    change = IsrChange(topic.topic_id, 0, 0, topic.partitions[0].partition_epoch, (1, 2))
    host.decide(alter_partitions([change], 1, leader.epoch, host.image, host.settings))
    assert may_grow(host.delta)
    grow(host)
    assert host.partition(CONSUMER_OFFSETS_TOPIC).replicas == (1, 2, 3)
    host.create("orders")
    assert not may_grow(host.delta)


def test_replicas_that_an_operator_takes_away_are_not_given_back_at_once() -> None:
    host = ClusterHost([1, 2, 3, 4])
    host.create(CONSUMER_OFFSETS_TOPIC, assignments={0: [1, 2, 3]})
    moves = [Reassignment(CONSUMER_OFFSETS_TOPIC, 0, [4, 1])]
    host.decide(alter_partition_reassignments(moves, host.image, host.settings))
    topic = host.image.topics_by_name[CONSUMER_OFFSETS_TOPIC]
    leader = host.image.brokers[1]
    epoch = topic.partitions[0].partition_epoch
    change = IsrChange(topic.topic_id, 0, 0, epoch, (1, 2, 3, 4))
    host.decide(alter_partitions([change], 1, leader.epoch, host.image, host.settings))
    assert host.partition(CONSUMER_OFFSETS_TOPIC).replicas == (4, 1)
    assert not may_grow(host.delta)


def test_brokers_that_are_away_are_not_chosen() -> None:
    host = ClusterHost([1, 2, 3])
    host.create(CONSUMER_OFFSETS_TOPIC, assignments={0: [1]})
    host.fence(2)
    grow(host)
    assert host.partition(CONSUMER_OFFSETS_TOPIC).replicas == (1, 3)


def test_another_rack_comes_first() -> None:
    host = ClusterHost([1, 2], racks=["a", "a"])
    host.create(CONSUMER_OFFSETS_TOPIC, assignments={0: [1]})
    join(host, 7, rack="b")
    grow(host)
    assert host.partition(CONSUMER_OFFSETS_TOPIC).replicas == (1, 7, 2)


def test_what_the_operator_has_set_holds() -> None:
    settings = ControllerSettings(
        node_id=1, broker_config={"offsets.topic.replication.factor": "1"}
    )
    host = ClusterHost([1, 2, 3], settings=settings)
    host.create(CONSUMER_OFFSETS_TOPIC, assignments={0: [1]})
    assert grow(host) == 0


def test_transactions_are_on_as_many_disks_as_if_all_brokers_had_been_there() -> None:
    host = ClusterHost([1])
    host.create(TRANSACTION_STATE_TOPIC, assignments={0: [1]}, configs={"min.insync.replicas": "1"})
    join(host, 2, 3)
    grow(host)
    assert host.partition(TRANSACTION_STATE_TOPIC).replicas == (1, 2, 3)
    assert host.image.topic_configs(TRANSACTION_STATE_TOPIC)["min.insync.replicas"] == "2"


def test_a_minimum_that_the_operator_has_set_holds() -> None:
    settings = ControllerSettings(node_id=1, broker_config={"transaction.state.log.min.isr": "1"})
    host = ClusterHost([1, 2, 3], settings=settings)
    host.create(TRANSACTION_STATE_TOPIC, assignments={0: [1]}, configs={"min.insync.replicas": "1"})
    assert grow(host) == 1
    assert host.image.topic_configs(TRANSACTION_STATE_TOPIC)["min.insync.replicas"] == "1"
