"""Consuming: batches of messages from a group's subscription, committed when they are done."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as ConfluentMessage

from tidelog.client.errors import ConsumeError, SerializationError
from tidelog.client.message import Message
from tidelog.client.serializers import Serializer

_POLL_S = 0.2


@dataclass(slots=True, frozen=True)
class Batch:
    """Messages that came together, in order for each partition."""

    messages: Sequence[Message]
    subscription: "Subscription"

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def commit(self) -> None:
        """Record in the group that everything in this batch is done."""
        self.subscription.commit(self.messages)


class Subscription:
    """A member of a consumer group. Iterate over it for batches; close it to leave the group.

    Nothing is committed until `commit` is called: after a crash the group goes on at the last
    commit, so every message is delivered at least once.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        *,
        max_batch: int,
        idle_timeout_s: float | None,
        key_serializer: Serializer,
        value_serializer: Serializer,
    ) -> None:
        if max_batch < 1:
            raise ConsumeError(f"max_batch is at least 1, not {max_batch}")
        self._max_batch = max_batch
        self._idle_timeout_s = idle_timeout_s
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._closed = False
        self._revoked: set[tuple[str, int]] = set()
        self._consumer = Consumer(dict(settings))
        self._consumer.subscribe(list(topics), on_revoke=self._taken, on_lost=self._taken)

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        """Batches as they come, until closed, or until nothing came for `idle_timeout_s`."""
        last_message = time.monotonic()
        while not self._closed:
            batch = self.poll(_POLL_S)
            now = time.monotonic()
            if len(batch):
                yield batch
                last_message = time.monotonic()
            elif self._idle_timeout_s is not None and now - last_message >= self._idle_timeout_s:
                return

    def poll(self, timeout_s: float) -> Batch:
        """The next batch, empty when nothing comes within the time.

        A message that does not parse raises, and the whole batch comes again with the next poll:
        nothing is skipped in silence.
        """
        self._revoked.clear()
        try:
            received = self._consumer.consume(self._max_batch, timeout_s)
        except (KafkaException, RuntimeError) as error:
            raise ConsumeError(f"consuming failed: {error}") from error
        try:
            messages = [self._to_message(raw) for raw in received if not _is_event(raw)]
        except SerializationError:
            self._rewind(received)
            raise
        return Batch(messages, self)

    def commit(self, messages: Sequence[Message]) -> None:
        """Commit past the given messages; those of partitions taken away meanwhile are left out."""
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            place = (message.topic, message.partition)
            if place not in self._revoked:
                ends[place] = max(ends.get(place, 0), message.offset + 1)
        if not ends:
            return
        offsets = [TopicPartition(topic, number, end) for (topic, number), end in ends.items()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise ConsumeError(f"the commit failed: {error.args[0].str()}") from error
        for answer in answers or ():
            if answer.error is not None:
                raise ConsumeError(
                    f"the commit of {answer.topic}-{answer.partition} failed: {answer.error.str()}"
                )

    def wait(self, seconds: float) -> None:
        """Let time pass without fetching, while the membership in the group stays alive."""
        paused = self._consumer.assignment()
        if paused:
            self._consumer.pause(paused)
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0 and not self._closed:
                # A partition that is assigned meanwhile is not paused: what it gives comes again.
                self._rewind(self._consumer.consume(1, min(left, _POLL_S)))
        finally:
            still_ours = {(held.topic, held.partition) for held in self._consumer.assignment()}
            resumed = [held for held in paused if (held.topic, held.partition) in still_ours]
            if resumed:
                self._consumer.resume(resumed)

    def owns(self, message: Message) -> bool:
        """Whether the partition of a message of the last batch is still this member's."""
        return (message.topic, message.partition) not in self._revoked

    def close(self) -> None:
        """Leave the group."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _taken(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked.update((taken.topic, taken.partition) for taken in partitions)

    def _to_message(self, raw: ConfluentMessage) -> Message:
        raw_key, raw_value = raw.key(), raw.value()
        key_bytes = raw_key.encode() if isinstance(raw_key, str) else raw_key
        value_bytes = raw_value.encode() if isinstance(raw_value, str) else raw_value
        topic, partition, offset = raw.topic() or "", raw.partition() or 0, raw.offset() or 0
        headers: Any = tuple(raw.headers() or ())
        try:
            key = self._key_serializer.deserialize(key_bytes)
            value = self._value_serializer.deserialize(value_bytes)
        except SerializationError as error:
            raise SerializationError(f"{topic}-{partition} at offset {offset}: {error}") from error
        return Message(
            topic,
            partition,
            offset,
            raw.timestamp()[1],
            key,
            value,
            headers,
            raw_key=key_bytes,
            raw_value=value_bytes,
        )

    def _rewind(self, received: Sequence[ConfluentMessage]) -> None:
        firsts: dict[tuple[str, int], int] = {}
        for raw in received:
            if raw.error() is None:
                firsts.setdefault((raw.topic() or "", raw.partition() or 0), raw.offset() or 0)
        for (topic, partition), offset in firsts.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))


def _is_event(raw: ConfluentMessage) -> bool:
    """Whether this is no record but an event: the end, or a retriable error. Others are raised."""
    error = raw.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():
        return True
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise ConsumeError(f"the topic {raw.topic()} does not exist: create it first")
    raise ConsumeError(f"consuming failed: {error.str()}")
