"""What replicas are for, as clients of librdkafka see it."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tidelog.testing import Cluster

pytestmark = pytest.mark.realtime

TOPIC = "orders"
WAIT_S = 30.0


def create(admin: AdminClient, replicas: list[int], **config: str) -> None:
    topic = NewTopic(
        TOPIC,
        num_partitions=1,
        replica_assignment=[replicas],
        config={name.replace("_", "."): value for name, value in config.items()},
    )
    admin.create_topics([topic])[TOPIC].result(WAIT_S)


def publish(cluster: Cluster, *values: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None] * len(values)


def consume(cluster: Cluster, count: int, **more: Any) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def partition_of(admin: AdminClient, topic: str = TOPIC) -> Any:
    return partitions_of(admin, topic)[0]


def partitions_of(admin: AdminClient, topic: str) -> Any:
    described = admin.describe_topics(TopicCollection([topic]))
    return described[topic].result(WAIT_S).partitions


def await_replicas(admin: AdminClient, topic: str, *nodes: int) -> None:
    until(
        lambda: all(
            sorted(node.id for node in partition.isr) == list(nodes)
            for partition in partitions_of(admin, topic)
        )
    )


def test_consumers_read_from_the_replica_in_their_rack() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with Cluster(
        nodes=3, racks=["a", "b", "c"], settings={"replica.selector.class": selector}
    ) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap}), [1, 2, 3])
        sources: set[int] = set()

        def note_source(statistics: str) -> None:
            topic = json.loads(statistics)["topics"].get(TOPIC, {"partitions": {}})
            if "0" in topic["partitions"]:
                sources.add(topic["partitions"]["0"]["broker"])

        values = [str(number) for number in range(100)]
        publish(cluster, *values)
        read = consume(
            cluster,
            len(values),
            **{"client.rack": "c", "statistics.interval.ms": 20, "stats_cb": note_source},
        )
        assert read == values
        assert 3 in sources
        assert cluster.leader_of(TOPIC) == 1


def test_a_replica_that_lacks_records_leads_only_where_that_is_allowed() -> None:
    with Cluster(nodes=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(admin, [1, 2], min_insync_replicas="1")
        publish(cluster, "on both")
        cluster.kill(2)
        until(lambda: [node.id for node in partition_of(admin).isr] == [1])
        publish(cluster, "on one")
        cluster.kill(1)
        cluster.start(2)
        assert partition_of(admin).leader is None or partition_of(admin).leader.id < 0
        resource = ConfigResource(
            ResourceType.TOPIC,
            TOPIC,
            incremental_configs=[
                ConfigEntry(
                    "unclean.leader.election.enable",
                    "true",
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
        assert cluster.leader_of(TOPIC) == 2
        told = "".join(cluster.log_of(node) for node in cluster.running)
        assert "unclean" in told
        publish(cluster, "after")
        assert consume(cluster, 2) == ["on both", "after"]
        # The node that had more takes the leader's word for it.
        cluster.start(1)
        await_replicas(admin, TOPIC, 1, 2)
        await_replicas(admin, "__consumer_offsets", 1, 2, 3)
        cluster.stop(2)
        assert cluster.leader_of(TOPIC) == 1
        assert consume(cluster, 2) == ["on both", "after"]


def test_a_group_of_a_node_that_others_joined_survives_the_loss_of_that_node() -> None:
    with Cluster(nodes=1, settings={"default.replication.factor": "1"}) as cluster:
        first = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(first, [1])
        publish(cluster, "before")
        assert consume(cluster, 1, **{"enable.auto.commit": True}) == ["before"]
        cluster.add()
        cluster.add()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        await_replicas(admin, "__consumer_offsets", 1, 2, 3)
        admin.delete_topics([TOPIC])[TOPIC].result(WAIT_S)
        create(admin, [2, 3])
        publish(cluster, "after")
        cluster.kill(1)
        assert consume(cluster, 1) == ["after"]
