"""`tidelog lake archive` and `replay`, in the session that the tests share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.spark.lake import mixed_records
from tests.spark.topics import create_topic
from tidelog.cli.lake import command
from tidelog.testing import Broker

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)


def test_a_topic_goes_to_a_lake_and_back(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    lake = str(tmp_path / "lake")
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, f"{topic}-again", 2)
    mixed_records.produce(bootstrap, topic, 2, 50, seed=31)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(command, [*arguments, "--bootstrap", bootstrap])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    conf = ("--conf", "spark.tidelog.said=here")
    folders = ("--format", "parquet", "--partition-by", "hour")
    said = run("archive", topic, "--to", lake, *folders, *conf)
    assert "archived 50 records" in said
    assert spark.conf.get("spark.tidelog.said", None) == "here"
    archived = json.loads(run("archive", topic, "--to", lake, *folders, "--json"))
    assert archived["records"] == 0
    assert [row["end_offset"] for row in archived["coverage"]] == [
        end for _, end in mixed_records.ends(bootstrap, topic, 2).values()
    ]
    arguments = ["--topic", topic, "--to-topic", f"{topic}-again", "--from", "1", "--to", "9"]
    replayed = json.loads(run("replay", lake, *arguments, "--json"))
    assert replayed["records"] == 16
    assert "replayed 0 records" in run(
        "replay", lake, *arguments, "--replay-id", replayed["replay_id"]
    )
    there = mixed_records.consume(bootstrap, f"{topic}-again", 2)
    for partition, records in mixed_records.consume(bootstrap, topic, 2).items():
        assert [each["value"] for each in there[partition]] == [
            each["value"] for each in records[1:9]
        ]
