"""The Iceberg sink, with a real table that pyiceberg reads back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.test_archive import forget_last_commit
from tests.spark.topics import create_topic, eventually, publish
from tidelog.spark.pipeline import Pipeline
from tidelog.testing import Broker

load_catalog: Callable[..., Any] = pytest.importorskip(
    "pyiceberg.catalog", reason='needs pyiceberg: pip install "tidelog[iceberg]"'
).load_catalog

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)

_FILE = """
[pipeline]
name = "to-iceberg"
checkpoint = "checkpoints"
trigger = "{trigger}"
[brokers]
bootstrap = "{bootstrap}"
[sources.orders]
topic = "{topic}"
starting_offsets = "earliest"
format = "json"
schema = "id INT, customer STRING, amount DOUBLE, at TIMESTAMP"
corrupt = "fail"
[steps.sold]
sql = "SELECT id, customer, amount, at, offset, 'web' AS shop FROM orders"
[sinks.lake]
kind = "iceberg"
from = "sold"
table = "shop.orders"
path = "lake"
"""


def _pipeline(folder: Path, broker: Broker, topic: str, trigger: str) -> Pipeline:
    file = folder / "p.toml"
    file.write_text(_FILE.format(trigger=trigger, bootstrap=broker.bootstrap_servers, topic=topic))
    return Pipeline.load(file)


def _order(number: int) -> str:
    return f'{{"id": {number}, "customer": "Ada", "amount": 1.5, "at": "2026-01-01T10:00:00Z"}}'


def _table(folder: Path) -> Any:
    path = folder / "lake"
    catalog = load_catalog("tidelog", type="sql", uri=f"sqlite:///{path}/catalog.db")
    return catalog.load_table("shop.orders")


def _ids(folder: Path) -> list[int]:
    return sorted(_table(folder).scan().to_arrow()["id"].to_pylist())


def test_rows_stream_into_the_table_and_a_batch_that_runs_again_lands_once(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    publish(broker.bootstrap_servers, topic, map(_order, range(3)))
    state = tmp_path / "state"
    streaming = _pipeline(tmp_path, broker, topic, "100 ms")
    with streaming.start(spark, state_dir=state) as running:
        eventually(lambda: _rows(running.status) == 3, "the first batch is in the table")
        publish(broker.bootstrap_servers, topic, map(_order, range(3, 5)))
        eventually(lambda: _rows(running.status) == 5, "the second one too")
        assert running.drain(60).phase == "stopped"
    assert _ids(tmp_path) == [0, 1, 2, 3, 4]
    (first, *_) = _table(tmp_path).scan().to_arrow().sort_by("id").to_pylist()
    assert first["at"].isoformat() == "2026-01-01T10:00:00+00:00"
    assert (first["customer"], first["amount"], first["offset"]) == ("Ada", 1.5, 0)

    # The last batch runs again, as its commit tells, and finds itself in the table.
    snapshots = len(_table(tmp_path).snapshots())
    checkpoint = tmp_path / "checkpoints" / "lake"
    batches = _committed(checkpoint)
    forget_last_commit(checkpoint)
    again = _pipeline(tmp_path, broker, topic, "available-now")
    again.run(spark, state_dir=state)
    assert _committed(checkpoint) >= batches
    assert _ids(tmp_path) == [0, 1, 2, 3, 4]
    assert len(_table(tmp_path).snapshots()) == snapshots

    # What comes later is added as before, with a column that could not be null and now can.
    publish(broker.bootstrap_servers, topic, [_order(5)])
    file = tmp_path / "p.toml"
    file.write_text(file.read_text().replace("'web' AS shop", "customer AS shop"))
    Pipeline.load(file).run(spark, state_dir=state)
    assert _ids(tmp_path) == [0, 1, 2, 3, 4, 5]


def _committed(checkpoint: Path) -> set[int]:
    names = [each.name for each in (checkpoint / "commits").iterdir()]
    return {int(name) for name in names if name.isdigit()}


def _rows(status: Any) -> int:
    return sum(each.rows for each in status.queries) if status is not None else 0
