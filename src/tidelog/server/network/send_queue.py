"""What is to be sent on a connection: bytes from memory, and ranges of files.

Ranges go by sendfile, or to a reader on this machine as a reference with the file's descriptor.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.protocol.file_reference import SIZE_BYTES, FileReference
from tidelog.server.network.file_passing import PassedSlice
from tidelog.storage.segment.log_slice import FileSlice

if TYPE_CHECKING:
    from tidelog.server.metrics import Metrics
    from tidelog.server.request import Part
    from tidelog.world.network import Transport

_SENT_PER_CALL_BYTES_MAX = 4 * 1024 * 1024
_JOINED_BYTES_MAX = 256 * 1024
_PARTS_PER_CALL_MAX = 64


class SendQueue:
    """The parts that a transport has still to send, in order.

    Many small answers leave with one system call; the bytes ahead of a file range leave in one
    packet with its beginning.
    """

    __slots__ = ("_metrics", "_parts", "_slice_sent_bytes", "_slices", "_transport", "size_bytes")

    def __init__(self, transport: Transport, metrics: Metrics) -> None:
        self._transport = transport
        self._metrics = metrics
        self._parts: deque[Part] = deque()
        self._slices = 0
        self._slice_sent_bytes = 0
        self.size_bytes = 0
        """Bytes that have still to be sent."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def append(self, data: bytes) -> None:
        """Send this too."""
        self._parts.append(data)
        self.size_bytes += len(data)

    def extend(self, parts: list[Part]) -> None:
        """Send these too, some of which may be ranges of files."""
        for part in parts:
            if type(part) is FileSlice:
                self._slices += 1
                self.size_bytes += part.size_bytes
            elif type(part) is PassedSlice:
                self._slices += 1
                self.size_bytes += SIZE_BYTES
            else:
                self.size_bytes += len(part)  # type: ignore[arg-type]
            self._parts.append(part)

    def clear(self) -> None:
        """Forget everything; the files of ranges can be closed then."""
        self._parts.clear()
        self.size_bytes = self._slices = self._slice_sent_bytes = 0

    def send(self) -> int:
        """Send what the socket takes, up to a limit; returns how much. Raises OSError.

        The limit is for the other connections: a big range must not make them wait.
        """
        parts = self._parts
        sent_bytes = 0
        try:
            while parts and sent_bytes < _SENT_PER_CALL_BYTES_MAX:
                if not self._slices:
                    sent_bytes += self._send_all()
                elif type(parts[0]) is FileSlice:
                    sent_bytes += self._send_slice(parts[0])
                elif type(parts[0]) is PassedSlice:
                    sent_bytes += self._pass_slice(parts[0].slice)
                else:
                    sent_bytes += self._send_until_slice()
        except (BlockingIOError, InterruptedError):
            pass
        self.size_bytes -= sent_bytes
        self._metrics.bytes_sent += sent_bytes
        return sent_bytes

    def _send_all(self) -> int:
        """Send the queue, which has no file ranges in it."""
        parts = self._parts
        if len(parts) == 1:
            data = parts[0]
        elif self.size_bytes <= _JOINED_BYTES_MAX:
            # Many small answers: one copy is cheaper than a vector of them.
            data = b"".join(parts)  # type: ignore[arg-type]
            parts.clear()
            parts.append(data)
        else:
            return self._send_until_slice()
        sent_bytes = self._transport.send(data)  # type: ignore[arg-type]
        parts.clear()
        if sent_bytes < len(data):  # type: ignore[arg-type]
            parts.append(memoryview(data)[sent_bytes:])  # type: ignore[arg-type]
        return sent_bytes

    def _send_until_slice(self) -> int:
        """Send the bytes ahead of the next file range, together with it where that can be."""
        gathered: list[bytes | bytearray | memoryview] = []
        has_more = False
        for part in self._parts:
            if type(part) is FileSlice:
                has_more = True
                break
            if type(part) is PassedSlice or len(gathered) == _PARTS_PER_CALL_MAX:
                break
            gathered.append(part)  # type: ignore[arg-type]
        sent_bytes = self._transport.send_gathered(gathered, has_more)
        left_bytes = sent_bytes
        for part in gathered:
            self._parts.popleft()
            if left_bytes < len(part):
                self._parts.appendleft(memoryview(part)[left_bytes:])
                break
            left_bytes -= len(part)
        return sent_bytes

    def _send_slice(self, part: FileSlice) -> int:
        position = part.position + self._slice_sent_bytes
        left_bytes = part.size_bytes - self._slice_sent_bytes
        sent_bytes = self._transport.send_file(
            part.fd, position, min(left_bytes, _SENT_PER_CALL_BYTES_MAX)
        )
        if not sent_bytes and left_bytes:
            raise OSError(0, f"{part.file.path} is shorter than its index says")
        self._metrics.bytes_sent_from_files += sent_bytes
        if sent_bytes < left_bytes:
            self._slice_sent_bytes += sent_bytes
        else:
            self._slice_sent_bytes = 0
            self._slices -= 1
            self._parts.popleft()
        return sent_bytes

    def _pass_slice(self, part: FileSlice) -> int:
        reference = FileReference(part.position, part.size_bytes).encode()
        sent_bytes = self._transport.pass_file(part.fd, reference)
        self._metrics.bytes_passed_as_files += part.size_bytes
        self._slices -= 1
        self._parts.popleft()
        if sent_bytes < len(reference):
            self._parts.appendleft(reference[sent_bytes:])
        return sent_bytes
