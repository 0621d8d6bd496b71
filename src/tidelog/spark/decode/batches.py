"""The record batches of one response: their headers as a table.

Python looks at no batch by itself, so that a response of many small ones is not slower by much: a
compiled loop finds where they begin, numpy takes their headers apart.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    compute_crc,
    read_header,
)
from tidelog.spark.decode.arrow import Int64Array
from tidelog.spark.runtime.compiled import Bytes, Numbers, byte_view, compiled, number_view

_HEADER_TYPES = ("i8", "i4", "i4", "i1", "u4", "i2", "i4", "i8", "i8", "i8", "i2", "i4", "i4")
_HEADER = np.dtype(
    [(name, f">{kind}") for name, kind in zip(BatchHeader._fields, _HEADER_TYPES, strict=True)]
)
assert _HEADER.itemsize == BATCH_OVERHEAD
_HEADER_BYTES = np.arange(BATCH_OVERHEAD)

_LENGTH_AT: Final = 8


@compiled
def find_batches(data: Bytes, size: int, positions: Numbers) -> tuple[int, int]:
    """Note where each whole batch begins; how many there are, and where what follows begins.

    What follows is a batch that is cut off, or what is no batch at all.
    """
    count = 0
    at = 0
    while size - at >= BATCH_OVERHEAD and data[at + MAGIC_AT] == MAGIC:
        length = 0
        for index in range(at + _LENGTH_AT, at + LOG_OVERHEAD):
            length = length << 8 | data[index]
        if length < BATCH_OVERHEAD - LOG_OVERHEAD or length > size - at - LOG_OVERHEAD:
            break
        positions[count] = at
        count += 1
        at += LOG_OVERHEAD + length
    return count, at


class FetchedBatches:
    """The whole batches in fetched data; ApiError if there is something else in it."""

    def __init__(self, records: memoryview) -> None:
        self.records = records
        self.data = byte_view(records)
        positions = np.empty(len(records) // BATCH_OVERHEAD + 1, dtype=np.int64)
        count, rest = find_batches(self.data, len(records), number_view(positions))
        if len(records) - rest >= BATCH_OVERHEAD:
            # The last batch is cut off, or this says what is wrong with it.
            read_header(records, rest)
        self.begins: Int64Array = positions[:count].copy()
        raw = np.frombuffer(records, dtype=np.uint8)[self.begins[:, None] + _HEADER_BYTES]
        self._headers = raw.view(_HEADER)[:, 0]
        self.ends: Int64Array = self.begins + LOG_OVERHEAD + self.column("batch_length")
        self.attributes = self.column("attributes")
        self.is_any_compressed = bool(np.any(self.attributes & COMPRESSION_MASK))
        checksums = self.column("crc")
        self._checked = list(
            zip(self.begins.tolist(), self.ends.tolist(), checksums.tolist(), strict=True)
        )

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def size_bytes(self) -> int:
        """What the batches take, without one that is cut off behind them."""
        return int(self.ends[-1]) if len(self) else 0

    def column(self, name: str) -> npt.NDArray[Any]:
        """One field of `BatchHeader` of every batch."""
        values: npt.NDArray[Any] = self._headers[name]
        return values.astype(values.dtype.newbyteorder("="))

    def header(self, index: int) -> BatchHeader:
        return read_header(self.records, int(self.begins[index]))

    @property
    def next_offset(self) -> int:
        """The offset after the last batch; -1 if there is none."""
        return self.header(-1).next_offset if len(self) else -1

    def find_corrupt(self, first: int, last: int) -> int | None:
        """Which of the batches first..last does not have the checksum that its header says."""
        records = self.records
        for index in range(first, last):
            begin, end, checksum = self._checked[index]
            if compute_crc(records, begin, end - begin) != checksum:
                return index
        return None

    def block_ends(self, size_bytes: int) -> Int64Array:
        """Where runs of batches of about `size_bytes`, or of one that is larger, have their end."""
        ends: Int64Array = np.flatnonzero(np.diff(self.begins // size_bytes)) + 1
        return np.append(ends, len(self))
