"""Sending a day to the broker in the time of a demo."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag

from confluent_kafka import Producer

from examples.shop.events import DAY_MS, Event, Kind

_FLUSH_TIMEOUT_S = 20.0


class SendError(Exception):
    """The broker did not take all events."""


@dataclass
class Sent:
    """What has left, while it leaves: read by other threads."""

    count: int = 0
    by_kind: Counter[Kind] = field(default_factory=Counter)
    times_ms: list[int] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.count += 1
        self.by_kind[event.kind] += 1
        self.times_ms.append(time.time_ns() // 1_000_000)


def send_day(
    bootstrap: str, events: Sequence[Event], duration_s: float, sent: Sent, cancelled: Flag
) -> None:
    """Send at the pace of the shop's clock, sped up so that its day takes `duration_s`.

    The last event is that of the next morning: it goes when all others are acknowledged, so that
    no reader can see it before them.
    """
    *of_the_day, last = events
    speed = DAY_MS / 1000 / duration_s
    producer = _producer(bootstrap)
    began = time.monotonic()
    for event in of_the_day:
        ahead_s = event.sent_ms / 1000 / speed - (time.monotonic() - began)
        if ahead_s > 0.005 and cancelled.wait(ahead_s):
            return
        _send(producer, event, sent)
    _flush(producer)
    _send(producer, last, sent)
    _flush(producer)


def send_all(bootstrap: str, events: Iterable[Event], sent: Sent) -> None:
    """Send without waiting."""
    producer = _producer(bootstrap)
    for event in events:
        _send(producer, event, sent)
    _flush(producer)


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
    )


def _send(producer: Producer, event: Event, sent: Sent) -> None:
    producer.produce(event.topic, key=event.key, value=event.value)
    producer.poll(0)
    sent.add(event)


def _flush(producer: Producer) -> None:
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left:
        raise SendError(f"{left} events were not acknowledged within {_FLUSH_TIMEOUT_S:g} s")
