"""The guide's code, run from its top to its end against a real broker."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import tidelog.client
from tests.docs.blocks import ROOT, Block, blocks
from tidelog.cli import tidelog as command
from tidelog.testing import Broker

PAGE = ROOT / "docs" / "spark.md"
# Commands that are quick; those that start Spark have tests of their own.
QUICK = ("tidelog topic create", "tidelog group describe")


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A broker of its own, for topics with the names of the page."""
    with Broker(mode="process") as broker:
        yield broker.bootstrap_servers


@pytest.mark.timeout(300)
def test_the_guide_runs_from_top_to_end(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    page = sorted([*blocks(PAGE, "python"), *blocks(PAGE, "sh")], key=lambda each: each.line)
    names: dict[str, Any] = {}
    for block in page:
        text = block.text.replace("localhost:9092", bootstrap).replace("/data/", f"{tmp_path}/")
        if block.language == "sh":
            run_commands(text, bootstrap)
        elif block.excuse is None:
            exec(compile(text, str(block), "exec"), names)
            finish_queries(spark, block)
    assert names["spark"].version == spark.version
    assert names["report"].problems() == []
    assert names["everything"].count() == 102
    assert names["result"].records == 102
    assert names["lake"].read(spark, tmp_path / "tables" / "orders").count() == 102


def run_commands(text: str, bootstrap: str) -> None:
    for line in text.splitlines():
        if line.startswith(QUICK):
            words = [*shlex.split(line)[1:], "--bootstrap", bootstrap]
            done = CliRunner().invoke(command, words, catch_exceptions=False)
            assert done.exit_code == 0, f"{line}: {done.output}"
            if "create orders" in line:
                publish_orders(bootstrap)


def publish_orders(bootstrap: str) -> None:
    """What the page's schema describes."""
    order = {
        "order_id": "o1",
        "product": "espresso",
        "quantity": 2,
        "ordered_at": "2026-03-02T09:00:00Z",
    }
    with tidelog.client.connect(bootstrap) as client:
        for value in (json.dumps(order), "not JSON"):
            client.publish("orders", key="42", value=value)
        client.flush()


def finish_queries(spark: SparkSession, block: Block) -> None:
    """Let queries that would go on for ever process what is there."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None, str(block)
