"""The demo's checks hold for the truth and for nothing else."""

import pytest

from examples.shop.checking import Check, check_dead_letters, check_paid, check_revenue
from examples.shop.events import Truth, make_day, truth


@pytest.fixture(scope="module")
def found() -> Truth:
    return truth(make_day(1, 500))


def revenue_rows(found: Truth) -> list[dict[str, object]]:
    return [
        {"opens": window, "category": category, "orders": sales.orders, "cents": sales.cents}
        for (window, category), sales in found.revenue.items()
    ]


def paid_rows(found: Truth) -> list[dict[str, object]]:
    return [{"order_id": order, "cents": cents} for order, cents in found.paid.items()]


def wrong(checks: list[Check]) -> list[str]:
    return [each.claim for each in checks if not each.holds]


def test_the_truth_passes(found: Truth) -> None:
    assert wrong(check_revenue(found, revenue_rows(found))) == []
    assert wrong(check_paid(found, paid_rows(found))) == []
    assert wrong(check_dead_letters(found, map(str, range(found.broken)))) == []


def test_a_missing_window_and_one_that_came_twice_are_seen(found: Truth) -> None:
    rows = revenue_rows(found)
    assert len(wrong(check_revenue(found, rows[1:]))) == 3
    assert len(wrong(check_revenue(found, [*rows, rows[0]]))) == 3


def test_revenue_in_the_wrong_window_is_seen(found: Truth) -> None:
    first, second, *rest = revenue_rows(found)
    swapped = [{**first, "opens": second["opens"], "category": second["category"]}]
    swapped.append({**second, "opens": first["opens"], "category": first["category"]})
    assert wrong(check_revenue(found, [*swapped, *rest])) == ["windows that differ or came twice"]


def test_windows_before_the_day_are_let_be(found: Truth) -> None:
    early = {"opens": "2026-03-02T06:30:00.000Z", "category": "meals", "orders": 1, "cents": 1}
    assert wrong(check_revenue(found, [*revenue_rows(found), early])) == []


def test_an_order_that_came_twice_or_was_not_paid_is_seen(found: Truth) -> None:
    rows = paid_rows(found)
    assert "joined orders that came twice" in wrong(check_paid(found, [*rows, rows[0]]))
    stranger = {"order_id": "nobody", "cents": 0}
    assert "joined orders that were not paid in time" in wrong(
        check_paid(found, [*rows[1:], stranger])
    )


def test_copies_of_a_dead_letter_count_once(found: Truth) -> None:
    keys = [str(each) for each in range(found.broken)]
    assert wrong(check_dead_letters(found, [*keys, *keys])) == []
    assert wrong(check_dead_letters(found, keys[1:])) != []
