"""Arrow arrays from plain buffers."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.runtime.compiled import Numbers, compiled, number_view
from tidelog.spark.schema import ARROW_HEADER, ARROW_HEADERS

Int64Array = npt.NDArray[np.int64]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MICROSECONDS_PER_MS: Final = 1000
_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS_PER_MS


@compiled
def sum_sizes(sizes: Numbers, offsets: Numbers) -> int:
    """Where elements of these sizes begin and end; how many are null, whose size is -1."""
    total = 0
    null_count = 0
    offsets[0] = 0
    for row in range(len(sizes)):
        size = sizes[row]
        if size >= 0:
            total += size
        else:
            null_count += 1
        offsets[row + 1] = total
    return null_count


@compiled
def to_microseconds(timestamps_ms: Numbers, microseconds: Numbers) -> int:
    """Milliseconds in microseconds; how many do not fit, which become 0."""
    null_count = 0
    for row in range(len(timestamps_ms)):
        timestamp_ms = timestamps_ms[row]
        if -_MS_MAX <= timestamp_ms <= _MS_MAX:
            microseconds[row] = timestamp_ms * _MICROSECONDS_PER_MS
        else:
            microseconds[row] = 0
            null_count += 1
    return null_count


def bytes_array(sizes: Int64Array, data: pa.Buffer, data_type: pa.DataType) -> pa.Array:
    """An array of binary or string whose elements lie one after the other; size -1 is null."""
    count = len(sizes)
    offsets = np.empty(count + 1, dtype=np.int32)
    null_count = sum_sizes(number_view(sizes), number_view(offsets))
    bitmap = _bitmap(sizes >= 0) if null_count else None
    buffers = [bitmap, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(data_type, count, buffers, null_count)


def numbers_array(numbers: npt.NDArray[Any], data_type: pa.DataType) -> pa.Array:
    """An array of fixed-width numbers without nulls."""
    return pa.Array.from_buffers(data_type, len(numbers), [None, pa.py_buffer(numbers)], 0)


def timestamps_array(timestamps_ms: Int64Array) -> pa.Array:
    """Timestamps in microseconds; null where those do not fit."""
    count = len(timestamps_ms)
    microseconds = np.empty(count, dtype=np.int64)
    null_count = to_microseconds(number_view(timestamps_ms), number_view(microseconds))
    bitmap = None
    if null_count:
        bitmap = _bitmap((timestamps_ms <= _MS_MAX) & (timestamps_ms >= -_MS_MAX))
    return pa.Array.from_buffers(
        _TIMESTAMP, count, [bitmap, pa.py_buffer(microseconds)], null_count
    )


def headers_array(counts: Int64Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers, `counts` of them for each row; null for a row that has none."""
    count = len(counts)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    has_headers = counts > 0
    null_count = count - int(np.count_nonzero(has_headers))
    headers = pa.Array.from_buffers(ARROW_HEADER, len(keys), [None], 0, children=[keys, values])
    bitmap = _bitmap(has_headers) if null_count else None
    buffers = [bitmap, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(ARROW_HEADERS, count, buffers, null_count, children=[headers])


def repeated_text(text: str, count: int) -> pa.Array:
    """A string column that says the same in each row."""
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(raw, count))]
    return pa.Array.from_buffers(pa.string(), count, buffers, 0)


def _bitmap(is_valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))
