"""Rows of Arrow to record batches, read back by the plain decoder."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.producer_identity import ProducerIdentity
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import Record, decode_batches
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.encode.batches import BatchEncoder, EncoderSettings
from tidelog.spark.errors import SparkError
from tidelog.spark.schema import ARROW_HEADERS

COUNTS = {"orders": 3, "payments": 1}
NOW_MS = 1_700_000_000_000

Row = dict[str, Any]

fields = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
header_lists = st.none() | st.lists(
    st.fixed_dictionaries(
        {"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=80)}
    ),
    max_size=3,
)


@st.composite
def row_lists(draw: st.DrawFn) -> list[Row]:
    rows = []
    for number in range(draw(st.integers(1, 40))):
        topic = draw(st.sampled_from(sorted(COUNTS)))
        key = draw(fields)
        rows.append(
            {
                "key": key,
                # A row that may go to any partition has to be known by its value.
                "value": b"%d" % number if key is None else draw(fields),
                "headers": draw(header_lists),
                "topic": topic,
                "partition": draw(st.none() | st.integers(0, COUNTS[topic] - 1)),
            }
        )
    return rows


def arrow(rows: Iterable[Row]) -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", ARROW_HEADERS),
            ("topic", pa.string()),
            ("partition", pa.int32()),
        ]
    )
    return pa.RecordBatch.from_pylist(list(rows), schema)


def encoder(**settings: Any) -> BatchEncoder:
    return BatchEncoder(EncoderSettings(**settings), COUNTS.__getitem__)


def records(batches: Iterable[EncodedBatch]) -> dict[TopicPartition, list[Record]]:
    """What is in the batches, by partition; their CRCs are checked."""
    found: dict[TopicPartition, list[Record]] = {}
    for batch in batches:
        batch.stamp(ProducerIdentity(7, 3, is_transactional=True), 20)
        ((header, decoded),) = decode_batches(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 20)
        assert header.is_transactional
        assert header.record_count == batch.record_count
        assert header.max_timestamp == header.base_timestamp == NOW_MS
        assert [each.offset for each in decoded] == list(range(len(decoded)))
        found.setdefault(batch.partition, []).extend(decoded)
    return found


def as_row(record: Record) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


@given(
    rows=row_lists(),
    compression=st.sampled_from(list(Compression)),
    batch_bytes=st.sampled_from([100, 400, 1_000_000]),
    skipped=st.integers(0, 3),
)
def test_every_row_is_in_its_partition_in_order(
    rows: list[Row], compression: Compression, batch_bytes: int, skipped: int
) -> None:
    # What Spark hands over may be a slice of a larger batch.
    given_rows = arrow([*rows[:1] * skipped, *rows]).slice(skipped)
    made = encoder(compression=compression, batch_bytes=batch_bytes).encode(given_rows, NOW_MS)
    if compression is Compression.NONE:
        assert all(len(each.data) <= batch_bytes or each.record_count == 1 for each in made)
    found: dict[TopicPartition, Iterator[Record]] = {
        partition: iter(each) for partition, each in records(made).items()
    }
    for row in rows:
        expected = {**row, "headers": row["headers"] or []}
        topic, index = expected.pop("topic"), expected.pop("partition")
        if index is None and row["key"] is not None:
            index = key_partition(row["key"], COUNTS[topic])
        if index is not None:
            record = next(found[TopicPartition(topic, index)])
        else:
            # Without a key any partition will do: the row is the next of one of them.
            candidates = [each for each in found if each.topic == topic]
            record = _next_that_is(expected, candidates, found)
        assert as_row(record) == expected
    assert all(next(each, None) is None for each in found.values())


def _next_that_is(
    row: Row, candidates: list[TopicPartition], found: dict[TopicPartition, Iterator[Record]]
) -> Record:
    for partition in candidates:
        rest = list(found[partition])
        found[partition] = iter(rest)
        if rest and as_row(rest[0]) == row:
            next(found[partition])
            return rest[0]
    raise AssertionError(f"{row} is in no partition of {candidates}")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_is_written_as_utf8(kind: pa.DataType) -> None:
    texts = ["", "ä", "x" * 1000, None]
    values = pa.array(texts).cast(kind)
    made = encoder(topic="payments").encode(pa.record_batch({"value": values}), NOW_MS)
    ((_, found),) = records(made).items()
    assert [each.value for each in found] == [
        None if text is None else text.encode() for text in texts
    ]
    assert {each.key for each in found} == {None}


def test_the_option_goes_before_the_column_of_topics() -> None:
    rows = arrow([{"value": b"1", "topic": "orders"}, {"value": b"2", "topic": None}])
    assert set(records(encoder(topic="payments").encode(rows, NOW_MS))) == {
        TopicPartition("payments", 0)
    }


def test_rows_without_a_key_take_turns_by_batches() -> None:
    rows = pa.record_batch({"value": pa.array([b"x" * 100] * 900)})
    chosen = encoder(topic="orders", batch_bytes=10_000)
    made = [*chosen.encode(rows, NOW_MS), *chosen.encode(rows, NOW_MS)]
    counts = {partition: len(each) for partition, each in records(made).items()}
    assert set(counts) == {TopicPartition("orders", index) for index in range(3)}
    assert max(counts.values()) - min(counts.values()) <= 200
    # Large batches: the 200 KB are in little more than the least number of them.
    assert len(made) <= 2 * 200_000 // 10_000


def test_no_rows_are_no_batches() -> None:
    assert encoder(topic="orders").encode(arrow([]), NOW_MS) == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"value": b"1", "topic": None}, "topic"),
        ({"value": b"1", "topic": "orders", "partition": 3}, "orders has the partitions 0 to 2"),
        ({"value": b"1", "topic": "orders", "partition": -1}, "-1 in the column partition"),
        (
            {"value": b"1", "topic": "orders", "headers": [{"key": None, "value": b""}]},
            "header",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_named(row: Row, words: str) -> None:
    with pytest.raises(SparkError, match=words):
        encoder().encode(arrow([{"value": b"0", "topic": "orders"}, row]), NOW_MS)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_splits_into_halves_with_numbers_that_go_on(compression: Compression) -> None:
    rows = pa.record_batch({"value": pa.array([b"%d" % number for number in range(7)])})
    (batch,) = encoder(topic="payments", compression=compression).encode(rows, NOW_MS)
    batch.stamp(ProducerIdentity(1, 2, is_transactional=True), 2**31 - 3)
    halves = batch.split()
    assert [each.record_count for each in halves] == [3, 4]
    assert [each.first_record for each in halves] == [2**31 - 3, 2**31]
    values = []
    for half, sequence in zip(halves, (2**31 - 3, 0), strict=True):
        ((header, decoded),) = decode_batches(half.data)
        assert (header.producer_id, header.producer_epoch) == (1, 2)
        assert header.base_sequence == sequence
        assert header.is_transactional
        assert header.compression is compression
        assert [each.offset for each in decoded] == list(range(len(decoded)))
        assert {each.timestamp for each in decoded} == {NOW_MS}
        values += [each.value for each in decoded]
    assert values == [b"%d" % number for number in range(7)]
    assert halves[0].split()[0].split() == []


def sample() -> pa.RecordBatch:
    """Rows of many shapes whose partitions do not depend on chance."""
    return arrow(
        {
            "key": b"%d" % number,
            "value": None if number % 7 == 0 else b"v" * (number * 37 % 500),
            "headers": [{"key": "h" * (number % 9), "value": b"%d" % number}] * (number % 4),
            "topic": "orders" if number % 3 else "payments",
            "partition": 0 if number % 5 == 0 else None,
        }
        for number in range(500)
    )


def digest() -> str:
    batches = encoder(batch_bytes=5_000).encode(sample(), NOW_MS)
    found = hashlib.sha256()
    for batch in batches:
        batch.stamp(ProducerIdentity(1, 1), 1)
        found.update(f"{batch.partition}".encode() + batch.data)
    return found.hexdigest()


def test_uncompiled_code_gives_the_same_bytes() -> None:
    script = (
        "from tests.spark.encode.test_batches import digest;"
        "from tidelog.spark.runtime.compiled import IS_COMPILED;"
        "print(IS_COMPILED, digest())"
    )
    uncompiled = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TIDELOG_UNCOMPILED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert uncompiled.stdout.split() == ["False", digest()]
