"""The shop's day is the same for the same seed, and has what the demo shows."""

import json
from datetime import datetime

import pytest

from examples.shop.events import (
    DAY_MS,
    ORDERS,
    PAYMENTS,
    WATERMARK_MS,
    Day,
    Kind,
    Order,
    make_day,
    moment,
    truth,
)


@pytest.fixture(scope="module")
def day() -> Day:
    return make_day(7, 3_000)


def test_a_seed_gives_the_same_day_and_another_seed_another(day: Day) -> None:
    assert make_day(7, 3_000) == day
    assert make_day(8, 3_000) != day


def test_events_come_in_the_order_of_time_and_the_last_is_from_the_next_morning(day: Day) -> None:
    times = [each.sent_ms for each in day.events]
    assert times == sorted(times)
    assert times[-2] < DAY_MS + WATERMARK_MS < times[-1]
    assert all(each.sent_ms > times[-1] for each in day.next_morning)


def test_a_day_has_events_of_every_kind(day: Day) -> None:
    assert {each.kind for each in day.events} == set(Kind)
    assert day.count(PAYMENTS, Kind.BROKEN) > 0
    assert day.count(ORDERS, Kind.BROKEN) > 0
    assert day.count(ORDERS) + day.count(PAYMENTS) == len(day.events)


def test_late_orders_are_within_the_watermark_and_forgotten_ones_are_not(day: Day) -> None:
    newest = 0
    for event in day.events[:-1]:
        if isinstance(event.content, Order):
            behind = newest - event.content.ordered_ms
            assert (behind > WATERMARK_MS) == (event.kind is Kind.FORGOTTEN)
            newest = max(newest, event.content.ordered_ms)


def test_values_say_what_the_contents_are(day: Day) -> None:
    for event in day.events:
        if isinstance(event.content, Order):
            value = json.loads(event.value)
            assert value["order_id"] == event.content.order_id
            assert value["quantity"] == event.content.quantity
            assert value["ordered_at"] == moment(event.content.ordered_ms)
            datetime.fromisoformat(value["ordered_at"])


def test_broken_values_are_no_orders(day: Day) -> None:
    for event in day.events:
        if event.kind is not Kind.BROKEN:
            continue
        try:
            value = json.loads(event.value)
        except ValueError:
            continue
        assert not isinstance(value["quantity"], int) or value["ordered_at"].startswith("sometime")


def test_the_truth_counts_every_order_once(day: Day) -> None:
    found = truth(day)
    ids = {each.content.order_id for each in day.events if isinstance(each.content, Order)}
    assert found.orders == len(ids)
    assert found.order_records == day.count(ORDERS) - day.count(ORDERS, Kind.BROKEN)
    forgotten = day.count(ORDERS, Kind.FORGOTTEN)
    counted = sum(each.orders for each in found.revenue.values())
    assert counted == 3_000 == found.orders - forgotten - 1
    assert found.order_records == found.orders + day.count(ORDERS, Kind.REPEATED)


def test_only_payments_within_half_an_hour_pay(day: Day) -> None:
    found = truth(day)
    payments = day.count(PAYMENTS) - day.count(PAYMENTS, Kind.BROKEN)
    assert 0.8 * payments < len(found.paid) < payments
    assert all(cents > 0 for cents in found.paid.values())
