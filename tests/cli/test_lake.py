"""`tidelog lake` without Spark: what a lake holds, compaction, and words for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Run
from tests.spark.lake.archived import archive, make
from tidelog.cli.lake import command
from tidelog.errors import TidelogError
from tidelog.testing import Broker


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    table = make(tmp_path / "lake", "parquet")
    for step in range(3):
        archive(table, "orders", 0, step * 10, step * 10 + 10)
    archive(table, "orders", 1, 5, 8)
    return tmp_path / "lake"


def test_a_lake_is_described_and_compacted(run: Run, lake: Path) -> None:
    described = json.loads(run("lake", "describe", str(lake), "--json").stdout)
    assert (described["format"], described["partition_by"]) == ("parquet", ["date"])
    assert (described["files"], described["records"]) == (4, 33)
    (topic,) = described["topics"]
    assert topic["topic"] == "orders"
    assert topic["partitions"] == [
        {"partition": 0, "start_offset": 0, "end_offset": 30, "holes": []},
        {"partition": 1, "start_offset": 5, "end_offset": 8, "holes": []},
    ]
    assert "33 records" in run("lake", "describe", str(lake)).stdout
    said = run("lake", "compact", str(lake), "--grace", "0").stdout
    assert "merged 4 files" in said
    assert "deleted 4" in said
    again = json.loads(run("lake", "compact", str(lake), "--json").stdout)
    assert (again["files_before"], again["files_deleted"]) == (0, 0)


def test_mistakes_are_told_in_a_line(run: Run, tmp_path: Path) -> None:
    for arguments, problem in [
        (("describe", str(tmp_path)), "there is no lake at"),
        (("archive", "nowhere", "--to", str(tmp_path / "new")), "there is no nowhere"),
    ]:
        done = run("lake", *arguments, status=1)
        assert problem in done.stderr
        assert "Traceback" not in done.stderr


def test_mistakes_are_found_before_spark_starts(broker: Broker, lake: Path, topic: str) -> None:
    back = ("--topic", "orders", "--to-topic", topic)
    for arguments, problem in [
        (("compact", str(lake), "--target-file-size", "much"), "'much' is not a size"),
        (("archive", "nowhere", "--to", "s3://b/x"), "s3 is not supported"),
        (("archive", "nowhere", "--to", str(lake), "--format", "delta"), "is parquet, not delta"),
        (("replay", str(lake), *back), f"there is no {topic}"),
        (("replay", str(lake), *back, "--from", "soon"), "--from: 'soon' is neither"),
        (("replay", str(lake), "--topic", "x", "--to-topic", topic), "nothing of the topic x"),
    ]:
        where = {"TIDELOG_BOOTSTRAP": broker.bootstrap_servers}
        done = CliRunner().invoke(command, arguments, env=where)
        assert isinstance(done.exception, TidelogError)
        assert problem in str(done.exception)
    assert CliRunner().invoke(command, ["compact", str(lake), "--grace", "-1"]).exit_code == 2
