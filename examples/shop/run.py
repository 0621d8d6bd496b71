"""`make demo`: a shop's day through a pipeline into a lake and back.

It starts a broker, streams a day of orders and payments through `pipeline.toml`, archives the
orders, deletes them from the broker, reads broker and lake as one, and compares every number with
what the events say. It ends by itself, within three minutes, with exit code 1 if a check fails.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.shop import topics
from examples.shop.checking import Check, check_dead_letters, check_paid, check_revenue
from examples.shop.deadline import Deadline, OutOfTime, alarm
from examples.shop.deliveries import Deliveries
from examples.shop.events import CANTEEN, ORDERS, Day, Truth, make_day, truth
from examples.shop.latency import by_second, percentile
from examples.shop.picture import draw
from examples.shop.produce import Sent, send_all, send_day
from examples.shop.progress import Recorder
from examples.shop.tables import (
    audit_table,
    batch_table,
    check_table,
    dead_letter_table,
    hot_key_table,
    paid_table,
    revenue_table,
)
from tidelog.errors import TidelogError
from tidelog.spark import Pipeline, session
from tidelog.spark import lake as lakes
from tidelog.spark.jobs.audit import audit
from tidelog.spark.jobs.hot_keys import hot_keys, key_text
from tidelog.spark.jobs.topic_rows import ArchivedTopic, Bound
from tidelog.testing import Broker

PIPELINE_FILE = Path(__file__).parent / "pipeline.toml"

_TICK_S = 5.0
# On a slow machine the day is made shorter, to leave time for what comes after it.
_STREAM_S_MIN = 10.0
_RESULTS_S_MIN = 10.0
_RESULTS_S = 25.0
_LAKE_S = 45.0


@dataclass
class Demo:
    """What all parts of the demo share."""

    folder: Path
    day: Day
    truth: Truth
    stream_s: float
    deadline: Deadline
    console: Console
    checks: list[Check] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{self.deadline.elapsed_s:4.0f} s[/]  {text}", highlight=False)

    def check(self, *checks: Check) -> None:
        self.checks += checks


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 110)
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="tidelog-shop-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        console.print(f"{folder} is not empty: give --keep a new folder")
        return 2
    day = make_day(arguments.seed, arguments.orders)
    deadline = Deadline(arguments.limit)
    demo = Demo(folder, day, truth(day), arguments.seconds, deadline, console)
    picture = (folder if arguments.keep else Path("build/demo")) / "shop.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            Broker(mode="process", data=folder / "broker") as broker,
            alarm(deadline.left_s, give_up=_giving_up(broker)),
        ):
            run(demo, broker.bootstrap_servers, picture)
    except (OutOfTime, TidelogError) as error:
        console.print(f"[bold red]The demo failed:[/] {error}", highlight=False)
        return 1
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return _verdict(demo, picture, is_kept=bool(arguments.keep))


def run(demo: Demo, bootstrap: str, picture: Path) -> None:
    demo.say(f"a broker runs at {bootstrap}")
    topics.create_topics(bootstrap)
    spark = session("shop")
    try:
        demo.say(f"Spark {spark.version} runs")
        stream(demo, spark, bootstrap, picture)
        show_sales(demo, spark)
        lake = keep_in_lake(demo, spark, bootstrap)
        look_into_lake(demo, spark, lake)
    finally:
        spark.stop()


def stream(demo: Demo, spark: SparkSession, bootstrap: str, picture: Path) -> None:
    """The day through the pipeline, watched from outside."""
    pipeline = Pipeline.load(
        PIPELINE_FILE, {"SHOP_DATA": str(demo.folder), "SHOP_BOOTSTRAP": bootstrap}
    )
    recorder, sent = Recorder(), Sent()
    queries = set(pipeline.spec.sinks)
    with Deliveries(bootstrap, topics.OUTPUTS) as deliveries:
        with pipeline.start(spark, on_event=recorder) as running:
            demo.deadline.wait(
                lambda: recorder.started >= queries or running.wait(0), "starting queries", 90
            )
            demo.say(f"the pipeline runs: {', '.join(sorted(queries))}")
            spare_s = demo.deadline.left_s - _RESULTS_S - _LAKE_S
            stream_s = min(demo.stream_s, max(_STREAM_S_MIN, spare_s))

            def tick() -> None:
                paid = deliveries.of(topics.PAID)
                recent = [each.arrived_ms - each.row()["complete_ms"] for each in paid[-500:]]
                demo.say(
                    f"sent {sent.count:>7,}   paid orders delivered {len(paid):>7,}   "
                    f"delay of the last p50 {percentile(recent, 50) / 1000:5.2f} s"
                )

            def is_complete() -> bool:
                return running.wait(0) or _has_all(demo.truth, deliveries)

            with sending(demo, bootstrap, stream_s, sent) as is_sent:
                demo.deadline.wait(is_sent, "sending", stream_s + 30, _every(_TICK_S, tick))
            patience_s = max(_RESULTS_S_MIN, demo.deadline.left_s - _LAKE_S)
            _wait_if_possible(demo, is_complete, patience_s, _every(_TICK_S, tick))
            running.drain(demo.deadline.left_s)
        demo.say("the pipeline has read everything and stopped")
        _show_stream(demo, deliveries, recorder)
        _draw_stream(demo, deliveries, recorder, sent, picture)


@contextmanager
def sending(
    demo: Demo, bootstrap: str, stream_s: float, sent: Sent
) -> Iterator[Callable[[], bool]]:
    """The day being sent by a thread; gives whether that is done."""
    cancelled = Flag()
    failures: list[Exception] = []

    def send() -> None:
        try:
            send_day(bootstrap, demo.day.events, stream_s, sent, cancelled)
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


def show_sales(demo: Demo, spark: SparkSession) -> None:
    """The Delta table that the pipeline wrote."""
    sales = lakes.read(spark, demo.folder / "sales")
    rows, orders = sales.selectExpr("count(*)", "count(DISTINCT order_id)").first() or (0, 0)
    demo.say(f"the Delta table of sales has {rows:,} rows")
    demo.check(
        Check("rows in the Delta table: each valid record", demo.truth.order_records, rows),
        Check("different orders in it", demo.truth.orders, orders),
    )


def keep_in_lake(demo: Demo, spark: SparkSession, bootstrap: str) -> Path:
    """The orders into a lake, off the broker, and back from both as one; gives the lake."""
    lake = demo.folder / "lake"
    archived = lakes.archive([ORDERS], lake, bootstrap=bootstrap, spark=spark)
    demo.say(f"archived {archived.records:,} orders to {lake}")
    ends = {partition: end for partition, (_, end) in archived.coverage[ORDERS].items()}
    topics.delete_records(bootstrap, ORDERS, ends)
    send_all(bootstrap, demo.day.next_morning, Sent())
    on_broker = topics.count_records(bootstrap, ORDERS)
    demo.say(f"deleted them from the broker; {on_broker:,} new ones came in since")
    rows, offsets = _orders(spark, bootstrap, lake).selectExpr(
        "count(*)", "count(DISTINCT partition, offset)"
    ).first() or (0, 0)
    demo.say(f"read {rows:,} from lake and broker as one")
    in_lake, since = demo.day.count(ORDERS), len(demo.day.next_morning)
    demo.check(
        Check("orders archived", in_lake, archived.records),
        Check("orders left on the broker", since, on_broker),
        Check("orders read from lake and broker as one", in_lake + since, rows),
        Check("different offsets among them", in_lake + since, offsets),
    )
    return lake


def look_into_lake(demo: Demo, spark: SparkSession, lake: Path) -> None:
    """The jobs of `tidelog audit` and `tidelog hotkeys` on the archive."""
    archived = ArchivedTopic(str(lake), ORDERS)
    rows = archived.rows(spark, archived.ranges(Bound(), Bound()))
    report = audit(rows.frame, ranges=rows.ranges, explanation=rows.explanation, origin=rows.origin)
    keys = hot_keys(rows.frame, partition_count=archived.partition_count(), top=5)
    demo.console.print(audit_table(report), hot_key_table(keys), sep="\n\n")
    demo.check(
        Check("problems that the audit found in the lake", 0, len(report.problems())),
        Check("the customer with most orders", CANTEEN, key_text(keys.heaviest[0].key)),
    )


def _orders(spark: SparkSession, bootstrap: str, lake: Path) -> DataFrame:
    return (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ORDERS)
        .option("lake", str(lake))
        .load()
    )


def _has_all(expected: Truth, deliveries: Deliveries) -> bool:
    """Whether as much has arrived as must; what it is, the checks tell."""
    return (
        len(deliveries.of(topics.PAID)) >= len(expected.paid)
        and len(deliveries.of(topics.REVENUE)) >= len(expected.revenue)
        and len({each.key for each in deliveries.of(topics.DEAD)}) >= expected.broken
    )


def _wait_if_possible(
    demo: Demo, condition: Callable[[], bool], timeout_s: float, on_tick: Callable[[], None]
) -> None:
    """Wait for numbers that are checked later anyway."""
    try:
        demo.deadline.wait(condition, "all results", timeout_s, on_tick)
    except OutOfTime as error:
        demo.say(f"[red]{error}[/]")


def _show_stream(demo: Demo, deliveries: Deliveries, recorder: Recorder) -> None:
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


def _draw_stream(
    demo: Demo, deliveries: Deliveries, recorder: Recorder, sent: Sent, picture: Path
) -> None:
    began_ms = sent.times_ms[0]
    delays = [(each.row()["complete_ms"], each.arrived_ms) for each in deliveries.of(topics.PAID)]
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


def _giving_up(broker: Broker) -> Callable[[], None]:
    def give_up() -> None:
        # Spark's Java process ends when this one does.
        os.kill(broker.pid, 9)
        os._exit(1)

    return give_up


def _verdict(demo: Demo, picture: Path, *, is_kept: bool) -> int:
    demo.console.print(check_table(demo.checks))
    wrong = sum(not each.holds for each in demo.checks)
    demo.say(f"the picture of throughput and latency is {picture}")
    if is_kept:
        demo.say(f"everything else is in {demo.folder}")
    if wrong:
        demo.console.print(f"[bold red]{wrong} of {len(demo.checks)} checks failed.[/]")
        return 1
    demo.console.print(f"[bold green]All {len(demo.checks)} checks hold.[/]")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another day")
    parser.add_argument("--orders", type=int, default=20_000, help="orders of the day")
    parser.add_argument("--seconds", type=float, default=35, help="how long the day takes")
    parser.add_argument("--limit", type=float, default=165, help="seconds for everything")
    parser.add_argument("--keep", metavar="DIR", help="keep all data in this new folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
