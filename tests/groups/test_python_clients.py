"""kafka-python and aiokafka in groups: other clients, other habits."""

import asyncio
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient

from tests.groups.librdkafka_member import PATIENCE_S, eventually


def kafka_python(bootstrap: str, topic: str) -> KafkaConsumer:
    """A member that knows the topic before it joins: kafka-python may otherwise be asked to assign
    before it does, assigns nothing, and leaves it at that."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=300,
    )
    eventually(lambda: bool(consumer.partitions_for_topic(topic)), "the topic is known")
    consumer.subscribe([topic])
    return consumer


def poll_until(
    consumers: list[KafkaConsumer], condition: Callable[[], bool], what: str
) -> dict[TopicPartition, list[int]]:
    """Polls until then; the offsets that were read on the way."""
    read: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        for consumer in consumers:
            for partition, records in consumer.poll(timeout_ms=50).items():
                read.setdefault(partition, []).extend(record.offset for record in records)
    return read


def test_kafka_python_members_share_and_take_over(bootstrap: str, topic: str) -> None:
    first = kafka_python(bootstrap, topic)
    poll_until([first], lambda: len(first.assignment()) == 4, "one member has everything")
    second = kafka_python(bootstrap, topic)
    poll_until(
        [first, second],
        lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
        "two members share",
    )
    second.close()
    poll_until([first], lambda: len(first.assignment()) == 4, "the first has everything again")
    first.close()


def test_kafka_python_commits_and_goes_on(bootstrap: str, topic: str) -> None:
    first = kafka_python(bootstrap, topic)
    poll_until([first], lambda: len(first.assignment()) == 4, "the assignment")
    partition = TopicPartition(topic, 1)
    first.commit({partition: OffsetAndMetadata(8, "note", -1)})
    assert first.committed(partition) == 8
    assert first.committed(partition, metadata=True).metadata == "note"
    first.close()
    second = kafka_python(bootstrap, topic)
    read = poll_until([second], lambda: len(second.assignment()) == 4, "the assignment")
    everything = poll_until(
        [second], lambda: second.position(partition) == 10, "the partition is read to its end"
    )
    assert read.get(partition, []) + everything.get(partition, []) == [8, 9]
    second.close()


def test_kafka_python_describes_lists_and_deletes(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    consumer = kafka_python(bootstrap, topic)
    poll_until([consumer], lambda: len(consumer.assignment()) == 4, "the assignment")
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    described = admin.describe_groups([topic])
    assert "Stable" in str(described)
    assert topic in str(admin.list_groups())
    assert "3" in str(admin.list_group_offsets(topic))
    consumer.close()
    admin.delete_groups([topic])
    assert f"'{topic}'" not in str(admin.list_groups())
    admin.close()


def test_aiokafka_members_share_and_take_over(bootstrap: str, topic: str) -> None:
    asyncio.run(_share_with_aiokafka(bootstrap, topic))


async def _share_with_aiokafka(bootstrap: str, topic: str) -> None:
    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None: ...
        def on_partitions_assigned(self, assigned: object) -> None: ...

    async def start() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=500,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        return consumer

    async def until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
            await asyncio.sleep(0.05)

    first = await start()
    await until(lambda: len(first.assignment()) == 4, "one member has everything")
    read = await first.getmany(timeout_ms=10_000, max_records=40)
    assert read
    partition = next(iter(first.assignment()))
    await first.commit({partition: (4, "ünchanged")})
    second = await start()
    await until(
        lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
        "two members share",
    )
    assert await second.committed(partition) == 4
    await second.stop()
    await until(lambda: len(first.assignment()) == 4, "the first has everything again")
    await first.stop()
