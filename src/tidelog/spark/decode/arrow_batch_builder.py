"""Rows that were walked, on their way to an Arrow batch."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.spark.decode import walk as walking
from tidelog.spark.decode.arrow import (
    Int64Array,
    bytes_array,
    headers_array,
    numbers_array,
    repeated_text,
    timestamps_array,
)
from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.buffer_pool import BufferPool
from tidelog.spark.runtime.compiled import Bytes, number_view
from tidelog.spark.schema import arrow_schema

# Room that is too small becomes so much larger.
_GROWTH = 2

# One for each column: what they need is alike from batch to batch.
_KEYS = BufferPool()
_VALUES = BufferPool()
_HEADER_KEYS = BufferPool()
_HEADER_VALUES = BufferPool()


@dataclass(slots=True)
class _Piece:
    """Rows whose bytes still lie in the buffer that they were found in."""

    data: Bytes
    first: int
    last: int


class _Store:
    """Bytes of one column, one value after the other."""

    def __init__(self, pool: BufferPool) -> None:
        self.used = 0
        self._pool = pool
        self._memory = pool.allocate(0)
        self._last_used = 0

    def reserve(self, size: int, expected: int, size_max: int) -> Bytes:
        """Make room for `size` bytes, and for what is likely to come: memory not used costs none.

        That is as much as last time, or all that is expected, but no more than `size_max`.
        """
        if size > len(self._memory.array):
            likely = max(_GROWTH * len(self._memory.array), self._last_used, self.used + expected)
            grown = self._pool.allocate(max(size, min(size_max, likely)))
            grown.array[: self.used] = self._memory.array[: self.used]
            self._memory = grown
        return self._memory.view()

    def take(self) -> pa.Buffer:
        """What was stored; the store is empty then."""
        taken = self._memory.buffer(self.used)
        self._memory = self._pool.allocate(0)
        self._last_used = self.used + self.used // 16
        self.used = 0
        return taken


class ArrowBatchBuilder:
    """Collects the rows of one partition until there are enough for an Arrow batch.

    `walk` only notes where their bytes lie. They are copied by `settle`, after which the buffers
    can be used for something else, or when the rows are taken.
    """

    def __init__(
        self, topic: str, partition: int, *, include_headers: bool, rows_max: int, bytes_max: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._bytes_max = bytes_max
        self._expected = 0
        self._rows = np.empty((walking.ROW_WIDTH, rows_max), dtype=np.int64)
        self._row_cells = number_view(self._rows)
        self._state = np.zeros(walking.STATE_WIDTH, dtype=np.int64)
        self._state_cells = number_view(self._state)
        self._pieces: list[_Piece] = []
        self._keys = _Store(_KEYS)
        self._values = _Store(_VALUES)
        self._header_keys = _Store(_HEADER_KEYS)
        self._header_values = _Store(_HEADER_VALUES)
        self._header_sizes: list[Int64Array] = []
        # The columns that are the same in each row, for as many rows as were needed so far.
        self._topics = repeated_text(topic, 0)
        self._partitions = numbers_array(np.empty(0, dtype=np.int32), pa.int32())

    def __len__(self) -> int:
        return int(self._state[walking.ROW_COUNT])

    @property
    def is_half_full(self) -> bool:
        """Whether the rows, or their bytes, are half of what they may be."""
        record_bytes = int(self._state[walking.RECORD_BYTES])
        return 2 * len(self) >= self._rows.shape[1] or 2 * record_bytes >= self._bytes_max

    @property
    def at_batch(self) -> int:
        """The row of the table where the last walk ended."""
        return int(self._state[walking.AT_BATCH])

    @property
    def at_record(self) -> int:
        """The record of that batch."""
        return int(self._state[walking.AT_RECORD])

    def walk(self, data: Bytes, table: Int64Array, start: int, end: int, *, is_new: bool) -> int:
        """Add the records of the batches in `table` that lie in `data`; how `walking.walk` ended.

        A walk that ended because there was no more room goes on where it was unless `is_new`.
        """
        state = self._state
        if is_new:
            state[: walking.ROW_COUNT] = 0
        first = len(self)
        status = walking.walk(
            data,
            number_view(table),
            self._state_cells,
            self._row_cells,
            self._bytes_max,
            start,
            end,
        )
        last = len(self)
        if last > first:
            if self._pieces and self._pieces[-1].data is data:
                self._pieces[-1].last = last
            else:
                self._pieces.append(_Piece(data, first, last))
        return status

    def expect(self, size: int) -> None:
        """Say how many bytes the batches have that are walked next."""
        self._expected = size

    def settle(self) -> None:
        """Copy the bytes of all rows, so that the buffers that they lie in can go."""
        if not self._pieces:
            return
        self._copy_fields()
        if self._include_headers and self._state[walking.HEADER_TOTAL]:
            self._copy_headers()
        self._pieces.clear()

    def take(self) -> pa.RecordBatch:
        """The rows as an Arrow batch; there are none here then."""
        self.settle()
        count = len(self)
        rows = self._rows[:, :count]
        if len(self._topics) < count:
            self._topics = repeated_text(self._topic, count)
            partitions = np.full(count, self._partition, dtype=np.int32)
            self._partitions = numbers_array(partitions, pa.int32())
        columns = [
            bytes_array(rows[walking.KEY_SIZE], self._keys.take(), pa.binary()),
            bytes_array(rows[walking.VALUE_SIZE], self._values.take(), pa.binary()),
            self._topics[:count],
            self._partitions[:count],
            numbers_array(rows[walking.OFFSET].copy(), pa.int64()),
            timestamps_array(rows[walking.TIMESTAMP]),
            numbers_array(rows[walking.TIMESTAMP_TYPE].astype(np.int32), pa.int32()),
        ]
        if self._include_headers:
            columns.append(self._take_headers(rows[walking.HEADER_COUNT]))
        self._state[walking.ROW_COUNT :] = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _copy_fields(self) -> None:
        keys, values = self._keys, self._values
        key_bytes = keys.reserve(
            int(self._state[walking.KEY_BYTES]), self._expected, self._bytes_max
        )
        value_bytes = values.reserve(
            int(self._state[walking.VALUE_BYTES]), self._expected, self._bytes_max
        )
        for piece in self._pieces:
            keys.used, values.used = walking.copy_fields(
                piece.data,
                self._row_cells,
                piece.first,
                piece.last,
                key_bytes,
                keys.used,
                value_bytes,
                values.used,
            )

    def _copy_headers(self) -> None:
        state, keys, values = self._state, self._header_keys, self._header_values
        key_bytes = keys.reserve(
            int(state[walking.HEADER_KEY_BYTES]), self._expected, self._bytes_max
        )
        value_bytes = values.reserve(
            int(state[walking.HEADER_VALUE_BYTES]), self._expected, self._bytes_max
        )
        known = sum(sizes.shape[1] for sizes in self._header_sizes)
        sizes = np.empty((2, int(state[walking.HEADER_TOTAL]) - known), dtype=np.int64)
        header = 0
        for piece in self._pieces:
            header, keys.used, values.used = walking.copy_headers(
                piece.data,
                self._row_cells,
                piece.first,
                piece.last,
                number_view(sizes),
                header,
                key_bytes,
                keys.used,
                value_bytes,
                values.used,
            )
        self._header_sizes.append(sizes)

    def _take_headers(self, counts: Int64Array) -> pa.Array:
        sizes = np.concatenate([np.empty((2, 0), dtype=np.int64), *self._header_sizes], axis=1)
        self._header_sizes.clear()
        text = self._header_keys.take()
        names = bytes_array(sizes[0], text, pa.string())
        # Strings must be UTF-8; those of only ASCII, nearly all, need no closer look.
        if np.any(np.frombuffer(text, dtype=np.uint8) & 0x80):
            self._check_names(names)
        values = bytes_array(sizes[1], self._header_values.take(), pa.binary())
        return headers_array(counts, names, values)

    def _check_names(self, names: pa.Array) -> None:
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            first, last = self._rows[walking.OFFSET, [0, len(self) - 1]].tolist()
            raise SparkError(
                f"{self._topic}-{self._partition}: a header between the offsets {first} and"
                f" {last} has a name that is not UTF-8: {error}"
            ) from None
