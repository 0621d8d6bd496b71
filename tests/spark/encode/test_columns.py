"""What is read of Arrow columns without looking at each row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.spark.encode.columns import column_bytes

TEXTS = ["a", None, "", "bcd", "é", None]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()],
    ids=str,
)
def test_the_bytes_of_a_column_are_those_of_its_rows(kind: pa.DataType) -> None:
    column = pa.array(TEXTS, pa.string()).cast(kind)
    assert column_bytes(column) == 6
    for start in range(len(TEXTS) + 1):
        for end in range(start, len(TEXTS) + 1):
            expected = sum(len((each or "").encode()) for each in TEXTS[start:end])
            assert column_bytes(column.slice(start, end - start)) == expected


def test_a_column_that_is_not_there_has_no_bytes() -> None:
    assert column_bytes(None) == 0
    assert column_bytes(pa.array([], pa.binary())) == 0
    assert column_bytes(pa.nulls(3, pa.binary())) == 0
