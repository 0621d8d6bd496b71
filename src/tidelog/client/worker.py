"""The worker loop: process, retry, set aside, and only then commit.

For each message the handler is called; when it raises, the message is tried again after a pause
that grows. A message that fails `tries` times, or that does not parse, goes to the dead-letter
topic with headers that say where it came from and why. Only when a message was handled, or its
dead letter was acknowledged, may the commit pass it: after a crash at any moment every message is
handled at least once. Without a dead-letter topic a message that keeps failing stops the worker.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.client.backoff import Backoff
from tidelog.client.consuming import Batch, Subscription
from tidelog.client.errors import ClientError, SerializationError
from tidelog.client.message import Message
from tidelog.client.serializers import BytesSerializer
from tidelog.client.session import Client

logger = logging.getLogger(__name__)

_POLL_S = 0.2

Handler = Callable[[Message], object]


@dataclass(slots=True)
class WorkerReport:
    """What a worker did so far."""

    handled: int = 0
    retried: int = 0
    dead_lettered: int = 0


class Worker:
    """Runs a handler over a topic as a member of a group, at least once for every message."""

    def __init__(
        self,
        client: Client,
        topic: str | Sequence[str],
        group: str,
        handler: Handler,
        *,
        tries: int = 5,
        backoff: Backoff | None = None,
        dead_letter_topic: str | None = None,
        max_batch: int = 100,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if tries < 1:
            raise ValueError(f"a message is tried at least once, not {tries} times")
        self._client = client
        # Keys and values are parsed here and not by the subscription: bytes that do not parse
        # are a dead letter, not the end of the loop.
        self._bytes_client = Client(
            client.bootstrap_servers,
            client_id=f"{group}-worker",
            partitioner=client.partitioner,
            key_serializer=BytesSerializer(),
            value_serializer=BytesSerializer(),
            timeout_s=client.timeout_s,
            settings=client.settings,
        )
        self._topic = topic
        self._group = group
        self._handler = handler
        self._tries = tries
        self._backoff = backoff or Backoff()
        self._dead_letter_topic = dead_letter_topic
        self._max_batch = max_batch
        self._settings = settings
        self._stopping = False
        self.report = WorkerReport()

    def stop(self) -> None:
        """Ask the loop to end after the message in hand. Safe from any thread and from signals."""
        self._stopping = True

    def run(self, *, idle_timeout_s: float | None = None) -> WorkerReport:
        """Work until stopped, or until nothing came for `idle_timeout_s`."""
        with self._bytes_client as client:
            subscription = client.consume(
                self._topic, self._group, self._max_batch, settings=self._settings
            )
            patience_s = math.inf if idle_timeout_s is None else idle_timeout_s
            last_message = time.monotonic()
            while not self._stopping:
                batch = subscription.poll(_POLL_S)
                if len(batch):
                    self._work(batch, subscription)
                    last_message = time.monotonic()
                elif time.monotonic() >= last_message + patience_s:
                    break
        return self.report

    def _work(self, batch: Batch, subscription: Subscription) -> None:
        done: list[Message] = []
        try:
            for message in batch:
                if self._stopping:
                    return
                if subscription.owns(message) and self._finish(message, subscription):
                    done.append(message)
        finally:
            # A failure ends the worker, but what was finished before it is not done again.
            subscription.commit(done)

    def _finish(self, message: Message, subscription: Subscription) -> bool:
        """Handle one message or set it aside; False if it is not this worker's any more."""
        try:
            parsed = replace(
                message,
                key=self._client.key_serializer.deserialize(message.raw_key),
                value=self._client.value_serializer.deserialize(message.raw_value),
            )
        except SerializationError as error:
            self._set_aside(message, error, tries=0)
            return True
        failures = 0
        while True:
            try:
                self._handler(parsed)
            except Exception as error:  # noqa: BLE001  a handler may raise anything
                failures += 1
                if failures >= self._tries:
                    self._set_aside(message, error, tries=failures)
                    return True
                pause_s = self._backoff.pause_s(failures)
                logger.warning(
                    "%s-%d at offset %d failed (try %d of %d), again in %.2f s: %s",
                    message.topic,
                    message.partition,
                    message.offset,
                    failures,
                    self._tries,
                    pause_s,
                    error,
                )
                self.report.retried += 1
                subscription.wait(pause_s)
                if not subscription.owns(message) or self._stopping:
                    return False
            else:
                self.report.handled += 1
                return True

    def _set_aside(self, message: Message, error: Exception, *, tries: int) -> None:
        place = f"{message.topic}-{message.partition} at offset {message.offset}"
        if self._dead_letter_topic is None:
            raise ClientError(
                f"{place} failed {max(tries, 1)} times and there is no dead-letter topic: {error}"
            ) from error
        reasons = {
            "tidelog.dead-letter.topic": message.topic,
            "tidelog.dead-letter.partition": str(message.partition),
            "tidelog.dead-letter.offset": str(message.offset),
            "tidelog.dead-letter.timestamp-ms": str(message.timestamp_ms),
            "tidelog.dead-letter.group": self._group,
            "tidelog.dead-letter.tries": str(tries),
            "tidelog.dead-letter.error": f"{type(error).__name__}: {error}",
        }
        headers = [*message.headers, *((name, text.encode()) for name, text in reasons.items())]
        self._bytes_client.publish(
            self._dead_letter_topic, message.raw_key, message.raw_value, headers
        )
        self._bytes_client.flush()
        self.report.dead_lettered += 1
        logger.error("%s went to %s: %s", place, self._dead_letter_topic, error)
