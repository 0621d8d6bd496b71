"""Several producers of both flows at random against one broker, compared with a model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from tests.compatibility.transaction_calls import (
    TransactionalProducer,
    committed_values,
    wait_until_stable,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

STEPS = 60


@dataclass(eq=False)
class Transaction:
    is_committed: bool = False


@dataclass
class Model:
    """What was written, in order, and by which transaction."""

    written: list[tuple[bytes, Transaction]] = field(default_factory=list)

    def committed(self) -> list[bytes]:
        return [value for value, transaction in self.written if transaction.is_committed]


class RandomProducer:
    """One producer that does something valid, or a retry, whenever it is asked."""

    def __init__(self, wire: WireClient, topic: str, uses_v2: bool, model: Model) -> None:
        self.producer = TransactionalProducer(wire)
        self.topic = topic
        self.uses_v2 = uses_v2
        self.model = model
        self.current: Transaction | None = None
        assert self.producer.init() is ErrorCode.NONE

    def step(self, rng: random.Random, number: int) -> None:
        action = rng.choice(("write", "write", "write", "commit", "abort", "restart", "retry"))
        if action == "write":
            self.write(b"%d" % number)
        elif action in ("commit", "abort"):
            self.end(commit=action == "commit")
        elif action == "restart":
            self.restart()
        elif self.uses_v2 and self.current is None and self.producer.epoch > 0:
            self.retry_end()

    def write(self, value: bytes) -> None:
        if self.current is None:
            self.current = Transaction()
            if not self.uses_v2:
                assert self.producer.add(self.topic) is ErrorCode.NONE
        version = 12 if self.uses_v2 else 9
        assert self.producer.produce(self.topic, value, version=version) is ErrorCode.NONE
        self.model.written.append((value, self.current))

    def end(self, *, commit: bool) -> None:
        answer = self.producer.end(commit=commit, version=5 if self.uses_v2 else 4)
        if self.current is None:
            # The old flow has no empty end but a repeated one, which must be the same as before.
            allowed = (0, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
            assert answer.error_code in allowed
            return
        assert answer.error_code == 0
        self.current.is_committed = commit
        self.current = None

    def restart(self) -> None:
        """A new incarnation; the open transaction is rolled back and the old one fenced."""
        old_epoch = self.producer.epoch
        assert self.producer.init() is ErrorCode.NONE
        self.current = None
        stale = self.producer.produce(
            self.topic, b"stale", version=12 if self.uses_v2 else 9, epoch=old_epoch
        )
        assert stale is not ErrorCode.NONE

    def retry_end(self) -> None:
        """The answer to the last end seems to have got lost."""
        producer = self.producer
        before = (producer.producer_id, producer.epoch)
        for commit in (True, False):
            answer = producer.end(commit=commit, version=5, epoch=producer.epoch - 1)
            assert answer.error_code in (
                ErrorCode.NONE,
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.PRODUCER_FENCED,
            )
            assert (producer.producer_id, producer.epoch) == before


@pytest.mark.parametrize("seed", range(4))
def test_readers_of_committed_records_see_exactly_what_was_committed(
    broker: Broker, topic: str, seed: int
) -> None:
    rng = random.Random(seed)
    model = Model()
    with WireClient("127.0.0.1", broker.port) as wire:
        producers = [RandomProducer(wire, topic, place % 2 == 0, model) for place in range(4)]
        for number in range(STEPS):
            rng.choice(producers).step(rng, number)
        for producer in producers:
            if producer.current is not None:
                producer.end(commit=rng.random() < 0.5)
        wait_until_stable(wire, topic)
        assert committed_values(wire, topic) == model.committed()
