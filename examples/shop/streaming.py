"""The first half of the demo: a day through the pipeline, watched from outside."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from pyspark.sql import SparkSession

from examples.shop import topics
from examples.shop.checking import Check, check_dead_letters, check_paid, check_revenue
from examples.shop.deadline import OutOfTime
from examples.shop.deliveries import Deliveries
from examples.shop.demo import Demo
from examples.shop.events import ORDERS, Event
from examples.shop.latency import by_second, percentile
from examples.shop.picture import draw
from examples.shop.produce import Sent, send_all, send_day
from examples.shop.progress import Recorder
from examples.shop.tables import batch_table, dead_letter_table, paid_table, revenue_table
from tidelog.spark import Pipeline

PIPELINE_FILE = Path(__file__).parent / "pipeline.toml"

_TICK_S = 5.0
_START_S = 90.0
_WARM_UP_S = 40.0
# On a slow machine the day is made shorter, to leave time for what comes after it.
_STREAM_S_MIN = 10.0
_RESULTS_S_MIN = 10.0
_RESULTS_S = 25.0
_LAKE_S = 45.0


def stream(demo: Demo, spark: SparkSession, bootstrap: str, picture: Path) -> None:
    """Start the pipeline, send it the day, wait for all results, and show them."""
    pipeline = Pipeline.load(
        PIPELINE_FILE, {"SHOP_DATA": str(demo.folder), "TIDELOG_BOOTSTRAP": bootstrap}
    )
    recorder, sent = Recorder(), Sent()
    queries = set(pipeline.spec.sinks)
    with Deliveries(bootstrap, topics.OUTPUTS) as deliveries:
        with pipeline.start(spark, on_event=recorder) as running:

            def wait(
                condition: Callable[[], bool],
                what: str,
                timeout_s: float,
                on_tick: Callable[[], None] = lambda: None,
            ) -> None:
                # A pipeline that has ended has failed, which leaving the block will tell.
                demo.deadline.wait(lambda: condition() or running.wait(0), what, timeout_s, on_tick)

            wait(lambda: recorder.started >= queries, "starting queries", _START_S)
            demo.say(f"the pipeline runs: {', '.join(sorted(queries))}")
            opening, rest = demo.day.opening()
            send_all(bootstrap, opening, Sent())
            _tolerate(
                demo,
                lambda: wait(
                    lambda: recorder.active >= queries,
                    "first rows through all queries",
                    _WARM_UP_S,
                ),
            )
            demo.say("the shop's day begins")
            spare_s = demo.deadline.left_s - _RESULTS_S - _LAKE_S
            stream_s = min(demo.stream_s, max(_STREAM_S_MIN, spare_s))
            tick = _every(_TICK_S, lambda: _tell(demo, deliveries, len(opening) + sent.count))
            with sending(bootstrap, rest, stream_s, sent) as is_sent:
                wait(is_sent, "sending", stream_s + 30, tick)
            patience_s = max(_RESULTS_S_MIN, demo.deadline.left_s - _LAKE_S)
            _tolerate(
                demo,
                lambda: wait(
                    lambda: _has_all(demo, deliveries, recorder), "all results", patience_s, tick
                ),
            )
            running.drain(demo.deadline.left_s)
        demo.say("the pipeline has stopped")
        _show(demo, deliveries, recorder)
        _draw(demo, deliveries, recorder, sent, picture)


@contextmanager
def sending(
    bootstrap: str, events: Sequence[Event], stream_s: float, sent: Sent
) -> Iterator[Callable[[], bool]]:
    """Events being sent by a thread; gives whether that is done."""
    cancelled = Flag()
    failures: list[Exception] = []

    def send() -> None:
        try:
            send_day(bootstrap, events, stream_s, sent, cancelled)
        except Exception as error:  # noqa: BLE001  it is raised again in the main thread
            failures.append(error)

    thread = Thread(target=send, name="shop", daemon=True)

    def is_sent() -> bool:
        if failures:
            raise failures[0]
        return not thread.is_alive()

    thread.start()
    try:
        yield is_sent
    finally:
        cancelled.set()
        thread.join(10)


def _has_all(demo: Demo, deliveries: Deliveries, recorder: Recorder) -> bool:
    """Whether as much has arrived as must; what it is, the checks tell."""
    expected = demo.truth
    orders = sum(each.topic == ORDERS for each in demo.day.events)
    return (
        len(deliveries.of(topics.PAID)) >= len(expected.paid)
        and len(deliveries.of(topics.REVENUE)) >= len(expected.revenue)
        and len({each.key for each in deliveries.of(topics.DEAD)}) >= expected.broken
        # The table of sales is written every few seconds only.
        and recorder.rows("sales") >= orders
    )


def _tolerate(demo: Demo, waiting: Callable[[], None]) -> None:
    """A wait that may be in vain: the checks will tell what is missing."""
    try:
        waiting()
    except OutOfTime as error:
        demo.say(f"[yellow]{error}[/]")


def _tell(demo: Demo, deliveries: Deliveries, sent: int) -> None:
    paid = deliveries.of(topics.PAID)
    recent = [each.arrived_ms - each.row()["complete_ms"] for each in paid[-500:]]
    demo.say(
        f"sent {sent:>7,}   paid orders delivered {len(paid):>7,}   "
        f"delay of the last p50 {percentile(recent, 50) / 1000:5.2f} s"
    )


def _show(demo: Demo, deliveries: Deliveries, recorder: Recorder) -> None:
    revenue = [each.row() for each in deliveries.of(topics.REVENUE)]
    paid = [each.row() for each in deliveries.of(topics.PAID)]
    dead = deliveries.of(topics.DEAD)
    demo.console.print(
        revenue_table(revenue), paid_table(paid), dead_letter_table(dead), sep="\n\n"
    )
    demo.console.print(batch_table(recorder.batches))
    demo.check(
        *check_revenue(demo.truth, revenue),
        *check_paid(demo.truth, paid),
        *check_dead_letters(demo.truth, (each.key for each in dead)),
        Check("queries that failed", 0, len(recorder.failures)),
    )
    for failure in recorder.failures:
        demo.say(f"[red]{failure}[/]")


def _draw(
    demo: Demo, deliveries: Deliveries, recorder: Recorder, sent: Sent, picture: Path
) -> None:
    began_ms = sent.times_ms[0]
    delays = [
        (complete_ms, each.arrived_ms)
        for each in deliveries.of(topics.PAID)
        if (complete_ms := each.row()["complete_ms"]) >= began_ms
    ]
    taken = [arrived - complete for complete, arrived in delays]
    demo.say(
        f"from order and payment to both, joined: p50 {percentile(taken, 50) / 1000:.2f} s, "
        f"p99 {percentile(taken, 99) / 1000:.2f} s"
    )
    draw(
        picture,
        began_ms=began_ms,
        sent_ms=sent.times_ms,
        batches=recorder.batches,
        deliveries=by_second(delays, began_ms),
    )


def _every(interval_s: float, action: Callable[[], None]) -> Callable[[], None]:
    due = time.monotonic() + interval_s

    def tick() -> None:
        nonlocal due
        if time.monotonic() >= due:
            due += interval_s
            action()

    return tick
