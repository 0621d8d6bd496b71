"""The load of partitions and keys, counted by Spark and checked by hand."""

import pytest
from pyspark.sql import SparkSession

from tidelog.client.partitioners.key_hash import key_partition
from tidelog.spark.jobs.hot_keys import hot_keys, key_json, key_text
from tidelog.spark.jobs.key_splitting import skew

_COLUMNS = "key binary, value binary, partition int"


def test_the_heavy_are_found_and_split(spark: SparkSession) -> None:
    count = 4
    keys = [b"hot"] * 600 + [b"k%d" % (at % 50) for at in range(300)]
    records: list[tuple[bytes | None, bytes, int]] = [
        (key, b"v" * 10, key_partition(key, count)) for key in keys
    ]
    records += [(None, b"", at % 2) for at in range(100)]
    report = hot_keys(spark.createDataFrame(records, _COLUMNS), partition_count=count, top=5)
    assert (report.rows, report.null_keys, report.keys) == (1000, 100, 51)
    assert sum(each.rows for each in report.partitions) == 1000
    assert [each.null_keys for each in report.partitions] == [50, 50, 0, 0]
    home = key_partition(b"hot", count)
    assert report.partitions[home].rows >= 600
    assert report.row_skew == pytest.approx(report.partitions[home].rows / 250)
    assert sum(each.byte_share for each in report.partitions) == pytest.approx(1)
    assert len(report.heaviest) == 5
    hot = report.heaviest[0]
    assert (hot.key, hot.rows, hot.partitions, hot.is_hot) == (b"hot", 600, (home,), True)
    assert hot.row_share == 0.6
    assert hot.key_share == pytest.approx(600 / 900)
    assert hot.size_bytes == 600 * 13
    assert [each.is_hot for each in report.heaviest[1:]] == [False] * 4
    assert report.split_keys == (b"hot",)
    # Eight ways are no more than four on four partitions.
    assert [each.ways for each in report.splits] == [2, 4]
    for each in report.splits:
        assert sum(each.rows) == 1000
        assert each.row_skew == pytest.approx(skew(each.rows))
    assert report.splits[1].row_skew < report.splits[0].row_skew < report.row_skew
    assert report.to_json()["heaviest"][0]["key"] == "hot"


def test_empty_partitions_and_topics_count(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(b"a", b"1", 0), (None, None, 0)], _COLUMNS)
    report = hot_keys(rows, partition_count=3)
    assert [each.rows for each in report.partitions] == [2, 0, 0]
    assert report.row_skew == 3
    empty = hot_keys(spark.createDataFrame([], _COLUMNS), partition_count=2)
    assert (empty.rows, empty.row_skew, empty.heaviest, empty.splits) == (0, 1.0, (), ())


def test_keys_are_shown_as_text_where_they_are_text() -> None:
    assert key_text("ü".encode()) == "ü"
    assert key_text(b"\xff\x00") == "0xff00"
    assert key_text(b"a\nb") == "0x610a62"
    assert key_text(b"") == "0x"
    assert key_json(b"a\nb") == {"key": "a\nb"}
    assert key_json(b"\xff") == {"key_hex": "ff"}
