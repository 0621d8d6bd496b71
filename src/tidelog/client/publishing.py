"""Publishing: records into librdkafka's batches, and what became of each."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as ConfluentMessage

from tidelog.client.errors import ConnectError, PublishError
from tidelog.client.message import Headers, to_headers
from tidelog.client.partitioners import Partitioner, TopicLayout
from tidelog.client.serializers import Serializer

_LAYOUT_FRESH_S = 60.0
_POLL_EVERY_RECORDS = 64


@dataclass(slots=True, frozen=True)
class Delivery:
    """Where an acknowledged record is."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Publisher:
    """One librdkafka producer with a partitioner and serialisers in front of it.

    The queue of records that wait is bounded by librdkafka (`queue.buffering.max.messages` and
    `.kbytes`): `publish` waits for room, up to `timeout_s`, and then raises.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        partitioner: Partitioner,
        layout_of: Callable[[str], TopicLayout],
        key_serializer: Serializer,
        value_serializer: Serializer,
        timeout_s: float,
    ) -> None:
        settings = dict(settings)
        if partitioner.native is not None:
            settings["partitioner"] = partitioner.native
        self._producer = Producer(settings)
        self._partitioner = partitioner
        self._layout_of = layout_of
        self._layouts: dict[str, tuple[float, TopicLayout]] = {}
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._timeout_s = timeout_s
        self._failures: list[KafkaError] = []
        self._since_poll = 0

    def publish(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        headers: Headers | Mapping[str, bytes | str | None] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "Future[Delivery]":
        """Queue one record; the future is done when the broker has acknowledged or refused it."""
        raw_key = self._key_serializer.serialize(key)
        raw_value = self._value_serializer.serialize(value)
        all_headers = to_headers(headers)
        if partition is None and self._partitioner.native is None:
            choice = self._partitioner.choose(self._layout(topic), raw_key)
            partition = choice.partition
            all_headers.extend(choice.headers)
        future: Future[Delivery] = Future()
        arguments: dict[str, Any] = {"value": raw_value, "key": raw_key}
        if all_headers:
            arguments["headers"] = all_headers
        if partition is not None:
            arguments["partition"] = partition
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms
        self._enqueue(topic, arguments, future)
        self._since_poll += 1
        if self._since_poll >= _POLL_EVERY_RECORDS:
            self._since_poll = 0
            self._producer.poll(0)
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every published record is acknowledged; raise if one was not."""
        waited_s = self._timeout_s if timeout_s is None else timeout_s
        left = self._producer.flush(waited_s)
        failures, self._failures = self._failures, []
        if failures:
            raise PublishError(
                f"{len(failures)} records were not acknowledged, the first because: "
                f"{failures[0].str()}"
            )
        if left:
            raise PublishError(f"{left} records were not acknowledged within {waited_s:g} s")

    def close(self) -> None:
        """Flush; the producer is not to be used afterwards."""
        self.flush()

    def _enqueue(self, topic: str, arguments: dict[str, Any], future: "Future[Delivery]") -> None:
        def delivered(error: KafkaError | None, message: ConfluentMessage) -> None:
            if error is not None:
                self._failures.append(error)
                future.set_exception(PublishError(f"{topic}: {error.str()}"))
                return
            future.set_result(
                Delivery(
                    topic,
                    message.partition() or 0,
                    message.offset() or 0,
                    message.timestamp()[1],
                )
            )

        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(topic, on_delivery=delivered, **arguments)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise PublishError(
                        f"the queue of unsent records stayed full for {self._timeout_s:g} s: "
                        f"the broker does not keep up or cannot be reached"
                    ) from None
                self._producer.poll(0.1)
            except KafkaException as error:
                raise PublishError(f"{topic}: {error.args[0].str()}") from error

    def _layout(self, topic: str) -> TopicLayout:
        now = time.monotonic()
        cached = self._layouts.get(topic)
        if cached is not None and now < cached[0] + _LAYOUT_FRESH_S:
            return cached[1]
        try:
            layout = self._layout_of(topic)
        except ConnectError:
            if cached is None:
                raise
            layout = cached[1]
        if cached is not None and cached[1] == layout:
            layout = cached[1]
        self._layouts[topic] = (now, layout)
        return layout
