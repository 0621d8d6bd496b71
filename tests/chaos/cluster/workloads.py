"""Clients on librdkafka that go on through faults and record what they did and were told."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import Operation, Outcome, Polled, Send

# librdkafka waits for long between its attempts unless told otherwise.
STURDY = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}
MESSAGE_TIMEOUT_S = 30
_QUEUED_MAX = 500
# What a reader is told whose offset is not in the log any more.
_MOVED_BACK = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
_POLL_S = 0.05


class Workload:
    """Something that a thread does again and again until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: list[Operation] = []
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin_stop(self) -> None:
        self._stopping.set()

    def await_stop(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.problems.append(f"{self.name} did not end within {timeout_s:g} s")

    def run(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001  the round is told and fails
            self.problems.append(f"{self.name} failed: {error!r}")


class SteadyProducer(Workload):
    """Sends unique values to all partitions of a topic in turn, at a steady rate.

    A value that may or may not be in the log is never sent again: after a fatal error another
    producer goes on with the next value. With one request in flight it must never be in the log
    twice; with several librdkafka may do that, see `tests.chaos.cluster.resends`.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        rate: int,
        acks: str = "all",
        keys: int = 0,
        in_flight: int = 1,
        log: Path,
    ) -> None:
        super().__init__(name)
        self.epoch_bumps = 0
        self._log = self._logger(log)
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._keys = keys
        self._config = {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "message.timeout.ms": MESSAGE_TIMEOUT_S * 1000,
            "max.in.flight": in_flight,
            "linger.ms": 2,
            **STURDY,
            # Why librdkafka takes a new epoch decides whether a duplicate is the cluster's doing.
            "debug": "eos",
            "log_level": 7,
        }
        self._sent = 0
        self._lives = 0
        self._in_flight = 0
        self.acknowledged = 0
        self.fatal_errors: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            self._lives += 1
            self._send_until_fatal(
                Producer(self._config, logger=self._log), f"{self.name}.{self._lives}"
            )

    def _send_until_fatal(self, producer: Producer, process: str) -> None:
        # Each producer counts for itself: what one leaves behind is not in the way of the next.
        self._in_flight = 0
        lives = len(self.fatal_errors)
        next_at = time.monotonic()
        while not self._stopping.is_set() and len(self.fatal_errors) == lives:
            if self._in_flight < _QUEUED_MAX and time.monotonic() >= next_at:
                next_at = max(next_at + 1 / self._rate, time.monotonic() - 1)
                self._send(producer, process)
                producer.poll(0)
            else:
                producer.poll(min(_POLL_S, max(next_at - time.monotonic(), 0.001)))
        if len(self.fatal_errors) == lives:
            producer.flush(MESSAGE_TIMEOUT_S + 5)
        else:
            self._give_up(producer)

    def _give_up(self, producer: Producer) -> None:
        """What it has on the way stays unknown."""
        try:
            producer.purge()
            producer.flush(1)
        except KafkaException:
            pass  # it has failed for good, and says so at every call

    def _send(self, producer: Producer, process: str) -> None:
        number = self._sent
        self._sent += 1
        partition = number % self._partitions
        key = f"k{number % self._keys}" if self._keys else None
        if self._keys:
            partition = (number % self._keys) % self._partitions
        value = f"{self.name}-{number}"
        place = Place(self._topic, partition)
        operation = Operation(process, Outcome.UNKNOWN, [Send(place, value)])
        self.operations.append(operation)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._in_flight -= 1
            if error is None:
                operation.outcome = Outcome.OK
                operation.sends = [Send(place, value, message.offset())]
                self.acknowledged += 1
            elif error.code() == KafkaError._FATAL or error.fatal():
                self.fatal_errors.append(f"{process}: {error}")

        try:
            producer.produce(
                self._topic, value, key=key, partition=partition, on_delivery=delivered
            )
            self._in_flight += 1
        except KafkaException as error:
            operation.outcome = Outcome.FAILED
            self.fatal_errors.append(f"{process}: {error}")

    def _logger(self, path: Path) -> logging.Logger:
        logger = logging.Logger(path.name)
        handler = logging.FileHandler(path, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
        logger.addFilter(self._count_epoch_bump)
        return logger

    def _count_epoch_bump(self, record: logging.LogRecord) -> bool:
        if "bumped epoch to" in record.getMessage():
            self.epoch_bumps += 1
        return True


class TailReader(Workload):
    """Reads all partitions from the beginning, to whatever is readable, without a group.

    It may go back never, not even when the log of a new leader is shorter: an offset that is out of
    range is an error here.
    """

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap
        self._places = places
        self.polled = 0

    def run(self) -> None:
        consumer = reader(self._bootstrap, self.name, "error")
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in self._places])
        while not self._stopping.is_set():
            self._note(consumer.consume(500, 0.1))
        consumer.close()

    def _note(self, messages: list[Message]) -> None:
        polls = polled(messages)
        if polls:
            self.polled += len(polls)
            self.operations.append(Operation(self.name, polls=[polls]))
        for message in messages:
            error = message.error()
            if error is not None and error.code() in _MOVED_BACK:
                self.problems.append(f"{self.name}: {error.str()}")


class GroupReader(Workload):
    """A member of a group, by the classic protocol or by KIP-848; commits what it has polled."""

    def __init__(self, name: str, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        super().__init__(name)
        self.group = group
        self._topic = topic
        self._moved = True
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **STURDY,
        }
        if protocol == "classic":
            self._config |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self.polled = 0
        self.commits = 0
        self.lives = 0
        self.moves: deque[str] = deque(maxlen=20)

    def run(self) -> None:
        while not self._stopping.is_set():
            self.lives += 1
            consumer = Consumer(self._config)
            try:
                consumer.subscribe(
                    [self._topic],
                    on_assign=lambda _, given: self._moved_by("assigned", given),
                    on_revoke=lambda _, taken: self._moved_by("revoked", taken),
                    on_lost=lambda _, taken: self._moved_by("lost", taken),
                )
                self._read(consumer)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> None:
        """Until it is told to stop, or its membership is over for good."""
        self._moved = True
        while not self._stopping.is_set():
            messages = consumer.consume(200, 0.1)
            if any(message.error() is not None and message.error().fatal() for message in messages):
                return
            polls = polled(messages)
            if not polls:
                continue
            self.polled += len(polls)
            self.operations.append(Operation(self.name, polls=[polls], repositioned=self._moved))
            self._moved = False
            try:
                consumer.commit(asynchronous=False)
                self.commits += 1
            except KafkaException:
                self._moved = True  # what it has read may be read again

    def _moved_by(self, what: str, partitions: list[TopicPartition]) -> None:
        self._moved = True
        numbers = sorted(each.partition for each in partitions)
        self.moves.append(f"{time.strftime('%H:%M:%S')} {what} {numbers}")


def reader(bootstrap: str, name: str, reset: str = "earliest", **more: object) -> Consumer:
    """A consumer of committed records that is assigned partitions and commits nothing."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "fetch.wait.max.ms": 100,
            **STURDY,
            **more,
        }
    )


def polled(messages: Sequence[Message]) -> list[Polled]:
    return [
        Polled(
            Place(message.topic(), message.partition()),
            message.offset(),
            "" if message.value() is None else message.value().decode(),
        )
        for message in messages
        if message.error() is None
    ]


def read_to_end(
    bootstrap: str, name: str, places: Sequence[Place], timeout_s: float
) -> list[Operation]:
    """Everything that can be read now; raises when it does not end in time."""
    consumer = reader(bootstrap, name, "error", **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in places])
    unfinished = set(places)
    operations = []
    deadline = time.monotonic() + timeout_s
    try:
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(unfinished)[:3]} cannot be read to the end")
            messages = consumer.consume(2000, 0.1)
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(Place(message.topic(), message.partition()))
                elif error is not None and error.code() in _MOVED_BACK:
                    raise RuntimeError(f"{name}: {error.str()}")
            polls = polled(messages)
            if polls:
                operations.append(Operation(name, polls=[polls]))
    finally:
        consumer.close()
    return operations
