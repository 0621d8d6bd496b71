"""The source and the sink against Apache Kafka itself, where the machine can run it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from benchmarks.servers import KafkaServer, kafka_libraries, wait_until_serving
from tests.spark.topics import WAIT_S, committed, create_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    libraries = kafka_libraries()
    if libraries is None:
        pytest.skip("Apache Kafka needs Java, and Maven to fetch it")
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), libraries)
    server.start()
    try:
        wait_until_serving(server)
        yield f"127.0.0.1:{server.port}"
    finally:
        server.stop()


def fill(bootstrap: str, topic: str) -> None:
    """All compressions, headers, nulls, and transactions of which some are aborted."""
    create_topic(bootstrap, topic, PARTITIONS)
    chance = random.Random(7)
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "transactional.id": f"{topic}-{compression}",
                "batch.size": "2000",
            }
        )
        producer.init_transactions(WAIT_S)
        for number in range(8):
            producer.begin_transaction()
            for _ in range(100):
                value = chance.randbytes(chance.randrange(300)) if chance.random() < 0.9 else None
                key = b"%d" % chance.randrange(50) if chance.random() < 0.8 else None
                headers: list[tuple[str, str | bytes | None]] = [("compression", compression)]
                producer.produce(
                    topic, value, key, partition=chance.randrange(PARTITIONS), headers=headers
                )
            if number % 3 == 1:
                producer.flush(WAIT_S)
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)


def consume(bootstrap: str, topic: str) -> list[Message]:
    """What a plain consumer sees of committed transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: list[Message] = []
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ended += 1
    consumer.close()
    return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    rows = frame.orderBy("partition", "offset").collect()
    return [
        (
            row.partition,
            row.offset,
            row.timestamp.timestamp(),
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            [(each.key, bytes(each.value)) for each in row.headers],
        )
        for row in rows
    ]


def test_rows_are_those_of_a_plain_consumer(spark: SparkSession, kafka: str, topic: str) -> None:
    fill(kafka, topic)
    source = spark.read.format("tidelog").option("kafka.bootstrap.servers", kafka)
    frame = source.option("subscribe", topic).option("includeHeaders", "true").load()
    expected = [
        (
            each.partition(),
            each.offset(),
            each.timestamp()[1] / 1000,
            each.key(),
            each.value(),
            each.headers(),
        )
        for each in consume(kafka, topic)
    ]
    assert len(expected) > 2000
    assert rows_of(frame) == expected


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_stream_is_copied_whole(
    spark: SparkSession, kafka: str, topic: str, guarantee: str, tmp_path: Path
) -> None:
    fill(kafka, topic)
    copy, group = f"{topic}-copy", f"{topic}-group"
    create_topic(kafka, copy, PARTITIONS)
    stream = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "700")
        .option("groupId", group)
        .load()
    )
    for _ in range(2):
        query = (
            stream.select("key", "value", "partition")
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", kafka)
            .option("topic", copy)
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(int(WAIT_S))
        assert query.exception() is None
    sent, arrived = consume(kafka, topic), consume(kafka, copy)
    assert [(each.partition(), each.key(), each.value()) for each in arrived] == [
        (each.partition(), each.key(), each.value()) for each in sent
    ]
    behind = {(each.topic(), each.partition()): each.offset() for each in sent}
    offsets = committed(kafka, group)
    assert offsets.keys() == behind.keys()
    assert all(offsets[name] > (behind[name] or 0) for name in behind)
