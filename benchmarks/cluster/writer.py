"""A producer beside failures: it writes at a steady rate until its input ends, and tells when each
record was sent and acknowledged.

`python -m benchmarks.cluster.writer BOOTSTRAP TOPIC RATE` prints one JSON object at the end. Times
are of the monotonic clock, which all processes of a machine share.
"""

import json
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

_RECORD_BYTES = 1024
_FLUSH_S = 60.0
_BEGUN = "begun\n"

# What makes a client turn to the next leader without long pauses of its own, for either cluster.
_SETTINGS = {
    "acks": "all",
    "linger.ms": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 0,
}


@dataclass(slots=True, frozen=True)
class Written:
    """For each record when it was sent and when acknowledged, in order of acknowledgement."""

    acknowledged: list[tuple[float, float]]
    failed: int

    def first_after(self, moment: float) -> float:
        """Seconds from a moment until a record is acknowledged that was sent after it."""
        return min(done for sent, done in self.acknowledged if sent >= moment) - moment

    @property
    def longest_s(self) -> float:
        """How long the slowest record was on its way."""
        return max(done - sent for sent, done in self.acknowledged)


class Writer:
    """The producer as a process."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster.writer", bootstrap, topic, str(rate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def await_first(self) -> None:
        """Return when a record is acknowledged: from then on it writes at its rate."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _BEGUN:
            raise RuntimeError("the writer has ended")

    def finish(self) -> Written:
        """Let it end; all that was sent is acknowledged, or has failed."""
        output, _ = self._process.communicate(timeout=2 * _FLUSH_S)
        told: dict[str, Any] = json.loads(output)
        return Written([(sent, done) for sent, done in told["acknowledged"]], told["failed"])


def _write(bootstrap: str, topic: str, rate: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **_SETTINGS})
    producer.list_topics(topic, timeout=30)
    value = bytes(_RECORD_BYTES)
    clock = time.monotonic
    acknowledged: list[tuple[float, float]] = []
    failed = 0

    def send() -> None:
        sent_at = clock()

        def done(error: KafkaError | None, _message: Message) -> None:
            nonlocal failed
            if error is None:
                acknowledged.append((sent_at, clock()))
            else:
                failed += 1

        producer.produce(topic, value, on_delivery=done)

    poll = selectors.DefaultSelector()
    poll.register(sys.stdin, selectors.EVENT_READ)
    send()
    if producer.flush(_FLUSH_S):
        raise RuntimeError("the first record is not acknowledged")
    print(_BEGUN, end="", flush=True)
    start, sent = clock(), 0
    while not poll.select(0):
        while sent < (clock() - start) * rate:
            send()
            sent += 1
        producer.poll(0.001)
    failed += producer.flush(_FLUSH_S)
    print(json.dumps({"acknowledged": acknowledged, "failed": failed}))


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
