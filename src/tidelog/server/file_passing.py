"""Answers to readers on this machine: they get the files of the records, not the bytes.

A fetch is decided as any other, from the high watermark to quotas. Then a descriptor of the segment
goes over the Unix socket with the range that may be read, and neither side copies the records
through a socket. It is open for reading only, and lives on when the segment is deleted.
"""

from __future__ import annotations

import os
import socket
from array import array
from collections import deque
from typing import TYPE_CHECKING

from tidelog.protocol.file_reference import SIZE_BYTES, FileReference
from tidelog.storage.log_slice import FileSlice

if TYPE_CHECKING:
    from tidelog.protocol.fetch import FetchedPartition
    from tidelog.server.metrics import Metrics
    from tidelog.server.request import Part

_SENT_PER_CALL_BYTES_MAX = 256 * 1024
_PARTS_PER_CALL_MAX = 64


class PassedSlice:
    """A range of a file that is to be passed on by its descriptor."""

    __slots__ = ("slice",)

    def __init__(self, file_slice: FileSlice) -> None:
        self.slice = file_slice


def pass_files(row: FetchedPartition) -> FetchedPartition:
    """The same row of a fetch with its records passed as a file."""
    if not isinstance(row.records, FileSlice):
        return row
    return row._replace(records=PassedSlice(row.records), records_size=SIZE_BYTES)


class FilePassingQueue:
    """The parts that a Unix socket has still to send, in order: a `SendQueue` for files."""

    __slots__ = ("_metrics", "_parts", "_socket", "size_bytes")

    def __init__(self, sock: socket.socket, metrics: Metrics) -> None:
        self._socket = sock
        self._metrics = metrics
        self._parts: deque[Part] = deque()
        self.size_bytes = 0
        """Bytes that have still to be sent."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def append(self, data: bytes) -> None:
        """Send this too."""
        self._parts.append(data)
        self.size_bytes += len(data)

    def extend(self, parts: list[Part]) -> None:
        """Send these too, some of which may be files."""
        for part in parts:
            self._parts.append(part)
            self.size_bytes += SIZE_BYTES if isinstance(part, PassedSlice) else len(part)  # type: ignore[arg-type]

    def clear(self) -> None:
        """Forget everything; the files can be closed then."""
        self._parts.clear()

    def send(self) -> int:
        """Send what the socket takes, up to a limit; returns how much. Raises OSError."""
        sent_bytes = 0
        try:
            while self._parts and sent_bytes < _SENT_PER_CALL_BYTES_MAX:
                first = self._parts[0]
                if isinstance(first, PassedSlice):
                    sent_bytes += self._pass(first.slice)
                else:
                    sent_bytes += self._send_until_file()
        except (BlockingIOError, InterruptedError):
            pass
        self.size_bytes -= sent_bytes
        self._metrics.bytes_sent += sent_bytes
        return sent_bytes

    def _pass(self, part: FileSlice) -> int:
        reference = FileReference(part.position, part.size_bytes).encode()
        # Opened anew, for the node's own descriptor may be written to.
        fd = os.open(f"/proc/self/fd/{part.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))
            sent_bytes = self._socket.sendmsg((reference,), (rights,))
        finally:
            os.close(fd)
        self._metrics.bytes_passed_as_files += part.size_bytes
        self._parts.popleft()
        if sent_bytes < len(reference):
            self._parts.appendleft(reference[sent_bytes:])
        return sent_bytes

    def _send_until_file(self) -> int:
        gathered: list[bytes | bytearray | memoryview] = []
        for part in self._parts:
            if isinstance(part, PassedSlice) or len(gathered) == _PARTS_PER_CALL_MAX:
                break
            gathered.append(part)  # type: ignore[arg-type]
        sent_bytes = self._socket.sendmsg(gathered)
        left_bytes = sent_bytes
        for part in gathered:
            self._parts.popleft()
            if left_bytes < len(part):
                self._parts.appendleft(memoryview(part)[left_bytes:])
                break
            left_bytes -= len(part)
        return sent_bytes
