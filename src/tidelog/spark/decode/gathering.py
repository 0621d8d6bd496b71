"""Rows that were walked, until they are an Arrow batch."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.spark.compiled import Bytes, byte_view, number_view
from tidelog.spark.decode import walk as walking
from tidelog.spark.decode.arrow import (
    ByteArray,
    Int64Array,
    bytes_array,
    headers_array,
    numbers_array,
    repeated_text,
    timestamps_array,
)
from tidelog.spark.errors import SparkError
from tidelog.spark.schema import arrow_schema


@dataclass(slots=True)
class _Piece:
    """Rows whose bytes lie in one buffer."""

    data: Bytes
    first: int
    last: int


class RowGatherer:
    """Collects rows of one partition, which may lie in several buffers.

    Bytes are copied once, when the rows are taken: then their number is known.
    """

    def __init__(
        self, topic: str, partition: int, *, include_headers: bool, rows_max: int, bytes_max: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._bytes_max = bytes_max
        self._rows = np.empty((walking.ROW_WIDTH, rows_max), dtype=np.int64)
        self._row_cells = number_view(self._rows)
        self._state = np.zeros(walking.STATE_WIDTH, dtype=np.int64)
        self._state_cells = number_view(self._state)
        self._pieces: list[_Piece] = []
        # The columns that are the same in each row, for as many rows as were needed so far.
        self._topics = repeated_text(topic, 0)
        self._partitions = numbers_array(np.empty(0, dtype=np.int32), pa.int32())
        # Bytes of the buffers that the rows keep alive.
        self.held_bytes = 0

    def __len__(self) -> int:
        return int(self._state[walking.ROW_COUNT])

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
                self.held_bytes += len(data)
        return status

    def take(self) -> pa.RecordBatch:
        """The rows as an Arrow batch; gathering starts anew."""
        count = len(self)
        rows = self._rows[:, :count]
        if len(self._topics) < count:
            self._topics = repeated_text(self._topic, count)
            partitions = np.full(count, self._partition, dtype=np.int32)
            self._partitions = numbers_array(partitions, pa.int32())
        keys, values = self._copy_fields()
        columns = [
            bytes_array(rows[walking.KEY_SIZE], keys, pa.binary()),
            bytes_array(rows[walking.VALUE_SIZE], values, pa.binary()),
            self._topics[:count],
            self._partitions[:count],
            numbers_array(rows[walking.OFFSET].copy(), pa.int64()),
            timestamps_array(rows[walking.TIMESTAMP]),
            numbers_array(rows[walking.TIMESTAMP_TYPE].astype(np.int32), pa.int32()),
        ]
        if self._include_headers:
            names, header_values = self._copy_headers()
            columns.append(headers_array(rows[walking.HEADER_COUNT], names, header_values))
        self._state[walking.ROW_COUNT :] = 0
        self._pieces.clear()
        self.held_bytes = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _copy_fields(self) -> tuple[ByteArray, ByteArray]:
        keys = np.empty(int(self._state[walking.KEY_BYTES]), dtype=np.uint8)
        values = np.empty(int(self._state[walking.VALUE_BYTES]), dtype=np.uint8)
        key_bytes, value_bytes = byte_view(keys, writable=True), byte_view(values, writable=True)
        key_at = value_at = 0
        for piece in self._pieces:
            key_at, value_at = walking.copy_fields(
                piece.data,
                self._row_cells,
                piece.first,
                piece.last,
                key_bytes,
                key_at,
                value_bytes,
                value_at,
            )
        return keys, values

    def _copy_headers(self) -> tuple[pa.Array, pa.Array]:
        state = self._state
        keys = np.empty(int(state[walking.HEADER_KEY_BYTES]), dtype=np.uint8)
        values = np.empty(int(state[walking.HEADER_VALUE_BYTES]), dtype=np.uint8)
        key_bytes, value_bytes = byte_view(keys, writable=True), byte_view(values, writable=True)
        sizes = np.empty((2, int(state[walking.HEADER_TOTAL])), dtype=np.int64)
        size_cells = number_view(sizes)
        header = key_at = value_at = 0
        for piece in self._pieces:
            header, key_at, value_at = walking.copy_headers(
                piece.data,
                self._row_cells,
                piece.first,
                piece.last,
                size_cells,
                header,
                key_bytes,
                key_at,
                value_bytes,
                value_at,
            )
        names = bytes_array(sizes[0], keys, pa.string())
        # Strings must be UTF-8; those of only ASCII, nearly all, need no closer look.
        if np.any(keys & 0x80):
            self._check_names(names)
        return names, bytes_array(sizes[1], values, pa.binary())

    def _check_names(self, names: pa.Array) -> None:
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            first, last = self._rows[walking.OFFSET, [0, len(self) - 1]].tolist()
            raise SparkError(
                f"{self._topic}-{self._partition}: a header between the offsets {first} and"
                f" {last} has a name that is not UTF-8: {error}"
            ) from None
