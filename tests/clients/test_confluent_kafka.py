"""librdkafka through confluent-kafka: producing, consuming and managing topics."""

import time
from random import Random
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tidelog.testing import Broker

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([new])[topic].result(20)
    return admin


def produce(
    bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: Any
) -> list[Message]:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for record in records:
        producer.produce(topic, on_delivery=report, **record)
    assert producer.flush(30) == 0
    if failed:
        raise KafkaException(failed[0])
    return delivered


def consume(
    bootstrap: str, places: list[TopicPartition], wanted: int, **settings: Any
) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    consumer.assign(places)
    messages: list[Message] = []
    deadline = time.monotonic() + 30
    while len(messages) < wanted and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    assert len(messages) == wanted
    return messages


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_with_every_compression(
    bootstrap: str, topic: str, compression: str
) -> None:
    create(bootstrap, topic)
    sent = [
        {
            "value": b"value-%d" % i * 20,
            "key": b"key-%d" % i,
            "headers": [("number", b"%d" % i), ("nothing", None)],
            "timestamp": 1_700_000_000_000 + i,
        }
        for i in range(200)
    ]
    produce(bootstrap, topic, sent, compression_type=compression)
    received = consume(bootstrap, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 200)
    for i, (record, message) in enumerate(zip(sent, received, strict=True)):
        assert message.offset() == i
        assert message.value() == record["value"]
        assert message.key() == record["key"]
        assert message.headers() == record["headers"]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, record["timestamp"])


@pytest.mark.parametrize(
    ("compression", "fast", "small"), [("gzip", 1, 9), ("lz4", 3, 12), ("zstd", -5, 19)]
)
def test_a_topic_recompresses_at_its_level(
    bootstrap: str, topic: str, broker: Broker, compression: str, fast: int, small: int
) -> None:
    dice = Random(1)
    words = b" ".join(b"word-%d" % dice.randrange(300) for _ in range(5000))
    stored_bytes = {}
    for level in (fast, small):
        name = f"{topic}-{level}"
        settings: dict[str, Any] = {f"compression_{compression}_level": str(level)}
        create(bootstrap, name, compression_type=compression, **settings)
        produce(bootstrap, name, [{"value": words}], compression_type="snappy")
        (received,) = consume(bootstrap, [TopicPartition(name, 0, OFFSET_BEGINNING)], 1)
        assert received.value() == words
        (log,) = broker.data.glob(f"**/{name}-0/*.log")
        stored_bytes[level] = log.stat().st_size
    assert stored_bytes[small] < stored_bytes[fast] * 0.95


def test_null_keys_and_values_stay_null(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": None, "key": None}, {"value": b"", "key": b""}])
    null, empty = consume(bootstrap, [TopicPartition(topic, 0, 0)], 2)
    assert (null.key(), null.value()) == (None, None)
    assert (empty.key(), empty.value()) == (b"", b"")


def test_log_append_time_is_the_brokers(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 1
    (delivered,) = produce(bootstrap, topic, [{"value": b"x", "timestamp": 1000}])
    kind, stamp_ms = delivered.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamp_ms >= before_ms
    (message,) = consume(bootstrap, [TopicPartition(topic, 0, 0)], 1)
    assert message.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, stamp_ms)


def test_idempotent_producer_keeps_order(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    records = [{"value": b"%d" % i} for i in range(2000)]
    produce(bootstrap, topic, records, enable_idempotence=True, linger_ms=0)
    received = consume(bootstrap, [TopicPartition(topic, 0, 0)], 2000)
    assert [message.value() for message in received] == [record["value"] for record in records]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(bootstrap: str, topic: str, acks: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(100)], acks=acks)
    assert len(consume(bootstrap, [TopicPartition(topic, 0, 0)], 100)) == 100


def test_a_message_of_ten_megabytes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    big = bytes(range(256)) * 40960
    produce(bootstrap, topic, [{"value": big}], message_max_bytes=11_000_000)
    (message,) = consume(bootstrap, [TopicPartition(topic, 0, 0)], 1)
    assert message.value() == big


def test_a_message_above_the_topics_limit_is_refused(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, max_message_bytes="10000")
    with pytest.raises(KafkaException) as caught:
        produce(bootstrap, topic, [{"value": bytes(20_000)}])
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_seek_by_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    base = 1_700_000_000_000
    records = [{"value": b"%d" % i, "timestamp": base + i * 1000} for i in range(500)]
    produce(bootstrap, topic, records, batch_num_messages=50)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "seek"})
    asked = [TopicPartition(topic, 0, base + 123_500), TopicPartition(topic, 0, base + 10**9)]
    found = [consumer.offsets_for_times([place], timeout=20)[0].offset for place in asked]
    consumer.close()
    assert found[0] == 124
    assert found[1] == -1


def test_many_partitions_each_keep_their_order(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=50)
    records = [{"value": b"%d" % i, "partition": i % 50} for i in range(2000)]
    produce(bootstrap, topic, records)
    received = consume(bootstrap, [TopicPartition(topic, p, 0) for p in range(50)], 2000)
    by_partition: dict[int, list[int]] = {}
    for message in received:
        by_partition.setdefault(message.partition(), []).append(int(message.value()))
    assert by_partition == {p: list(range(p, 2000, 50)) for p in range(50)}


def test_a_consumer_waits_for_what_comes_later(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "later"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    produce(bootstrap, topic, [{"value": b"late"}])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"late"


def test_topics_are_created_listed_grown_and_deleted(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic, partitions=2)
    assert len(admin.list_topics(timeout=20).topics[topic].partitions) == 2
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert [each.id for each in described.partitions] == [0, 1, 2, 3, 4]
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(20)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(20)
    assert topic not in admin.list_topics(timeout=20).topics


def test_settings_are_described_and_changed(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic, retention_ms="12345")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(20)
    assert entries["retention.ms"].value == "12345"
    assert entries["cleanup.policy"].value == "delete"
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(20)
    entries = admin.describe_configs([resource])[resource].result(20)
    assert entries["retention.ms"].value == "777"
    assert entries["cleanup.policy"].value == "delete,compact"


def test_offsets_are_listed_and_records_deleted(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"%d" % i, "timestamp": 5000 + i} for i in range(10)])
    place = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_offsets({place: spec})[place].result(20).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(5004)) == 4
    assert offset(OffsetSpec.max_timestamp()) == 9
    admin.delete_records([TopicPartition(topic, 0, 6)])[place].result(20)
    assert offset(OffsetSpec.earliest()) == 6
    assert [m.offset() for m in consume(bootstrap, [TopicPartition(topic, 0, 6)], 4)] == [
        6,
        7,
        8,
        9,
    ]


def test_an_offset_out_of_range_is_reset_as_asked(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"only"}])
    place = [TopicPartition(topic, 0, 1000)]
    (message,) = consume(bootstrap, place, 1, auto_offset_reset="earliest")
    assert message.value() == b"only"


def test_the_cluster_describes_itself(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.describe_cluster().result(20)
    assert cluster.cluster_id
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id
