"""Fetched batches of one partition in, Arrow batches out."""

from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.protocol.compression import decompress
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from tidelog.protocol.records import DECOMPRESSED_BYTES_MAX
from tidelog.spark.decode import walk as walking
from tidelog.spark.decode.aborted import AbortedTransactions
from tidelog.spark.decode.arrow import Int64Array
from tidelog.spark.decode.arrow_batch_builder import ArrowBatchBuilder
from tidelog.spark.decode.batches import FetchedBatches
from tidelog.spark.errors import SparkError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.runtime.compiled import Bytes, byte_view

# The data of one Arrow batch: enough to be cheap per row, and far from the 2 GB of its offsets.
ARROW_BYTES_MAX = 64 * 1024 * 1024

# So many bytes are checked, walked and copied before the next: they stay in the processor's cache,
# and what was decompressed is let go of. In blocks of 4 MB the three take a fifth longer.
BLOCK_BYTES = 1024 * 1024

# Offsets of records are sums that must fit 64 bits.
_BASE_OFFSET_MAX = 2**63 - 1 - 2**31


class RangeDecoder:
    """Gathers the wanted records of a partition into Arrow batches.

    Small record batches are put together, also those of small responses, and large ones are split:
    each Arrow batch but the last is at least half full of `rows_max` rows or `bytes_max` of data.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        *,
        include_headers: bool,
        rows_max: int,
        bytes_max: int = ARROW_BYTES_MAX,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._wanted = wanted
        self._block_bytes = block_bytes
        self._start = wanted.start
        self._rows = ArrowBatchBuilder(
            wanted.topic,
            wanted.partition,
            include_headers=include_headers,
            rows_max=rows_max,
            bytes_max=bytes_max,
        )

    def add(
        self, batches: FetchedBatches, aborted: AbortedTransactions | None, start: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode the batches of one response; gives the Arrow batches that became full.

        `aborted` is None where the records of aborted transactions are wanted too. `start` is the
        offset that was asked for: the first batch, which comes whole, may have records before it.
        Nothing of the response is needed any more when all were given.
        """
        self._start = start
        table = self._make_table(batches)
        wanted = self._find_wanted(batches, aborted, table)
        self._rows.expect(len(batches.records))
        block_ends = batches.block_ends(self._block_bytes)
        wanted_ends = np.searchsorted(wanted, block_ends)
        first = begin = 0
        for last, end in zip(block_ends.tolist(), wanted_ends.tolist(), strict=True):
            self._check_crcs(batches, first, last)
            yield from self._walk_block(batches, table, wanted[begin:end])
            self._rows.settle()
            first, begin = last, end
        if self._rows.is_half_full:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left, if any."""
        if len(self._rows):
            yield self._rows.take()

    def _make_table(self, batches: FetchedBatches) -> Int64Array:
        """What `walk` must know of each batch."""
        is_append_time = (batches.attributes & TIMESTAMP_TYPE_MASK) != 0
        table = np.empty((len(batches), walking.BATCH_WIDTH), dtype=np.int64)
        table[:, walking.BATCH_AT] = batches.begins + BATCH_OVERHEAD
        table[:, walking.BATCH_END] = batches.ends
        table[:, walking.BATCH_BASE_OFFSET] = batches.column("base_offset")
        table[:, walking.BATCH_LAST_DELTA] = batches.column("last_offset_delta")
        table[:, walking.BATCH_COUNT] = batches.column("record_count")
        table[:, walking.BATCH_TIMESTAMP] = np.where(
            is_append_time, batches.column("max_timestamp"), batches.column("base_timestamp")
        )
        table[:, walking.BATCH_TIMESTAMP_TYPE] = is_append_time
        bad = np.flatnonzero(
            (table[:, walking.BATCH_BASE_OFFSET] < 0)
            | (table[:, walking.BATCH_BASE_OFFSET] > _BASE_OFFSET_MAX)
            | (table[:, walking.BATCH_LAST_DELTA] < 0)
            | (table[:, walking.BATCH_COUNT] < 0)
        )
        if len(bad):
            header = batches.header(int(bad[0]))
            self._fail(header, f"its header says that it has {header.record_count} records")
        return table

    def _find_wanted(
        self, batches: FetchedBatches, aborted: AbortedTransactions | None, table: Int64Array
    ) -> Int64Array:
        """The batches that have records of the range that are to be seen."""
        first_offsets = table[:, walking.BATCH_BASE_OFFSET]
        is_wanted: npt.NDArray[np.bool_] = (
            (first_offsets < self._wanted.end)
            & (first_offsets + table[:, walking.BATCH_LAST_DELTA] >= self._start)
            & (table[:, walking.BATCH_AT] < table[:, walking.BATCH_END])
            & ((batches.attributes & CONTROL_MASK) == 0)
        )
        if aborted is not None and aborted.is_any:
            # The rest has no part in transactions.
            special = np.flatnonzero(batches.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK))
            for index in special.tolist():
                if self._is_aborted(batches, aborted, index):
                    is_wanted[index] = False
        return np.flatnonzero(is_wanted)

    def _is_aborted(
        self, batches: FetchedBatches, aborted: AbortedTransactions, index: int
    ) -> bool:
        header = batches.header(index)
        try:
            return aborted.covers(header, batches.records[int(batches.begins[index]) :])
        except ApiError as error:
            self._fail(header, error.message)

    def _check_crcs(self, batches: FetchedBatches, first: int, last: int) -> None:
        corrupt = batches.find_corrupt(first, last)
        if corrupt is not None:
            self._fail(batches.header(corrupt), "its CRC does not fit its bytes")

    def _walk_block(
        self, batches: FetchedBatches, table: Int64Array, indexes: Int64Array
    ) -> Iterator[pa.RecordBatch]:
        """Walk those batches of the table; runs that are not compressed are walked together."""
        after = 0
        if batches.is_any_compressed:
            is_compressed = (batches.attributes[indexes] & COMPRESSION_MASK) != 0
            for place in np.flatnonzero(is_compressed).tolist():
                yield from self._walk(batches, batches.data, table, indexes[after:place])
                yield from self._walk_compressed(batches, table, indexes[place : place + 1])
                after = place + 1
        yield from self._walk(batches, batches.data, table, indexes[after:])

    def _walk_compressed(
        self, batches: FetchedBatches, table: Int64Array, indexes: Int64Array
    ) -> Iterator[pa.RecordBatch]:
        """Walk one batch of the table, decompressed."""
        (index,) = indexes.tolist()
        header = batches.header(index)
        begin, end = table[index, [walking.BATCH_AT, walking.BATCH_END]].tolist()
        try:
            data = decompress(
                header.compression, batches.records[begin:end], DECOMPRESSED_BYTES_MAX
            )
        except ApiError as error:
            self._fail(header, error.message)
        table[index, [walking.BATCH_AT, walking.BATCH_END]] = 0, len(data)
        yield from self._walk(batches, byte_view(data), table, indexes)

    def _walk(
        self, batches: FetchedBatches, data: Bytes, table: Int64Array, indexes: Int64Array
    ) -> Iterator[pa.RecordBatch]:
        """Walk those batches of the table that lie in `data`."""
        if not len(indexes):
            return
        chosen = table[indexes]
        rows, end = self._rows, self._wanted.end
        status = rows.walk(data, chosen, self._start, end, is_new=True)
        while status == walking.FULL:
            yield rows.take()
            status = rows.walk(data, chosen, self._start, end, is_new=False)
        if status != walking.FINISHED:
            header = batches.header(int(indexes[rows.at_batch]))
            self._fail(header, f"record {rows.at_record}: {walking.PROBLEMS[status]}")

    def _fail(self, header: BatchHeader, problem: str) -> NoReturn:
        wanted = self._wanted
        raise SparkError(
            f"{wanted.topic}-{wanted.partition}: the batch of the offsets {header.base_offset} to"
            f" {header.last_offset} cannot be read: {problem}"
        )
