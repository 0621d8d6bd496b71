"""Rates over windows of time, and how long it takes until they are within a bound."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.windowed_rate import WindowedRate, throttle_time_ms


def test_old_windows_leave_the_rate() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(11_000, 0)
    assert rate.per_second(0) == pytest.approx(1100)
    assert rate.per_second(10_500) == pytest.approx(11_000 / 10.5)
    assert rate.per_second(11_000) == 0
    assert rate.is_idle(11_000)


def test_a_steady_rate_below_the_quota_is_not_throttled() -> None:
    rate = WindowedRate(11, 1000)
    for now_ms in range(0, 60_000, 100):
        rate.record(95, now_ms)
        assert throttle_time_ms(rate, 1000, now_ms) == 0


def test_a_first_burst_counts_where_it_is_to() -> None:
    rate = WindowedRate(11, 1000, counts_first_burst=True)
    rate.record(5_000, 100)
    assert rate.per_second(100) == 5_000
    assert rate.per_second(1_100) == 5_000, "it is taken over one window at least"
    assert rate.per_second(2_100) == 2_500
    assert rate.per_second(11_100) == 0


@pytest.mark.parametrize("bound", [0, 1, 300, 999, 1000, 5_000, 10**6])
def test_the_wait_ends_when_the_rate_is_within_the_bound_and_not_before(bound: int) -> None:
    random = Random(bound)
    rate = WindowedRate(11, 1000, counts_first_burst=True)
    now_ms = 0
    for _ in range(200):
        now_ms += random.choice((1, 90, 700, 2_500))
        rate.record(random.choice((1, 1_000, 9_000)), now_ms)
        waited_ms = 0
        while wait_ms := rate.wait_ms(bound, now_ms + waited_ms):
            if wait_ms > 1:
                assert rate.per_second(now_ms + waited_ms + wait_ms - 1) > bound
            waited_ms += wait_ms
        assert waited_ms <= 11_000
        assert rate.per_second(now_ms + waited_ms) <= bound
        now_ms += random.choice((0, waited_ms))
