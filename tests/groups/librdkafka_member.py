"""A member of a group on librdkafka that a test steers: it polls in a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

PATIENCE_S = 30.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)


class Member:
    """Reads what it is assigned. `assigned`, `revoked` and `read` may be looked at any time."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        *,
        protocol: str = "classic",
        **settings: Any,
    ) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            # A broker that stops at the end of the tests is not worth a line.
            "log_level": 2,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        self.is_cooperative = (
            protocol == "consumer"
            or config.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self.assigned: set[tuple[str, int]] = set()
        self.revoked: list[set[tuple[str, int]]] = []
        self.read: list[tuple[str, int, int]] = []
        self.fatal: KafkaError | None = None
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[Consumer], Any]]] = (
            queue.SimpleQueue()
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group (a static member only goes away)."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(PATIENCE_S)
            self.consumer.close()

    def call(self, action: Callable[[Consumer], Any]) -> Any:
        """Runs on the thread that polls: a consumer is not to be used from two."""
        future: Future[Any] = Future()
        self._calls.put((future, action))
        return future.result(PATIENCE_S)

    def commit(self, offsets: list[TopicPartition]) -> None:
        self.call(lambda consumer: consumer.commit(offsets=offsets, asynchronous=False))

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.assigned}

    def _poll(self) -> None:
        while not self._stop.is_set():
            while not self._calls.empty():
                future, action = self._calls.get()
                try:
                    future.set_result(action(self.consumer))
                except KafkaException as error:
                    future.set_exception(error)
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            failure = message.error()
            if failure is not None:
                if failure.code() == KafkaError._FATAL:
                    self.fatal = failure
                    return
                continue
            self.read.append((message.topic(), message.partition(), message.offset()))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = {(each.topic, each.partition) for each in partitions}
        self.assigned = self.assigned | found if self.is_cooperative else found

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost = {(each.topic, each.partition) for each in partitions}
        self.revoked.append(lost)
        self.assigned = self.assigned - lost


def share_evenly(members: list[Member], topic: str, partition_count: int) -> Callable[[], bool]:
    """True once the members have every partition, each one of them about as many."""

    def check() -> bool:
        held = [member.assigned for member in members]
        everything = {(topic, partition) for partition in range(partition_count)}
        least = partition_count // len(members)
        return (
            set().union(*held) == everything
            and sum(map(len, held)) == partition_count
            and all(len(each) >= least for each in held)
        )

    return check
