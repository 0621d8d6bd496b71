"""Answers to readers on this machine: they get the files of the records, not the bytes.

A fetch is decided as any other, from the high watermark to quotas. Then a descriptor of the segment
goes over the Unix socket with the range that may be read, and neither side copies the records
through a socket. It is open for reading only, and lives on when the segment is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.file_reference import SIZE_BYTES
from tidelog.storage.segment.log_slice import FileSlice

if TYPE_CHECKING:
    from tidelog.protocol.fetch import FetchedPartition


class PassedSlice:
    """A range of a file that is to be passed on: a reference, and the file's descriptor."""

    __slots__ = ("slice",)

    def __init__(self, file_slice: FileSlice) -> None:
        self.slice = file_slice


def pass_files(row: FetchedPartition) -> FetchedPartition:
    """The same row of a fetch with its records passed as a file."""
    if not isinstance(row.records, FileSlice):
        return row
    return row._replace(records=PassedSlice(row.records), records_size=SIZE_BYTES)
