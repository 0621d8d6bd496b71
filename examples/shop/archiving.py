"""The second half of the demo: tables, and lake and broker as one."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples.shop import topics
from examples.shop.checking import Check
from examples.shop.demo import Demo
from examples.shop.events import CANTEEN, ORDERS
from examples.shop.produce import Sent, send_all
from examples.shop.tables import audit_table, hot_key_table
from tidelog.spark import lake as lakes
from tidelog.spark.jobs.audit import audit
from tidelog.spark.jobs.hot_keys import hot_keys, key_text
from tidelog.spark.jobs.topic_rows import ArchivedTopic, Bound


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
