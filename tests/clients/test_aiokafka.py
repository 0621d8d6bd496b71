"""aiokafka: the versions of before flexible encodings."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

COMPRESSIONS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_with_every_compression(
    bootstrap: str, topic: str, compression: str | None
) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression)
        await producer.start()
        try:
            for i in range(100):
                await producer.send(
                    topic,
                    b"v%d" % i,
                    key=b"k%d" % i,
                    partition=0,
                    headers=[("h", b"%d" % i)],
                    timestamp_ms=1_700_000_000_000 + i,
                )
            await producer.flush()
        finally:
            await producer.stop()
        records = await read(bootstrap, topic, 100)
        assert [record.value for record in records] == [b"v%d" % i for i in range(100)]  # type: ignore[attr-defined]
        assert [record.timestamp for record in records][-1] == 1_700_000_000_099  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            sent = [await producer.send_and_wait(topic, b"%d" % i, partition=0) for i in range(20)]
        finally:
            await producer.stop()
        assert [each.offset for each in sent] == list(range(20))

    asyncio.run(asyncio.wait_for(run(), 60))


def test_topics_through_the_admin_client(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 4
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def read(bootstrap: str, topic: str, wanted: int) -> list[object]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.start()
    try:
        return [await consumer.getone() for _ in range(wanted)]
    finally:
        await consumer.stop()
