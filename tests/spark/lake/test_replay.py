"""Records brought back from a lake into a topic."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import mixed_records
from tests.spark.lake.archived import DAY_US, START_US, archive, make
from tests.spark.lake.mixed_records import Record
from tests.spark.lake.test_archive import forget_last_commit
from tests.spark.topics import create_topic
from tidelog.spark.errors import OptionError
from tidelog.spark.lake.archiving import archive as archive_topic
from tidelog.spark.lake.bounds import bound_text, microseconds, parse_bound
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.reading import LakeTable, TimeRange
from tidelog.spark.lake.replay_plan import (
    ReplayRequest,
    decode_plan,
    encode_plan,
    kept_plan,
    plan_replay,
)
from tidelog.spark.lake.replaying import replay
from tidelog.testing import Broker

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
REQUEST = ReplayRequest("/lake", "t", "new", None, None, "same", None)


def _content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(each["key"], each["value"], each["headers"]) for each in records]


def test_a_replayed_topic_is_the_topic(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    copy = f"{topic}-copy"
    create_topic(bootstrap, topic, PARTITIONS)
    create_topic(bootstrap, copy, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 600, seed=11)
    lake = tmp_path / "lake"
    archive_topic([topic], lake, bootstrap=bootstrap, spark=spark)

    def run() -> int:
        return replay(
            lake,
            topic=topic,
            to_topic=copy,
            bootstrap=bootstrap,
            replay_id="back",
            offsets_per_batch=350,
            spark=spark,
        ).records

    def check() -> None:
        there = mixed_records.consume(bootstrap, copy, PARTITIONS)
        for partition, records in mixed_records.consume(bootstrap, topic, PARTITIONS).items():
            assert _content(there[partition]) == _content(records)

    # A thread of its own has no session until it is given one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() == 600
    check()
    # Done is done, and a batch that runs again lands once.
    assert run() == 0
    forget_last_commit(lake / "_tidelog" / "replays" / "back" / "checkpoint")
    run()
    check()
    with pytest.raises(OptionError, match="begun with to_topic="):
        replay(lake, topic=topic, to_topic=topic, bootstrap=bootstrap, replay_id="back")


def test_a_part_goes_to_the_partitions_of_its_keys(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    table = make(tmp_path / "lake", "parquet")
    times = [START_US + each * DAY_US // 8 for each in range(40)]
    for partition in (0, 5):
        archive(table, "t", partition, 0, 40, timestamps_us=times)
    with pytest.raises(LakeError, match="has 2 partitions, and t has records up to partition 5"):
        replay(tmp_path / "lake", topic="t", to_topic=topic, bootstrap=bootstrap)
    replay(
        tmp_path / "lake",
        topic="t",
        to_topic=topic,
        bootstrap=bootstrap,
        start=datetime.fromtimestamp((START_US + DAY_US) / 1_000_000, UTC),
        end=30,
        partitions="by-key",
        timestamp_header="was",
        spark=spark,
    )
    found = [
        each for records in mixed_records.consume(bootstrap, topic, 2).values() for each in records
    ]
    # Times choose from the ninth record on, the offset ends before the thirtieth.
    assert len(found) == 2 * 22
    old_ms = sorted(int(dict(each["headers"])["was"]) for each in found)
    assert old_ms == sorted([each // 1000 for each in times[8:30]] * 2)
    numbered = [each for each in found if len(each["headers"]) == 2]
    assert sorted(int(dict(each["headers"])["h"]) for each in numbered) == sorted(
        [each for each in range(8, 30) if each % 3 == 0] * 2
    )


def test_offsets_cut_ranges_and_moments_choose_records() -> None:
    coverage = {0: (10, 100), 1: (50, 60), 2: (0, 5)}
    plan = plan_replay(REQUEST, coverage, 20, 55)
    assert plan.ranges == {0: (20, 55), 1: (50, 55), 2: (20, 20)}
    assert plan.times is None
    moment = datetime(2026, 11, 5, 13, tzinfo=UTC)
    plan = plan_replay(REQUEST, coverage, moment, None)
    assert plan.ranges == coverage
    assert plan.times == TimeRange(start_us=microseconds(moment))
    assert decode_plan(encode_plan(plan)) == plan
    with pytest.raises(LakeError, match="nothing of the topic t"):
        plan_replay(REQUEST, {}, None, None)


def test_a_plan_is_kept_as_it_was(tmp_path: Path) -> None:
    first = plan_replay(REQUEST, {0: (0, 10)}, None, None)
    assert kept_plan(tmp_path / "replay", first) == first
    grown = plan_replay(REQUEST, {0: (0, 20), 1: (0, 3)}, None, None)
    assert kept_plan(tmp_path / "replay", grown) == first


def test_bounds_are_offsets_or_moments() -> None:
    assert parse_bound("42", option="--from") == 42
    assert parse_bound("2026-11-05", option="--from") == datetime(2026, 11, 5, tzinfo=UTC)
    moment = parse_bound("2026-11-05T13:00:00+02:00", option="--from")
    assert moment == datetime(2026, 11, 5, 11, tzinfo=UTC)
    for bound in (42, moment):
        text = bound_text(bound)
        assert text is not None
        assert parse_bound(text, option="--from") == bound
    with pytest.raises(OptionError, match=r"--to: 'yesterday' is neither an offset nor a time"):
        parse_bound("yesterday", option="--to")


def test_a_wrong_way_to_partition_is_named(tmp_path: Path) -> None:
    archive(make(tmp_path / "lake", "delta"), "t", 0, 0, 3)
    assert LakeTable(tmp_path / "lake").topics() == ["t"]
    with pytest.raises(OptionError, match="'hash' is not one of same, by-key"):
        replay(tmp_path / "lake", topic="t", to_topic="x", bootstrap="nowhere", partitions="hash")
