"""Real clients above their quotas: they are held off, and get there in the end."""

import time
from contextlib import suppress

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError

from tidelog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient


def set_quota(broker: Broker, entity_type: str, name: str, key: str, value: float) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=entity_type, entity_name=name)],
        ops=[OpData(key=key, value=value)],
    )
    with WireClient("127.0.0.1", broker.port) as wire:
        answer = wire.call(AlterClientQuotasRequest(entries=[entry]), 1)
    assert answer.entries[0].error_code == 0, answer.entries[0].error_message


def test_kafka_python_is_refused_until_its_quota_on_changes_allows_more(
    bootstrap: str, topic: str, broker: Broker
) -> None:
    client_id = f"python-{topic}"
    # Five a second, 55 at once: ten too many take two seconds.
    set_quota(broker, "client-id", client_id, "controller_mutation_rate", 5.0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id=client_id)
    admin.create_topics({topic: {"num_partitions": 65, "replication_factor": 1}})
    began = time.monotonic()
    answer = admin.create_topics({f"{topic}-2": {"num_partitions": 1}}, raise_errors=False)
    (row,) = answer["topics"]
    assert row["error_code"] == ThrottlingQuotaExceededError.errno, row
    is_created = False
    while not is_created:
        assert time.monotonic() - began < 20
        time.sleep(0.1)
        with suppress(ThrottlingQuotaExceededError, NodeNotReadyError):  # it pauses by itself too
            admin.create_topics({f"{topic}-2": {"num_partitions": 1}})
            is_created = True
    assert time.monotonic() - began > 1
    assert f"{topic}-2" in admin.list_topics()
    admin.close()


def test_confluent_kafka_is_served_and_waits_after_its_quota_on_changes(
    bootstrap: str, topic: str, broker: Broker
) -> None:
    client_id = f"confluent-{topic}"
    set_quota(broker, "client-id", client_id, "controller_mutation_rate", 5.0)
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client_id})
    began = time.monotonic()
    admin.create_topics([NewTopic(topic, 60, 1)])[topic].result(20)
    admin.create_partitions([NewPartitions(topic, 65)])[topic].result(20)
    # 65 of 55 partitions are made: the next answer comes when two seconds are over.
    admin.delete_topics([topic])[topic].result(20)
    assert time.monotonic() - began > 1.5


def test_confluent_kafka_gets_in_although_its_address_connects_too_often(topic: str) -> None:
    # Five a second and three windows: ten at once.
    with Broker(settings={"quota.window.num": "3"}) as broker:
        set_quota(broker, "ip", "127.0.0.1", "connection_creation_rate", 5.0)
        greedy = [WireClient("127.0.0.1", broker.port) for _ in range(15)]
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, b"late")
        assert producer.flush(30) == 0
        assert broker.node.metrics.connections_refused >= 5
        for client in greedy:
            client.close()
