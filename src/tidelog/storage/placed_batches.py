"""Batches that have their place in a log: offsets and leader epochs are set, nothing is written.

A leader gives them their place (`place`); to a follower they come with it (`check_replicated`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import (
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
    stamp,
    stamp_append_time,
)
from tidelog.storage.segment.segment import RELATIVE_OFFSET_MAX


class PlacedBatches:
    """The bytes of some batches (at least one) and their headers, in order of offsets."""

    __slots__ = ("batches", "headers")

    def __init__(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        self.batches = batches
        self.headers = headers

    @property
    def first_offset(self) -> int:
        return self.headers[0].base_offset

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_offset

    @property
    def leader_epoch(self) -> int:
        """That of the last batch."""
        return self.headers[-1].partition_leader_epoch

    @property
    def max_timestamp_ms(self) -> int:
        return max(header.max_timestamp for header in self.headers)

    def each(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        at = 0
        for header in self.headers:
            yield header, self.batches[at : at + header.size_bytes]
            at += header.size_bytes

    def fitting_segments(self) -> Iterator[PlacedBatches]:
        """The same batches in runs that one segment can hold, whose offsets span 31 bits."""
        at = 0
        headers = self.headers
        if headers[-1].last_offset - headers[0].base_offset <= RELATIVE_OFFSET_MAX:
            yield self
            return
        while headers:
            count = len(headers)
            while headers[count - 1].last_offset - headers[0].base_offset > RELATIVE_OFFSET_MAX:
                count -= 1
            run, headers = headers[:count], headers[count:]
            end = at + sum(header.size_bytes for header in run)
            yield PlacedBatches(self.batches[at:end], run)
            at = end

    def ending_with(self, mask: int) -> Iterator[PlacedBatches]:
        """The same batches in runs that end with a batch of one of these attributes, or with the
        last."""
        at = end = first = 0
        for number, header in enumerate(self.headers, 1):
            end += header.size_bytes
            if header.attributes & mask or number == len(self.headers):
                yield PlacedBatches(self.batches[at:end], self.headers[first:number])
                at, first = end, number


def place(
    batches: memoryview,
    found: list[tuple[int, BatchHeader]],
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> PlacedBatches:
    """Stamps the batches at the positions `found` in place, one after the other.

    Without an append time the records keep their own.
    """
    next_offset = first_offset
    headers = []
    for at, header in found:
        stamp(batches, at, next_offset, leader_epoch)
        if append_time_ms is not None:
            stamp_append_time(batches, at, append_time_ms)
        next_offset += header.last_offset_delta + 1
        headers.append(read_header(batches, at))
    return PlacedBatches(batches, headers)


def check_replicated(batches: memoryview, log_end_offset: int) -> PlacedBatches:
    """The batches that a leader (or the journal) has placed, if they may follow the log's end.

    Raises ApiError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE when a batch begins below the log end
    or offsets do not rise.
    """
    placed = _check(batches, log_end_offset, allow_partial=False)
    if placed is None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "there is no batch to append")
    return placed


def check_fetched(batches: memoryview, log_end_offset: int) -> PlacedBatches | None:
    """The same for what a leader has answered: without a last batch that is cut off, for leaders
    may count bytes and not batches. None when nothing is left."""
    return _check(batches, log_end_offset, allow_partial=True)


def _check(
    batches: memoryview, log_end_offset: int, *, allow_partial: bool
) -> PlacedBatches | None:
    headers = []
    next_offset = log_end_offset
    end = 0
    for at, header in iterate_headers(batches, allow_partial=allow_partial):
        size_bytes = header.size_bytes
        check_crc(batches, at, size_bytes)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"a replicated batch begins at {header.base_offset},"
                f" expected was {next_offset} or later",
            )
        next_offset = header.next_offset
        headers.append(header)
        end = at + size_bytes
    if not headers:
        return None
    return PlacedBatches(batches if end == len(batches) else batches[:end], headers)
