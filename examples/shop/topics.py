"""The shop's topics on the broker."""

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from examples.shop.events import ORDERS, PAYMENTS
from tidelog.client import connect

DEAD, REVENUE, PAID = "shop.dead", "shop.revenue", "shop.paid"
OUTPUTS = {DEAD: 1, REVENUE: 1, PAID: 2}
PARTITIONS = {ORDERS: 2, PAYMENTS: 2, **OUTPUTS}

_TIMEOUT_S = 15.0


def create_topics(bootstrap: str) -> None:
    with connect(bootstrap) as client:
        for topic, count in PARTITIONS.items():
            client.create_topic(topic, partitions=count)


def delete_records(bootstrap: str, topic: str, ends: Mapping[int, int]) -> None:
    """Delete everything before these offsets, by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    futures = admin.delete_records(
        [TopicPartition(topic, partition, end) for partition, end in ends.items()],
        request_timeout=_TIMEOUT_S,
    )
    for future in futures.values():
        future.result(_TIMEOUT_S)


def count_records(bootstrap: str, topic: str) -> int:
    """How many offsets the broker has between the first and the last."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop-counting"})
    try:
        total = 0
        for partition in range(PARTITIONS[topic]):
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_TIMEOUT_S
            )
            total += high - low
        return total
    finally:
        consumer.close()
