"""kafka-python: producing, consuming and managing topics."""

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

COMPRESSIONS = [None, "gzip", "snappy", "lz4", "zstd"]


def read_all(bootstrap: str, topic: str, wanted: int, **settings: object) -> list[object]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
        **settings,
    )
    consumer.assign([TopicPartition(topic, 0)])
    records = []
    for record in consumer:
        records.append(record)
        if len(records) == wanted:
            break
    consumer.close()
    assert len(records) == wanted
    return records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_with_every_compression(
    bootstrap: str, topic: str, compression: str | None
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20
    )
    futures = [
        producer.send(
            topic,
            value=b"v%d" % i,
            key=b"k%d" % i,
            headers=[("h", b"%d" % i)],
            timestamp_ms=1_700_000_000_000 + i,
            partition=0,
        )
        for i in range(100)
    ]
    offsets = [future.get(20).offset for future in futures]
    producer.close()
    assert offsets == list(range(100))
    for i, record in enumerate(read_all(bootstrap, topic, 100)):
        assert record.value == b"v%d" % i  # type: ignore[attr-defined]
        assert record.key == b"k%d" % i  # type: ignore[attr-defined]
        assert list(record.headers) == [("h", b"%d" % i)]  # type: ignore[attr-defined]
        assert record.timestamp == 1_700_000_000_000 + i  # type: ignore[attr-defined]


def test_idempotence_off_works_too(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=False, acks=1, retries=0
    )
    assert producer.send(topic, b"plain").get(20).offset == 0
    producer.close()


def test_topics_and_settings_through_the_admin_client(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_seek_and_times(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(50):
        producer.send(topic, b"%d" % i, partition=0, timestamp_ms=10_000 + i)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 50}
    assert consumer.offsets_for_times({place: 10_025})[place].offset == 25
    consumer.seek(place, 40)
    assert next(consumer).value == b"40"
    consumer.close()
