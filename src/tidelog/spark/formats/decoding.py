"""From raw values to columns, row by row where it must be, with the rows that do not parse."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from tidelog.spark.formats.columns import BUILD_ERRORS, StructColumn

_REASON_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of a batch of values, and why some rows are null in all of them."""

    columns: list[pa.Array]
    corrupt: dict[int, str]


class Decoder(Protocol):
    """Decodes values of one schema. A null value is a row of nulls and not corrupt. Picklable."""

    schema: StructType

    def decode(self, values: pa.Array) -> Decoded: ...


def decode_rows(
    values: pa.Array,
    parse: Callable[[bytes], Any],
    errors: tuple[type[Exception], ...],
    columns: StructColumn,
) -> Decoded:
    """Parse each value by itself; one that raises any of `errors` is corrupt, and only that one."""
    rows: list[Any] = []
    corrupt: dict[int, str] = {}
    for at, value in enumerate(value_bytes(values)):
        try:
            rows.append(None if value is None else parse(value))
        except errors as error:
            rows.append(None)
            corrupt[at] = _reason(error)
    built = _build(rows, 0, columns, corrupt)
    return Decoded(built, dict(sorted(corrupt.items())))


def value_bytes(values: pa.Array) -> list[bytes | None]:
    """The values of a binary column. Costs a slice per row, a third of `to_pylist`."""
    count = len(values)
    if count == values.null_count:
        return [None] * count
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, values.offset * 4)
    first = int(offsets[0])
    data = data_buffer.slice(first, int(offsets[-1]) - first).to_pybytes()
    ends = (offsets - first).tolist()
    pairs = pairwise(ends)
    if not values.null_count:
        return [data[start:end] for start, end in pairs]
    valid = values.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [
        data[start:end] if is_valid else None
        for (start, end), is_valid in zip(pairs, valid, strict=True)
    ]


def concatenate(parts: Sequence[list[pa.Array]]) -> list[pa.Array]:
    """The columns of several pieces of a batch as those of the whole."""
    if len(parts) == 1:
        return parts[0]
    return [pa.concat_arrays(list(pieces)) for pieces in zip(*parts, strict=True)]


def _build(
    rows: list[Any], first: int, columns: StructColumn, corrupt: dict[int, str]
) -> list[pa.Array]:
    """The columns of the rows; those that do not fit are found by halving and become null."""
    try:
        return columns.build_fields(rows)
    except BUILD_ERRORS as error:
        if len(rows) == 1:
            corrupt[first] = _reason(error)
            return columns.build_fields([None])
    half = len(rows) // 2
    return concatenate(
        [
            _build(rows[:half], first, columns, corrupt),
            _build(rows[half:], first + half, columns, corrupt),
        ]
    )


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= _REASON_CHARS_MAX else text[:_REASON_CHARS_MAX] + "…"
