"""A producer under faults: what was sent, what was acknowledged, what must be there afterwards."""

import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition


@dataclass(slots=True)
class Acknowledged:
    """value -> (partition, offset) of every record that the broker acknowledged."""

    places: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class NumberedProducer:
    """Publishes numbered values and remembers which were acknowledged, and where.

    Not idempotent and without retries across a restart: each value is sent once, so that a value
    found twice is the broker's doing.
    """

    def __init__(self, bootstrap: str, topic: str, *, prefix: str, partitions: int) -> None:
        self._topic = topic
        self._prefix = prefix
        self._partitions = partitions
        self._sent = 0
        self.acknowledged = Acknowledged()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "retries": 0,
                "enable.idempotence": False,
                "message.timeout.ms": 5000,
                "max.in.flight": 5,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        """Queue some records and serve what was delivered meanwhile."""
        for _ in range(count):
            value = f"{self._prefix}-{self._sent}".encode()
            partition = self._sent % self._partitions
            self._sent += 1
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0)

    def send_for(self, seconds: float) -> None:
        """Keep the broker busy for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.send(20)
            self._producer.poll(0.001)

    def drain(self) -> None:
        """Wait until the fate of every record is known."""
        self._producer.flush(20)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            self.acknowledged.places[value] = (message.partition(), message.offset())


def read_everything(
    bootstrap: str, topic: str, partitions: int
) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of a topic as (offset, value), by partition, in the order it was delivered."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(partitions)}
    unfinished = set(range(partitions))
    deadline = time.monotonic() + 60
    while unfinished:
        assert time.monotonic() < deadline, f"partitions {unfinished} do not end"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found[message.partition()].append((message.offset(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
    consumer.close()
    return found


def check_nothing_lost(
    acknowledged: Acknowledged, found: dict[int, list[tuple[int, bytes]]]
) -> None:
    """Every acknowledged record is there, once, at its offset; offsets have no gap."""
    seen: dict[bytes, tuple[int, int]] = {}
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(len(offsets))), f"partition {partition} has gaps"
        for offset, value in records:
            assert value not in seen, f"{value!r} is there twice"
            seen[value] = (partition, offset)
    lost = [value for value in acknowledged.places if value not in seen]
    assert not lost, f"{len(lost)} acknowledged records are lost, among them {lost[:3]}"
    for value, place in acknowledged.places.items():
        assert seen[value] == place
