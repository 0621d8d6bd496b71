"""Whether the demo found what the shop's events say."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from examples.shop.events import Sales, Truth, moment


@dataclass(frozen=True, slots=True)
class Check:
    """One claim with both numbers."""

    claim: str
    expected: object
    found: object

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def check_revenue(truth: Truth, rows: Iterable[Mapping[str, Any]]) -> list[Check]:
    """Windows of the day as the revenue topic has them; one that came twice counts twice.

    Forgotten orders are of windows before the day. Whether these were closed when they came depends
    on how far the pipeline was by then, so they are let be.
    """
    found: dict[tuple[str, str], Sales] = {}
    windows: Counter[tuple[str, str]] = Counter()
    for row in rows:
        place = (str(row["opens"]), str(row["category"]))
        if place[0] < moment(0):
            continue
        windows[place] += 1
        before = found.get(place, Sales())
        found[place] = Sales(before.orders + row["orders"], before.cents + row["cents"])
    differing = sum(truth.revenue.get(place) != found.get(place) for place in truth.revenue | found)
    return [
        Check(
            "orders in the windows of the day: each valid one, once",
            sum(each.orders for each in truth.revenue.values()),
            sum(each.orders for each in found.values()),
        ),
        Check(
            "revenue of these windows, in cents",
            sum(each.cents for each in truth.revenue.values()),
            sum(each.cents for each in found.values()),
        ),
        Check("windows that differ or came twice", 0, differing + _repeated(windows)),
    ]


def check_paid(truth: Truth, rows: Iterable[Mapping[str, Any]]) -> list[Check]:
    """Orders joined with their payments."""
    orders: Counter[str] = Counter()
    cents = 0
    for row in rows:
        orders[str(row["order_id"])] += 1
        cents += row["cents"]
    return [
        Check("orders joined with a payment in time", len(truth.paid), len(orders)),
        Check("joined orders that were not paid in time", 0, len(orders.keys() - truth.paid)),
        Check("joined orders that came twice", 0, _repeated(orders)),
        Check("paid, in cents", sum(truth.paid.values()), cents),
    ]


def check_dead_letters(truth: Truth, keys: Iterable[str]) -> list[Check]:
    """Broken records by the key of their dead letter, which names the record."""
    return [Check("broken records in the dead-letter topic", truth.broken, len(set(keys)))]


def _repeated(counted: Counter[Any]) -> int:
    return sum(count - 1 for count in counted.values())
