"""Reads the log of a replica behind its node's back, without the faults that its disk has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tidelog.protocol.record_batch import BatchHeader, iterate_headers
from tidelog.storage.log import Log
from tidelog.storage.segment.segment import Segment
from tidelog.testing.simulation.node import SimulatedNode


class LogReader:
    """Reads one log forward, from where it stopped the last time if the files are still the same.

    What a check costs then is what the log has grown by, not what it has.
    """

    __slots__ = ("_offset", "_position", "_segment", "_truncations", "_which", "log")

    def __init__(self, which: SimulatedNode, log: Log) -> None:
        self.log = log
        self._which = which
        self._segment: Segment | None = None
        self._position = 0
        self._offset = 0
        self._truncations = 0

    def read(self, begin: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches that begin from `begin` on and before `end`, as far as they are written."""
        log = self.log
        if log.local._truncation_count != self._truncations:
            self._truncations, self._segment = log.local._truncation_count, None
        segments = log.segments
        first = bisect_right(segments, begin, key=lambda segment: segment.base_offset) - 1
        for segment in segments[max(first, 0) :]:
            is_known = segment is self._segment and self._offset <= begin
            start = self._position if is_known else 0
            content = memoryview(self._which.disk.read(segment.path, start))
            for at, header in iterate_headers(content[: segment.size_bytes - start]):
                batch_end = at + header.size_bytes
                if header.base_offset >= end:
                    return
                self._segment, self._position = segment, start + batch_end
                self._offset = header.next_offset
                if header.base_offset >= begin:
                    yield header, content[at:batch_end]
