"""Arrow arrays from plain buffers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.schema import ARROW_HEADER, ARROW_HEADERS

Int64Array = npt.NDArray[np.int64]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MICROSECONDS_PER_MS = 1000
_MS_MAX = (2**63 - 1) // _MICROSECONDS_PER_MS


def bytes_array(sizes: Int64Array, data: pa.Buffer, data_type: pa.DataType) -> pa.Array:
    """An array of binary or string whose elements lie one after the other; size -1 is null."""
    count = len(sizes)
    offsets = np.zeros(count + 1, dtype=np.int32)
    is_valid = sizes >= 0
    null_count = count - int(np.count_nonzero(is_valid))
    np.cumsum(np.where(is_valid, sizes, 0) if null_count else sizes, out=offsets[1:])
    buffers = [_bitmap(is_valid, null_count), pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(data_type, count, buffers, null_count)


def numbers_array(numbers: npt.NDArray[Any], data_type: pa.DataType) -> pa.Array:
    """An array of fixed-width numbers without nulls."""
    return pa.Array.from_buffers(data_type, len(numbers), [None, pa.py_buffer(numbers)], 0)


def timestamps_array(timestamps_ms: Int64Array) -> pa.Array:
    """Timestamps in microseconds; null where those do not fit."""
    count = len(timestamps_ms)
    fits = (timestamps_ms <= _MS_MAX) & (timestamps_ms >= -_MS_MAX)
    null_count = count - int(np.count_nonzero(fits))
    kept = np.where(fits, timestamps_ms, 0) if null_count else timestamps_ms
    buffers = [_bitmap(fits, null_count), pa.py_buffer(kept * _MICROSECONDS_PER_MS)]
    return pa.Array.from_buffers(_TIMESTAMP, count, buffers, null_count)


def headers_array(counts: Int64Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers, `counts` of them for each row; null for a row that has none."""
    count = len(counts)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    has_headers = counts > 0
    null_count = count - int(np.count_nonzero(has_headers))
    headers = pa.Array.from_buffers(ARROW_HEADER, len(keys), [None], 0, children=[keys, values])
    buffers = [_bitmap(has_headers, null_count), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(ARROW_HEADERS, count, buffers, null_count, children=[headers])


def repeated_text(text: str, count: int) -> pa.Array:
    """A string column that says the same in each row."""
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(raw, count))]
    return pa.Array.from_buffers(pa.string(), count, buffers, 0)


def _bitmap(is_valid: npt.NDArray[np.bool_], null_count: int) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little")) if null_count else None
