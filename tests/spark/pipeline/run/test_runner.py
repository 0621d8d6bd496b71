"""Pipelines that run, in a real session against a real broker."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from tests.spark.lake.test_archive import forget_last_commit
from tests.spark.topics import committed, create_topic, eventually, publish
from tidelog.spark.pipeline import Pipeline, PipelineError
from tidelog.spark.pipeline.run.events import BatchDone, Event, QueryFailed, RowsShown
from tidelog.spark.pipeline.run.status import QueryStatus
from tidelog.testing import Broker

_WAIT_S = 60.0

_SHOP = """
[pipeline]
name = "shop"
checkpoint = "checkpoints"
trigger = "available-now"

[brokers]
bootstrap = "${BOOTSTRAP}"

[spark]
conf."spark.sql.shuffle.partitions" = 2
conf."spark.sql.session.timeZone" = "UTC"

[sources.orders]
topic = "${TOPIC}"
starting_offsets = "earliest"
group_id = "${TOPIC}-group"
format = "json"
schema = "id INT, customer INT, amount DOUBLE, at TIMESTAMP"
dead_letter = "${TOPIC}.dead"
watermark = { column = "at", delay = "1 minute" }

[sources.customers]
kind = "csv"
path = "customers.csv"
schema = "customer INT, name STRING"

[steps.distinct_orders]
kind = "dedupe"
from = "orders"
keys = ["id"]

[steps.priced]
python = "functions.py:with_tax"
from = ["distinct_orders", "customers"]
arguments = { rate = 0.5 }

[steps.sales]
sql = '''
SELECT date_format(window.start, 'HH:mm') AS minute, name, count(*) AS orders, sum(gross) AS gross
FROM priced
GROUP BY window(at, '1 minute'), name
'''

[sinks.sales]
from = "sales"
topic = "${TOPIC}.sales"
key = "name"
format = "json"

[sinks.files]
kind = "parquet"
from = "priced"
path = "files"
partition_by = "name"

[sinks.lake]
kind = "delta"
from = "orders"
path = "lake"

[sinks.screen]
kind = "console"
from = "orders"
rows = 2
"""

# A function of the file runs in the executors too, which do not have the file.
_FUNCTIONS = """
from pyspark.sql import functions as F


def _gross(amount, rate):
    return amount * (1 + rate)


def with_tax(orders, customers, rate):
    gross = F.udf(lambda amount: _gross(amount, rate), "double")
    return orders.join(customers, "customer").withColumn("gross", gross("amount"))
"""


def _order(number: int, customer: int, amount: float, at: str) -> str:
    order = {"id": number, "customer": customer, "amount": amount, "at": f"2026-01-01T{at}Z"}
    return json.dumps(order)


@pytest.fixture
def shop(tmp_path: Path, broker: Broker, topic: str) -> Pipeline:
    for name in (topic, f"{topic}.sales", f"{topic}.dead"):
        create_topic(broker.bootstrap_servers, name)
    (tmp_path / "customers.csv").write_text("1,Ada\n2,Grace\n")
    (tmp_path / "functions.py").write_text(_FUNCTIONS)
    file = tmp_path / "shop.toml"
    file.write_text(_SHOP)
    return Pipeline.load(file, {"TOPIC": topic, "BOOTSTRAP": broker.bootstrap_servers})


@pytest.mark.timeout(300)
def test_a_shop_from_orders_to_topic_files_and_lake(
    shop: Pipeline, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    publish(
        broker.bootstrap_servers,
        topic,
        [
            _order(1, 1, 10.0, "10:00:01"),
            _order(2, 2, 20.0, "10:00:02"),
            _order(2, 2, 20.0, "10:00:02"),  # sent twice
            "not json",
            _order(3, 1, 30.0, "10:01:03"),
        ],
    )
    events: list[Event] = []
    state = tmp_path / "state"
    first = shop.run(spark, state_dir=state, on_event=events.append)
    assert first.phase == "finished"
    by_name = {query.name: query for query in first.queries}
    assert {query.state for query in first.queries} == {"finished"}
    assert by_name["lake"].rows == 5
    assert by_name["files"].lag == {topic: 0}
    assert by_name["sales"].state_rows > 0
    shown = _of(events, RowsShown)[0]
    assert len(shown.rows) == 2
    assert dict(zip(shown.columns, shown.rows[0], strict=True))["amount"] == 10.0
    assert "tidelog_pipeline_query_rows_total" in (state / "shop" / "metrics.prom").read_text()

    # What the watermark has closed comes out with later orders, and nothing comes twice.
    publish(broker.bootstrap_servers, topic, [_order(4, 2, 1.0, "11:00:00")])
    publish(broker.bootstrap_servers, topic, [_order(5, 2, 1.0, "10:00:00")])  # too late
    second = shop.run(spark, state_dir=state)
    assert {query.name: query.rows for query in second.queries}["lake"] == 2
    sales = _values(broker, f"{topic}.sales", 3)
    assert sorted(sales, key=lambda row: (row["minute"], row["name"])) == [
        {"minute": "10:00", "name": "Ada", "orders": 1, "gross": 15.0},
        {"minute": "10:00", "name": "Grace", "orders": 1, "gross": 30.0},
        {"minute": "10:01", "name": "Ada", "orders": 1, "gross": 45.0},
    ]
    # Four queries read the orders, but a dead letter is written once; its key tells its origin.
    assert [key for key, _ in _records(broker, f"{topic}.dead", 1)] == [f"{topic}-0-3"]
    files = spark.read.parquet(str(tmp_path / "files"))
    assert sorted((row.id, row.name, row.gross) for row in files.collect()) == [
        (1, "Ada", 15.0),
        (2, "Grace", 30.0),
        (3, "Ada", 45.0),
        (4, "Grace", 1.5),
    ]
    from tidelog.spark import lake

    assert sorted(row.id for row in lake.read(spark, tmp_path / "lake").collect()) == [
        *(1, 2, 2, 3, 4, 5)
    ]
    eventually(
        lambda: committed(broker.bootstrap_servers, f"{topic}-group").get((topic, 0)) == 7,
        "the group has committed all that was read",
    )
    assert "orders" not in [each.name for each in spark.catalog.listTables()]


@pytest.mark.timeout(300)
def test_a_failed_query_starts_again_and_a_running_one_drains(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}.out", f"{topic}.counts"):
        create_topic(broker.bootstrap_servers, name)
    (tmp_path / "broken").touch()
    (tmp_path / "f.py").write_text(
        dedent(
            """
            import os
            from pyspark.sql import functions as F

            def check(frame, marker):
                def verified(value):
                    if os.path.exists(marker):
                        raise ValueError("the marker is there")
                    return value
                return frame.withColumn("value", F.udf(verified, "string")("value"))
            """
        )
    )
    file = tmp_path / "fragile.toml"
    file.write_text(
        dedent(
            f"""
            [pipeline]
            name = "fragile"
            checkpoint = "checkpoints"
            restart = {{ max = 3, backoff = "100 ms" }}
            [brokers]
            bootstrap = "{broker.bootstrap_servers}"
            [sources.words]
            topic = "{topic}"
            format = "string"
            starting_offsets = "earliest"
            [steps.checked]
            python = "f.py:check"
            from = "words"
            arguments = {{ marker = "{tmp_path / "broken"}" }}
            [sinks.out]
            from = "checked"
            topic = "{topic}.out"
            key = "value"
            [sinks.counts]
            from = "count"
            topic = "{topic}.counts"
            key = "value"
            format = "json"
            mode = "update"
            [steps.count]
            sql = "SELECT value, count(*) AS n FROM words GROUP BY value"
            """
        )
    )
    publish(broker.bootstrap_servers, topic, ["a", "b"])
    events: list[Event] = []
    with Pipeline.load(file).start(
        spark, state_dir=tmp_path / "state", on_event=events.append
    ) as running:
        eventually(lambda: bool(_of(events, QueryFailed)), "the query fails")
        (tmp_path / "broken").unlink()
        publish(broker.bootstrap_servers, topic, ["a"])
        assert _values(broker, f"{topic}.out", 3, parse=str) == ["a", "b", "a"]
        eventually(
            lambda: sum(event.progress.rows for event in _of(events, BatchDone)) == 6,
            "both queries have told of all rows",
        )
        ended = running.drain(_WAIT_S)
    assert ended.phase == "stopped"
    by_name = {query.name: query for query in ended.queries}
    assert by_name["out"].restarts >= 1
    assert by_name["counts"].restarts == 0
    failure = _of(events, QueryFailed)[0]
    assert failure.query == "out"
    assert "ValueError: the marker is there" in failure.reason
    assert failure.restart_in_ms is not None
    counts = [(row["value"], row["n"]) for row in _values(broker, f"{topic}.counts", 2)]
    assert dict(counts) == {"a": 2, "b": 1}
    assert len(counts) == len(set(counts))


@pytest.mark.timeout(300)
def test_complete_results_come_whole_with_every_batch_and_each_batch_once(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}.counts"):
        create_topic(broker.bootstrap_servers, name)
    file = tmp_path / "counts.toml"
    file.write_text(
        dedent(
            f"""
            [pipeline]
            name = "counts"
            checkpoint = "checkpoints"
            trigger = "available-now"
            [brokers]
            bootstrap = "{broker.bootstrap_servers}"
            [spark]
            conf."spark.sql.shuffle.partitions" = 2
            [sources.words]
            topic = "{topic}"
            format = "string"
            starting_offsets = "earliest"
            [steps.count]
            sql = "SELECT value AS word, count(*) AS n FROM words GROUP BY value"
            [sinks.counts]
            from = "count"
            topic = "{topic}.counts"
            key = "word"
            format = "json"
            mode = "complete"
            """
        )
    )

    def run(count: int) -> list[tuple[str, int]]:
        Pipeline.load(file).run(spark, state_dir=tmp_path / "state")
        found = _values(broker, f"{topic}.counts", count)
        return [(each["word"], each["n"]) for each in found]

    publish(broker.bootstrap_servers, topic, ["a", "b", "a"])
    assert sorted(run(2)) == [("a", 2), ("b", 1)]
    publish(broker.bootstrap_servers, topic, ["c"])
    counts = run(5)
    assert sorted(counts[2:]) == [("a", 2), ("b", 1), ("c", 1)]
    forget_last_commit(tmp_path / "checkpoints" / "counts")
    assert run(5) == counts


@pytest.mark.timeout(300)
def test_two_streams_are_joined_within_their_time_and_over_runs(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    payments = f"{topic}.payments"
    for name in (topic, payments, f"{topic}.paid"):
        create_topic(broker.bootstrap_servers, name)
    file = tmp_path / "paid.toml"
    file.write_text(
        dedent(
            f"""
            [pipeline]
            name = "paid"
            checkpoint = "checkpoints"
            trigger = "available-now"
            [brokers]
            bootstrap = "{broker.bootstrap_servers}"
            [spark]
            conf."spark.sql.shuffle.partitions" = 1
            conf."spark.sql.session.timeZone" = "UTC"
            [sources.orders]
            topic = "{topic}"
            format = "json"
            schema = "id INT, at TIMESTAMP"
            starting_offsets = "earliest"
            watermark = {{ column = "at", delay = "1 minute" }}
            [sources.payments]
            topic = "{payments}"
            format = "json"
            schema = "order INT, paid TIMESTAMP"
            starting_offsets = "earliest"
            watermark = {{ column = "paid", delay = "1 minute" }}
            [steps.joined]
            sql = \"\"\"
            SELECT id, date_format(paid, 'HH:mm') AS paid
            FROM orders JOIN payments
              ON order = id AND paid BETWEEN at AND at + INTERVAL 30 MINUTES
            \"\"\"
            [sinks.paid]
            from = "joined"
            topic = "{topic}.paid"
            format = "json"
            """
        )
    )

    def at(time: str, **fields: int) -> str:
        kind = "paid" if "order" in fields else "at"
        return json.dumps({**fields, kind: f"2026-01-01T{time}:00Z"})

    publish(broker.bootstrap_servers, topic, [at("10:00", id=1), at("10:00", id=2)])
    publish(
        broker.bootstrap_servers, payments, [at("10:10", order=1), at("11:00", order=2)]
    )  # the second one is too late for its order
    pipeline = Pipeline.load(file)
    first = pipeline.run(spark, state_dir=tmp_path / "state")
    assert first.queries[0].state_rows > 0
    assert _values(broker, f"{topic}.paid", 1) == [{"id": 1, "paid": "10:10"}]
    # An order that waits in the state meets its payment in another run.
    publish(broker.bootstrap_servers, topic, [at("11:00", id=3)])
    pipeline.run(spark, state_dir=tmp_path / "state")
    publish(broker.bootstrap_servers, payments, [at("11:20", order=3)])
    pipeline.run(spark, state_dir=tmp_path / "state")
    assert _values(broker, f"{topic}.paid", 2)[1:] == [{"id": 3, "paid": "11:20"}]


@pytest.mark.timeout(300)
def test_a_pipeline_that_cannot_work_fails_with_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        dedent(
            """
            [pipeline]
            name = "hopeless"
            checkpoint = "checkpoints"
            [sources.ticks]
            kind = "rate"
            [steps.view]
            sql = "SELECT nothing FROM ticks"
            [sinks.out]
            kind = "console"
            from = "view"
            """
        )
    )
    with pytest.raises(PipelineError, match=r"view view: .*nothing"):
        Pipeline.load(file).run(spark, state_dir=tmp_path / "state")


@pytest.mark.timeout(300)
def test_what_comes_after_a_pause_is_counted_and_lag_is_told_only_by_who_reads(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}.out"):
        create_topic(broker.bootstrap_servers, name)
    file = tmp_path / "pauses.toml"
    file.write_text(
        dedent(
            f"""
            [pipeline]
            name = "pauses"
            checkpoint = "checkpoints"
            trigger = "100 ms"
            restart.backoff = "1 minute"
            [brokers]
            bootstrap = "{broker.bootstrap_servers}"
            [spark]
            # How long a query is idle until it says so.
            conf."spark.sql.streaming.noDataProgressEventInterval" = "300"
            [sources.words]
            topic = "{topic}"
            format = "string"
            starting_offsets = "earliest"
            [steps.checked]
            sql = "SELECT if(value = 'bad', raise_error('a bad word'), value) AS value FROM words"
            [sinks.out]
            from = "checked"
            topic = "{topic}.out"
            """
        )
    )
    events: list[Event] = []
    sessions: list[SparkSession] = []
    with Pipeline.load(file).start(
        spark, state_dir=tmp_path / "state", on_event=events.append, on_session=sessions.append
    ) as running:

        def query() -> QueryStatus:
            return running.status.queries[0] if running.status else QueryStatus("", "", "", "")

        def is_idle(batch_id: int) -> bool:
            told = [each.lastProgress for each in sessions[0].streams.active]
            return any(each and (each.batchId, each.numInputRows) == (batch_id, 0) for each in told)

        for count, word in enumerate(["a", "b", "c"], start=1):
            publish(broker.bootstrap_servers, topic, [word])
            eventually(lambda count=count: query().rows == count, f"{count} rows are counted")  # type: ignore[misc]
            eventually(lambda count=count: is_idle(count), "the query has told that it is idle")  # type: ignore[misc]
        assert (query().batches, query().batch_id, query().lag) == (3, 2, {topic: 0})
        assert [event.progress.batch_id for event in _of(events, BatchDone)] == [0, 1, 2]
        publish(broker.bootstrap_servers, topic, ["bad"])
        eventually(lambda: query().state == "waiting", "the query has failed")
        assert (query().batches, query().lag_total) == (3, None)


def _of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def _values(
    broker: Broker, topic: str, count: int, parse: Callable[[str], Any] = json.loads
) -> list[Any]:
    return [parse(value) for _, value in _records(broker, topic, count)]


def _records(broker: Broker, topic: str, count: int) -> list[tuple[str | None, str]]:
    """All committed records of a topic with one partition, at least so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"{topic}-check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # each look begins at the start
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[str | None, str]] = []
    at_end = False

    def poll() -> bool:
        nonlocal at_end
        message = consumer.poll(0.2)
        if message is not None:
            at_end = message.error() is not None
            if not at_end:
                key = message.key()
                found.append((key and key.decode(), message.value().decode()))
        return at_end and len(found) >= count

    try:
        eventually(poll, f"{count} records in {topic}")
    finally:
        consumer.close()
    return found
