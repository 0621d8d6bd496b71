"""Spark writes a topic to a Delta table while its workers, its driver and the broker are killed."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.chaos.test_spark_sink import (
    DRAIN_S_MAX,
    PARTITIONS,
    PROGRESS_S_MAX,
    SOURCE,
    Copier,
    Load,
    Row,
    kill_all,
    kill_broker,
    kill_driver,
    kill_workers,
    rows_of,
)
from tests.spark.topics import create_topic
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.opening import open_table
from tidelog.testing import Broker

KILLS = (kill_workers, kill_broker, kill_driver, kill_workers, kill_all)


def rows_in(table: Path) -> Counter[Row]:
    """How often each row is there for a reader of Delta that knows nothing of us."""
    columns = DeltaTable(str(table)).to_pyarrow_table().to_pydict()
    return Counter(
        Row(origin, hashlib.sha256(value).hexdigest())
        for origin, value in zip(columns["origin"], columns["value"], strict=True)
    )


def wait_for_progress(table: Path, copier: Copier) -> None:
    """The query commits again."""
    before = _version(table)
    deadline_s = time.monotonic() + PROGRESS_S_MAX
    while _version(table) <= before:
        assert time.monotonic() < deadline_s, f"nothing is written: {copier.last_words()}"
        time.sleep(0.2)


def _version(table: Path) -> int:
    try:
        return open_table(table).snapshot().version
    except LakeError:
        # It is not made yet; making it is version 0.
        return 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_row_is_in_the_table_once(tmp_path: Path) -> None:
    rng = random.Random(11)
    table = tmp_path / "table"
    with Broker(mode="process", data=tmp_path / "data") as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, SOURCE, PARTITIONS)
        copier = Copier(bootstrap, tmp_path, str(table))
        try:
            with Load(bootstrap) as load:
                copier.start()
                for kill in KILLS:
                    wait_for_progress(table, copier)
                    time.sleep(rng.uniform(0.0, 1.5))
                    kill(broker, copier, rng)
                wait_for_progress(table, copier)
                load.stop()
            copier.kill_driver()
            copier.start("drain")
            copier.wait(DRAIN_S_MAX)
        finally:
            copier.close()
        source = rows_of(bootstrap, SOURCE, Row.original)
    found = rows_in(table)
    assert len(source) == source.total() == load.sent
    missing, surplus = source - found, found - source
    assert not missing, f"{missing.total()} of {source.total()} rows are missing: {missing}"
    assert not surplus, f"{surplus.total()} rows are there twice: {surplus}"
