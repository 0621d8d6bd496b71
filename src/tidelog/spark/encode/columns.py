"""Arrow columns as what compiled loops index: bytes, where each row's begin, how many there are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.compiled import Bytes, Numbers, byte_view, number_view

Int64s = npt.NDArray[np.int64]

NULL = -1


@dataclass(slots=True, frozen=True)
class BytesColumn:
    """Row i is `data[starts[i] : starts[i] + sizes[i]]`, or null if its size is `NULL`."""

    data: Bytes
    starts: Numbers
    sizes: Numbers


@dataclass(slots=True, frozen=True)
class HeadersColumn:
    """Row i has the entries `starts[i]` to `starts[i] + counts[i]` of `names` and `values`."""

    starts: Numbers
    counts: Numbers
    names: BytesColumn
    values: BytesColumn


def bytes_column(array: pa.Array | None, row_count: int) -> BytesColumn:
    """A column of strings or binary, not copied; without a column every row is null."""
    if array is None:
        return BytesColumn(
            byte_view(b""),
            number_view(np.zeros(row_count, np.int64)),
            number_view(np.full(row_count, NULL, np.int64)),
        )
    offsets, data = _offsets_and_data(array)
    sizes = np.diff(offsets)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return BytesColumn(
        byte_view(b"" if data is None else data), number_view(offsets[:-1]), number_view(sizes)
    )


def headers_column(array: pa.Array | None, row_count: int) -> HeadersColumn:
    """A column of lists of (key, value); null is no headers."""
    if array is None:
        none = number_view(np.zeros(row_count, np.int64))
        return HeadersColumn(none, none, bytes_column(None, 0), bytes_column(None, 0))
    # Of a slice, `offsets` are those of the slice, counted from the start of all `values`.
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.diff(offsets)
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)] = 0
    entries = array.values
    names, values = entries.flatten()
    if names.null_count and _has_null_name(names, offsets[:-1], counts):
        raise SparkError("a header in the column headers has no key: every header needs one")
    return HeadersColumn(
        number_view(offsets[:-1]),
        number_view(counts),
        bytes_column(names, len(entries)),
        bytes_column(values, len(entries)),
    )


def integers(array: pa.Array, null: int) -> Int64s:
    """A column of whole numbers, with `null` for null."""
    numbers: Int64s = array.fill_null(null).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def column_bytes(array: pa.Array | None) -> int:
    """The bytes of all rows of a column of strings or binary, from its first and last offset."""
    if array is None:
        return 0
    offsets, _ = _stored_offsets_and_data(array)
    return int(offsets[-1]) - int(offsets[0])


def _offsets_and_data(array: pa.Array) -> tuple[Int64s, Any]:
    offsets, data = _stored_offsets_and_data(array)
    return offsets.astype(np.int64), data


def _stored_offsets_and_data(array: pa.Array) -> tuple[npt.NDArray[Any], Any]:
    """Not copied, and so of 4 or 8 bytes each."""
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not is_large and not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    if offsets is None:
        return np.zeros(1, np.int64), None
    all_offsets = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    return all_offsets[array.offset : array.offset + len(array) + 1], data


def _has_null_name(names: pa.Array, starts: Int64s, counts: Int64s) -> bool:
    """Whether a row has a header without a name; entries that no row has do not count."""
    nulls = np.concatenate(([0], np.cumsum(names.is_null().to_numpy(zero_copy_only=False))))
    return bool(np.any(nulls[starts + counts] > nulls[starts]))
