"""A day of a shop, made from a seed: orders and payments as they reach the broker.

Orders come in with a peak around noon, most of them at once. Of some hundred a few are

* late: the till was offline for some minutes, less than the pipeline's watermark allows;
* forgotten: they were found hours later, when their windows are closed;
* repeated: the till sent them twice;
* broken: their bytes are not what the schema says.

Payments follow their orders. Some orders are never paid, some only after the half hour in which
the pipeline matches them. A day ends with the first order of the next morning, which moves the
watermark past all windows of the day; more of that morning's orders come in `next_morning`.

All times are milliseconds of the shop's clock after it opened.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from examples.shop.products import Product, read_products

OPENED = datetime(2026, 3, 2, 9, tzinfo=UTC)

MINUTE_MS = 60_000
DAY_MS = 60 * MINUTE_MS
WATERMARK_MS = 10 * MINUTE_MS
WINDOW_MS = 10 * MINUTE_MS
PAYMENT_TIME_MS = 30 * MINUTE_MS

ORDERS, PAYMENTS = "orders", "payments"

_LATE_MS_MAX = 8 * MINUTE_MS
_NEXT_MORNING_MS = 24 * 60 * MINUTE_MS
_METHODS = ("card", "cash", "voucher")
# A company next door orders for everybody: its key is hot.
CANTEEN = "c0000"
_CUSTOMERS = 2_000


class Kind(StrEnum):
    ON_TIME = "on time"
    LATE = "late"
    FORGOTTEN = "forgotten"
    REPEATED = "repeated"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    customer_id: str
    product_id: str
    quantity: int
    ordered_ms: int


@dataclass(frozen=True, slots=True)
class Payment:
    payment_id: str
    order_id: str
    method: str
    paid_ms: int


@dataclass(frozen=True, slots=True)
class Event:
    """What is sent at `sent_ms`; a broken one has no content."""

    sent_ms: int
    topic: str
    key: bytes
    value: bytes
    kind: Kind
    content: Order | Payment | None = None


@dataclass(frozen=True, slots=True)
class Day:
    """Events in the order in which they are sent."""

    events: tuple[Event, ...]
    next_morning: tuple[Event, ...]

    def opening(self) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
        """The events of the first half minute, and the rest."""
        first = sum(each.sent_ms < MINUTE_MS // 2 for each in self.events)
        return self.events[:first], self.events[first:]

    def count(self, topic: str, *kinds: Kind) -> int:
        """How many records the day has in a topic, of all kinds or of some."""
        return sum(
            each.topic == topic and (not kinds or each.kind in kinds) for each in self.events
        )


def make_day(seed: int, order_count: int = 20_000) -> Day:
    """The same day for the same seed."""
    rng = random.Random(seed)
    products = list(read_products().values())
    events: list[Event] = []
    for number in range(order_count):
        order = _order(rng, f"o{number:06}", products, _order_time(rng))
        events += _order_events(rng, order)
        payment = _payment(rng, order)
        if payment is not None:
            # Nobody waits in the shop for longer: this one is paid on another day.
            sent_ms = payment.paid_ms + rng.randrange(2_000)
            if sent_ms < DAY_MS + 5 * MINUTE_MS:
                events.append(_payment_event(payment, sent_ms))
    for number in range(max(1, order_count // 300)):
        order = _order(rng, f"f{number:06}", products, -rng.randrange(120, 240) * MINUTE_MS)
        sent_ms = int(DAY_MS * rng.uniform(0.6, 0.95))
        events.append(_order_event(order, sent_ms, Kind.FORGOTTEN))
    for number in range(max(5, order_count // 60)):
        events.append(_broken_event(rng, number, products))
    events.sort(key=lambda each: each.sent_ms)
    first, *rest = (
        _order_event(
            _order(rng, f"n{number:06}", products, _NEXT_MORNING_MS + number * 1_000),
            _NEXT_MORNING_MS + number * 1_000,
            Kind.ON_TIME,
        )
        for number in range(1 + order_count // 40)
    )
    return Day((*events, first), tuple(rest))


def moment(time_ms: int) -> str:
    """A time of the shop's clock as it stands in events."""
    moment = OPENED + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Sales:
    """Orders and their worth."""

    orders: int = 0
    cents: int = 0

    def plus(self, cents: int) -> "Sales":
        return Sales(self.orders + 1, self.cents + cents)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the pipeline must find, counted here without it."""

    order_records: int  # valid ones, repeated and forgotten ones too
    orders: int  # different valid ones of the day
    revenue: dict[tuple[str, str], Sales]  # by the start of the window and the category
    paid: dict[str, int]  # cents by order
    broken: int


def truth(day: Day) -> Truth:
    """Windows and payments of the day; the order of the next morning is in no closed window."""
    products = read_products()
    records = [each.content for each in day.events if isinstance(each.content, Order)]
    forgotten = {
        each.content.order_id
        for each in day.events
        if isinstance(each.content, Order) and each.kind is Kind.FORGOTTEN
    }
    counted = {
        order.order_id: order
        for order in records
        if order.order_id not in forgotten and order.ordered_ms < _NEXT_MORNING_MS
    }
    revenue: dict[tuple[str, str], Sales] = {}
    for order in counted.values():
        product = products[order.product_id]
        window = moment(order.ordered_ms // WINDOW_MS * WINDOW_MS)
        place = (window, product.category)
        revenue[place] = revenue.get(place, Sales()).plus(order.quantity * product.price_cents)
    return Truth(
        order_records=len(records),
        orders=len({order.order_id for order in records}),
        revenue=revenue,
        paid=dict(_paid(day.events, counted, products)),
        broken=sum(each.kind is Kind.BROKEN for each in day.events),
    )


def _paid(
    events: Iterable[Event], orders: dict[str, Order], products: dict[str, Product]
) -> Iterator[tuple[str, int]]:
    for event in events:
        payment = event.content
        if isinstance(payment, Payment):
            order = orders[payment.order_id]
            if 0 <= payment.paid_ms - order.ordered_ms <= PAYMENT_TIME_MS:
                yield order.order_id, order.quantity * products[order.product_id].price_cents


def _order_time(rng: random.Random) -> int:
    """Spread over the day, with a peak a little after its middle."""
    while True:
        share = rng.random() if rng.random() < 0.55 else rng.gauss(0.55, 0.09)
        if 0 <= share < 1:
            return int(share * DAY_MS)


def _order(rng: random.Random, order_id: str, products: list[Product], ordered_ms: int) -> Order:
    if rng.random() < 0.08:
        customer = CANTEEN
    else:
        customer = f"c{1 + int(rng.betavariate(1, 3) * _CUSTOMERS):04}"
    # The first of the list are bought most.
    product = products[min(int(rng.expovariate(0.3)), len(products) - 1)]
    return Order(order_id, customer, product.product_id, rng.choice((1, 1, 1, 2, 3)), ordered_ms)


def _order_events(rng: random.Random, order: Order) -> Iterator[Event]:
    is_late = rng.random() < 0.03
    delay_ms = rng.randrange(MINUTE_MS, _LATE_MS_MAX) if is_late else rng.randrange(1_500)
    sent_ms = order.ordered_ms + delay_ms
    yield _order_event(order, sent_ms, Kind.LATE if is_late else Kind.ON_TIME)
    if rng.random() < 0.02:
        yield _order_event(order, sent_ms + rng.randrange(500, MINUTE_MS), Kind.REPEATED)


def _order_event(order: Order, sent_ms: int, kind: Kind) -> Event:
    value = {
        "order_id": order.order_id,
        "customer_id": order.customer_id,
        "product_id": order.product_id,
        "quantity": order.quantity,
        "ordered_at": moment(order.ordered_ms),
    }
    return Event(sent_ms, ORDERS, order.customer_id.encode(), _json(value), kind, order)


def _payment(rng: random.Random, order: Order) -> Payment | None:
    chance = rng.random()
    if chance < 0.07:
        return None
    if chance < 0.09:
        wait_ms = rng.randrange(PAYMENT_TIME_MS + MINUTE_MS, PAYMENT_TIME_MS + 10 * MINUTE_MS)
    else:
        wait_ms = min(int(rng.lognormvariate(0.3, 0.9) * MINUTE_MS), PAYMENT_TIME_MS - MINUTE_MS)
    method = rng.choices(_METHODS, (7, 2, 1))[0]
    return Payment(f"y{order.order_id[1:]}", order.order_id, method, order.ordered_ms + wait_ms)


def _payment_event(payment: Payment, sent_ms: int) -> Event:
    value = {
        "payment_id": payment.payment_id,
        "order_id": payment.order_id,
        "method": payment.method,
        "paid_at": moment(payment.paid_ms),
    }
    key = payment.order_id.encode()
    return Event(sent_ms, PAYMENTS, key, _json(value), Kind.ON_TIME, payment)


def _broken_event(rng: random.Random, number: int, products: list[Product]) -> Event:
    """In turn: cut off, not JSON, a wrong type, no time, not even text."""
    sent_ms = _order_time(rng)
    order = _order(rng, f"x{number:06}", products, sent_ms)
    whole = _order_event(order, sent_ms, Kind.BROKEN)
    value = (
        whole.value[: len(whole.value) // 2],
        b"<html>502 Bad Gateway</html>",
        whole.value.replace(b'"quantity":', b'"quantity":"some","was":'),
        whole.value.replace(b"2026-", b"sometime "),
        bytes([0xFF, 0xFE, number % 256]),
    )[number % 5]
    topic = PAYMENTS if number % 5 == 1 else ORDERS
    return Event(sent_ms, topic, whole.key, value, Kind.BROKEN)


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
