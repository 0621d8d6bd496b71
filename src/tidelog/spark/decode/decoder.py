"""Fetched batches of one partition in, Arrow record batches out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from tidelog.protocol.compression import Compression, decompress
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    TimestampType,
    check_crc,
)
from tidelog.protocol.records import DECOMPRESSED_BYTES_MAX
from tidelog.spark.compiled import Bytes, byte_view, number_view
from tidelog.spark.decode import walk as walking
from tidelog.spark.decode.aborted import AbortedTransactions
from tidelog.spark.decode.arrow import (
    ByteArray,
    bytes_array,
    headers_array,
    numbers_array,
    repeated_text,
    timestamps_array,
)
from tidelog.spark.errors import SparkError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema

# The data of one Arrow batch: enough to be cheap per row, and far from the 2 GB of its offsets.
ARROW_BYTES_MAX = 64 * 1024 * 1024

# A batch in fetched data: its position and its header.
PlacedHeader = tuple[int, BatchHeader]
# The records of a batch in some buffer: where they begin and end.
_Section = tuple[int, int, BatchHeader]


@dataclass(slots=True)
class _Piece:
    """Rows whose bytes lie in one buffer."""

    data: Bytes
    first: int
    last: int


class RangeDecoder:
    """Gathers the wanted records of a partition into Arrow batches of even size.

    Small record batches are put together and large ones split, so that each Arrow batch but the
    last has `rows_max` rows, or about `bytes_max` of data.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        *,
        include_headers: bool,
        rows_max: int,
        bytes_max: int = ARROW_BYTES_MAX,
    ) -> None:
        self._wanted = wanted
        self._start = wanted.start
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._bytes_max = bytes_max
        self._rows = np.empty((walking.ROW_WIDTH, rows_max), dtype=np.int64)
        self._row_cells = number_view(self._rows)
        self._state = np.zeros(walking.STATE_WIDTH, dtype=np.int64)
        self._state_cells = number_view(self._state)
        self._pieces: list[_Piece] = []
        # Bytes of buffers that the rows gathered so far keep alive.
        self._held_bytes = 0
        self._topics = repeated_text(wanted.topic, 0)
        self._partitions = numbers_array(np.empty(0, dtype=np.int32), pa.int32())

    def add(
        self,
        records: memoryview,
        headers: Sequence[PlacedHeader],
        aborted: AbortedTransactions | None,
        start: int,
    ) -> Iterator[pa.RecordBatch]:
        """Decode the batches of one answer; gives the Arrow batches that became full.

        `headers` are the whole batches in `records` with their positions. `aborted` is None where
        the records of aborted transactions are wanted too. `start` is the offset that was asked
        for: the first batch, which comes whole, may have records before it.
        """
        self._start = start
        whole = byte_view(records)
        run: list[_Section] = []
        for at, header in self._wanted_batches(records, headers, aborted):
            begin, end = at + BATCH_OVERHEAD, at + header.size_bytes
            if header.compression is Compression.NONE:
                run.append((begin, end, header))
                continue
            yield from self._walk(whole, run)
            run = []
            data = self._decompress(records[begin:end], header)
            yield from self._walk(byte_view(data), [(0, len(data), header)])
        yield from self._walk(whole, run)
        if self._held_bytes > self._bytes_max:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left, if any."""
        if self._state[walking.ROW_COUNT]:
            yield self._take()

    def _wanted_batches(
        self,
        records: memoryview,
        headers: Iterable[PlacedHeader],
        aborted: AbortedTransactions | None,
    ) -> Iterator[PlacedHeader]:
        start, end = self._start, self._wanted.end
        for at, header in headers:
            try:
                check_crc(records, at, header.size_bytes)
                is_aborted = aborted is not None and aborted.covers(header, records[at:])
            except ApiError as error:
                self._fail(header, error.message)
            if is_aborted or header.is_control or not header.record_count:
                continue
            if header.base_offset < end and header.last_offset >= start:
                yield at, header

    def _decompress(self, section: memoryview, header: BatchHeader) -> bytes:
        try:
            return decompress(header.compression, section, DECOMPRESSED_BYTES_MAX)
        except ApiError as error:
            self._fail(header, error.message)

    def _walk(self, data: Bytes, sections: Sequence[_Section]) -> Iterator[pa.RecordBatch]:
        """Note the records of batches that lie in one buffer."""
        if not sections:
            return
        table = number_view(np.array([self._table_row(*each) for each in sections], dtype=np.int64))
        state = self._state
        state[: walking.ROW_COUNT] = 0
        while True:
            first = int(state[walking.ROW_COUNT])
            status = walking.walk(
                data,
                table,
                self._state_cells,
                self._row_cells,
                self._bytes_max,
                self._start,
                self._wanted.end,
            )
            if status > walking.FULL:
                header = sections[int(state[walking.AT_BATCH])][2]
                record = int(state[walking.AT_RECORD])
                self._fail(header, f"record {record}: {walking.PROBLEMS[status]}")
            last = int(state[walking.ROW_COUNT])
            if last > first:
                self._pieces.append(_Piece(data, first, last))
                self._held_bytes += len(data)
            if status == walking.FINISHED:
                return
            yield self._take()

    def _table_row(
        self, begin: int, end: int, header: BatchHeader
    ) -> tuple[int, int, int, int, int, int, int]:
        if not 0 <= header.record_count <= (end - begin) // walking.RECORD_BYTES_MIN:
            self._fail(header, f"{header.record_count} records in {end - begin} bytes")
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return (
            begin,
            end,
            header.base_offset,
            header.last_offset_delta,
            header.record_count,
            header.max_timestamp if is_append_time else header.base_timestamp,
            int(is_append_time),
        )

    def _take(self) -> pa.RecordBatch:
        """The gathered rows as an Arrow batch; gathering starts anew."""
        state, cells = self._state, self._row_cells
        count = int(state[walking.ROW_COUNT])
        rows = self._rows[:, :count]
        keys = np.empty(int(state[walking.KEY_BYTES]), dtype=np.uint8)
        values = np.empty(int(state[walking.VALUE_BYTES]), dtype=np.uint8)
        key_bytes, value_bytes = byte_view(keys, writable=True), byte_view(values, writable=True)
        key_at = value_at = 0
        for piece in self._pieces:
            key_at, value_at = walking.copy_fields(
                piece.data, cells, piece.first, piece.last, key_bytes, key_at, value_bytes, value_at
            )
        if len(self._topics) < count:
            self._topics = repeated_text(self._wanted.topic, count)
            partitions = np.full(count, self._wanted.partition, dtype=np.int32)
            self._partitions = numbers_array(partitions, pa.int32())
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
            columns.append(self._headers(count))
        state[walking.ROW_COUNT :] = 0
        self._pieces.clear()
        self._held_bytes = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _headers(self, count: int) -> pa.Array:
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
        self._check_names(names, keys)
        return headers_array(
            self._rows[walking.HEADER_COUNT, :count],
            names,
            bytes_array(sizes[1], values, pa.binary()),
        )

    def _check_names(self, names: pa.Array, data: ByteArray) -> None:
        """Strings must be UTF-8; those of only ASCII, nearly all, need no closer look."""
        if not np.any(data & 0x80):
            return
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            wanted = self._wanted
            first, last = (int(self._rows[walking.OFFSET, row]) for row in (0, self._last_row))
            raise SparkError(
                f"{wanted.topic}-{wanted.partition}: a header between the offsets {first} and"
                f" {last} has a name that is not UTF-8: {error}"
            ) from None

    @property
    def _last_row(self) -> int:
        return int(self._state[walking.ROW_COUNT]) - 1

    def _fail(self, header: BatchHeader, problem: str) -> NoReturn:
        wanted = self._wanted
        raise SparkError(
            f"{wanted.topic}-{wanted.partition}: the batch of the offsets {header.base_offset} to"
            f" {header.last_offset} cannot be read: {problem}"
        )
