"""Audits of rows that are as they should be, and of rows that are not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.audit import audit
from tidelog.spark.jobs.audit_report import OffsetSpan
from tidelog.spark.jobs.comparison import compare
from tidelog.spark.jobs.gaps import Archived, Compacted, Gap, GapKind
from tidelog.spark.jobs.topic_rows import within

_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
_START = datetime(2026, 1, 31, tzinfo=UTC)

Record = tuple[bytes | None, bytes | None, str, int, int, datetime | None]


def _record(partition: int, offset: int, *, value: bytes | None = b"value") -> Record:
    moment = _START + timedelta(milliseconds=offset)
    return (b"k%d" % offset if offset % 3 else None, value, "t", partition, offset, moment)


def _frame(spark: SparkSession, records: Sequence[Record], tasks: int = 1) -> DataFrame:
    return spark.createDataFrame(list(records), _COLUMNS).coalesce(tasks)


def test_everything_is_found_in_one_pass(spark: SparkSession) -> None:
    records = [_record(0, offset) for offset in range(100)]
    # Partition 1: 3 and 7-9 missing, 5 twice, out of order; one earlier time; one without a time.
    records += [_record(1, offset) for offset in (0, 1, 2, 4, 5, 6, 10, 11, 5)]
    records += [
        (None, None, "t", 1, 12, _START - timedelta(days=1)),
        (b"", b"", "t", 1, 13, None),
    ]
    ranges = {
        TopicPartition("t", 0): (0, 100),
        TopicPartition("t", 1): (0, 16),
        TopicPartition("t", 2): (5, 8),
        TopicPartition("t", 3): (5, 5),
    }
    report = audit(_frame(spark, records), ranges=ranges)
    sound, broken, empty, nothing = report.partitions
    assert (sound.records, sound.first_offset, sound.last_offset) == (100, 0, 99)
    assert sound.problems() == []
    assert sound.size_bytes == sum(
        len(key or b"") + len(value or b"") for key, value, *_ in records[:100]
    )
    assert sound.first_time_us == int(_START.timestamp() * 1_000_000)
    assert (broken.records, broken.first_offset, broken.last_offset) == (11, 0, 13)
    assert broken.gaps == (
        Gap(3, 3, GapKind.LOST),
        Gap(7, 9, GapKind.LOST),
        Gap(14, 15, GapKind.LOST),
    )
    assert broken.missing_offsets == {GapKind.LOST: 6}
    assert broken.duplicates == (OffsetSpan(5, 5),)
    assert (broken.duplicate_records, broken.order_violations, broken.times_back) == (1, 1, 2)
    assert (empty.records, empty.gaps) == (0, (Gap(5, 7, GapKind.LOST),))
    assert nothing.problems() == []
    assert report.problems() == [
        "t-1: 6 offsets are missing (3-3, 7-9, 14-15)",
        "t-1: 1 records are there twice (5-5)",
        "t-1: 1 records are out of order",
        "t-2: 3 offsets are missing (5-7)",
    ]
    assert report.to_json()["passed"] is False


def test_gaps_are_told_apart(spark: SparkSession) -> None:
    rows = _frame(spark, [_record(0, offset) for offset in (0, 1, 4, 5, 9)])
    archived = Archived({TopicPartition("t", 0): (0, 6)})
    (partition,) = audit(rows, explanation=archived, shown_max=1).partitions
    assert partition.missing_offsets == {GapKind.ARCHIVED: 2, GapKind.LOST: 3}
    # A loss is listed before what is explained.
    assert partition.gaps == (Gap(6, 8, GapKind.LOST),)
    archived = Archived(
        {TopicPartition("t", 0): (0, 12)}, {TopicPartition("t", 0): [(3, 4), (7, 8)]}
    )
    (partition,) = audit(rows, explanation=archived).partitions
    assert partition.gaps == (
        Gap(2, 2, GapKind.ARCHIVED),
        Gap(3, 3, GapKind.LOST),
        Gap(6, 6, GapKind.ARCHIVED),
        Gap(7, 7, GapKind.LOST),
        Gap(8, 8, GapKind.ARCHIVED),
    )


def test_the_checksum_depends_on_records_and_not_on_their_order(spark: SparkSession) -> None:
    records = [_record(0, offset) for offset in range(50)]
    copies = [
        records,
        records[::-1],
        [*records[:7], _record(0, 7, value=b"valuf"), *records[8:]],
        [*records[:7], _record(0, 7, value=None), *records[8:]],
        [*records[:7], _record(0, 7, value=b""), *records[8:]],
        [*records, records[0], records[0]],
    ]
    rows = [
        (key, value, topic, at, offset, moment)
        for at, copy in enumerate(copies)
        for key, value, topic, _, offset, moment in copy
    ]
    checksums = [each.checksum for each in audit(_frame(spark, rows, tasks=2)).partitions]
    assert checksums[0] == checksums[1]
    assert len(set(checksums)) == 5


def test_files_have_no_order_among_themselves_and_compaction_makes_gaps(
    spark: SparkSession,
) -> None:
    records = [_record(0, offset) for offset in (5, 6, 7, 0, 1, 2)]
    origin = F.when(F.col("offset") >= 5, "b").otherwise("a")
    report = audit(_frame(spark, records), origin=origin, explanation=Compacted())
    assert report.problems() == []
    assert report.partitions[0].gaps == (Gap(3, 4, GapKind.COMPACTED),)


def test_copies_are_compared_by_blocks(spark: SparkSession) -> None:
    records = [_record(0, offset) for offset in range(2_500)]
    ranges = {TopicPartition("t", 0): (0, 2_500), TopicPartition("t", 1): (0, 10)}
    rows = _whole(_frame(spark, records))
    assert compare(rows, _whole(_frame(spark, records[::-1])), ranges).problems() == []
    other = [
        *records[:10],
        *records[11:2_200],
        _record(0, 2_200, value=b"other"),
        *records[2_201:],
        _record(1, 3),
    ]
    found = compare(rows, _whole(_frame(spark, other)), ranges)
    assert found.blocks_that_differ == 3
    assert [(each.partition, each.first, each.last) for each in found.differences] == [
        (0, 0, 999),
        (0, 2000, 2499),
        (1, 0, 9),
    ]
    assert [(each.records, each.other_records) for each in found.differences] == [
        (1000, 999),
        (500, 500),
        (0, 1),
    ]
    assert found.to_json()["equal"] is False


def test_copies_are_compared_with_their_timestamps_and_headers(spark: SparkSession) -> None:
    rows = _frame(spark, [_record(0, offset) for offset in range(10)])
    ranges = {TopicPartition("t", 0): (0, 10)}
    header = "array(struct('h' AS key, {} AS value))"
    texts = ["NULL", "array()", header.format("NULL"), header.format("X''"), header.format("X'00'")]
    copies = [_whole(rows, headers) for headers in texts]
    copies.append(
        _whole(rows.withColumn("timestamp", F.expr("timestamp + INTERVAL 1 MILLISECOND")))
    )
    copies.append(copies[0].withColumn("timestampType", F.lit(1)))
    for at, one in enumerate(copies):
        for other_at, other in enumerate(copies[at:], at):
            is_same = not compare(one, other, ranges).blocks_that_differ
            assert is_same == (at == other_at)


def _whole(rows: DataFrame, headers: str = "NULL") -> DataFrame:
    """Rows with all columns of the source."""
    typed = f"CAST({headers} AS array<struct<key: string, value: binary>>) AS headers"
    return rows.selectExpr("*", "0 AS timestampType", typed)


def test_rows_are_cut_to_ranges(spark: SparkSession) -> None:
    rows = _frame(spark, [_record(at, offset) for at in (0, 1, 2) for offset in range(10)])
    ranges = {TopicPartition("t", 0): (2, 4), TopicPartition("t", 2): (9, 20)}
    found = within(rows, ranges)
    assert found.columns == rows.columns
    assert sorted((row.partition, row.offset) for row in found.collect()) == [
        (0, 2),
        (0, 3),
        (2, 9),
    ]


def test_no_rows_are_no_problem(spark: SparkSession) -> None:
    report = audit(_frame(spark, []))
    assert report.partitions == ()
    assert report.problems() == []
