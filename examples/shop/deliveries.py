"""What the pipeline's topics deliver to a consumer, and when."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


@dataclass(frozen=True, slots=True)
class Delivered:
    key: str
    value: bytes
    headers: Mapping[str, bytes]
    arrived_ms: int

    def row(self) -> dict[str, Any]:
        """The value as the JSON object that it is."""
        row = json.loads(self.value)
        assert isinstance(row, dict)
        return row


class Deliveries:
    """Reads topics from their beginning in a thread; a row of an open transaction is not seen.

    `of(topic)` is what has arrived so far.
    """

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        self._arrived: dict[str, list[Delivered]] = {topic: [] for topic in topics}
        self._partitions = [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic, count in topics.items()
            for partition in range(count)
        ]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "shop-deliveries",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._ended = Flag()
        self._thread = Thread(target=self._run, name="deliveries", daemon=True)

    def __enter__(self) -> "Deliveries":
        self._consumer.assign(self._partitions)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(10)
        self._consumer.close()

    def of(self, topic: str) -> Sequence[Delivered]:
        return self._arrived[topic]

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._arrived[message.topic()].append(
                        Delivered(
                            (message.key() or b"").decode(errors="replace"),
                            message.value() or b"",
                            dict(message.headers() or ()),
                            time.time_ns() // 1_000_000,
                        )
                    )
