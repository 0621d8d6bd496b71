"""Pauses and deadlines, on a clock of their own."""

from __future__ import annotations

import pytest

from tidelog.client.backoff import Backoff
from tidelog.client.cluster import ANY_BROKER, Retries, Stale, is_retriable, retrying
from tidelog.client.errors import BrokerError, ConnectError, RetriableError, RetriesExhausted
from tidelog.protocol.errors import ErrorCode


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses_s: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


def retries_on(clock: Clock, timeout_s: float) -> Retries:
    backoff = Backoff(first_s=0.1, longest_s=0.4, jitter=0.2)
    return Retries(timeout_s, backoff=backoff, clock=lambda: clock.now_s, sleep=clock.sleep)


def test_pauses_double_with_jitter_up_to_the_longest() -> None:
    clock = Clock()
    retries = retries_on(clock, 1000.0)
    for _ in range(20):
        retries.wait("it", "no")
    for pause_s, about_s in zip(clock.pauses_s, [0.1, 0.2, *[0.4] * 18], strict=True):
        assert 0.8 * about_s <= pause_s <= 1.2 * about_s
    assert len(set(clock.pauses_s)) > 10


def test_the_last_try_is_at_the_deadline() -> None:
    clock = Clock()
    retries = retries_on(clock, 1.0)
    with pytest.raises(RetriesExhausted, match=r"it: no success within 1 s; tried [56] times: no"):
        for _ in range(100):
            retries.wait("it", "no")
    assert clock.now_s == pytest.approx(101.0)


def test_what_succeeds_begins_the_deadline_and_the_pauses_again() -> None:
    clock = Clock()
    retries = retries_on(clock, 1.0)
    for _ in range(10):
        retries.wait("it", "no")
        retries.wait("it", "no")
        retries.restart()
    assert max(clock.pauses_s) <= 0.24
    assert not retries.is_over
    assert retries.tried("nothing") == "tried once: nothing"


def test_attempts_end_with_a_result_or_an_error_that_is_not_retriable() -> None:
    outcomes: list[Exception | str] = [
        ConnectError("away"),
        RetriableError(ErrorCode.NOT_COORDINATOR, "g"),
        "done",
        BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g"),
    ]

    def attempt() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    clock = Clock()
    assert retrying(attempt, "it", retries_on(clock, 10.0)) == "done"
    with pytest.raises(BrokerError):
        retrying(attempt, "it", retries_on(clock, 10.0))
    assert len(clock.pauses_s) == 2


def test_a_call_retries_what_concerns_its_route() -> None:
    assert is_retriable(ErrorCode.NOT_COORDINATOR, Stale.COORDINATOR)
    assert not is_retriable(ErrorCode.NOT_COORDINATOR, Stale.METADATA)
    assert is_retriable(ErrorCode.NOT_COORDINATOR)
    assert is_retriable(ErrorCode.REQUEST_TIMED_OUT, ANY_BROKER)
    assert not is_retriable(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ANY_BROKER)
    assert not is_retriable(ErrorCode.NONE)
    assert not is_retriable(999)
