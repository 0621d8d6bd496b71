"""Frames out of a stream of bytes, without I/O.

A frame is four bytes of length and as many bytes of content. Small frames are taken out of a buffer
that is used again; a large one gets a buffer of its own and the rest of it is received straight
into that, so that its bytes are copied once at most. The views that are handed out stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidelog.protocol.errors import ProtocolError

_LENGTH = Struct(">i")
_ROOM_BYTES = 64 * 1024


class FrameReader:
    """Give `room()` to a receive and the number of bytes that came to `received`."""

    __slots__ = ("_filled_bytes", "_frame", "_room", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._frame: memoryview | None = None  # the content of a large frame, still incomplete
        self._filled_bytes = 0  # of the frame, or of the room

    @property
    def is_within_frame(self) -> bool:
        """Whether the stream must not end here."""
        return self._frame is not None or self._filled_bytes > 0

    def room(self) -> memoryview:
        """Where the next bytes of the stream go."""
        return (self._room if self._frame is None else self._frame)[self._filled_bytes :]

    def received(self, size_bytes: int) -> Iterator[memoryview]:
        """So many bytes were put into the room; gives the frames that are whole now.

        Raises ProtocolError for a length that cannot be.
        """
        self._filled_bytes += size_bytes
        if self._frame is not None:
            if self._filled_bytes == len(self._frame):
                frame, self._frame = self._frame, None
                self._filled_bytes = 0
                yield frame
            return
        room, end, at = self._room, self._filled_bytes, 0
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(room, at)
            if not 0 <= length <= self.frame_bytes_max:
                raise ProtocolError(
                    f"a frame of {length} bytes; allowed are 0 to {self.frame_bytes_max}"
                )
            if end - at - 4 < length:
                if 4 + length > len(room):
                    self._begin_large(length, room[at + 4 : end])
                    return
                break
            yield memoryview(bytes(room[at + 4 : at + 4 + length]))
            at += 4 + length
        # What is left is less than a frame: to the front, so that the rest of it has room.
        rest = bytes(room[at:end])
        room[: len(rest)] = rest
        self._filled_bytes = len(rest)

    def _begin_large(self, length: int, beginning: memoryview) -> None:
        self._frame = memoryview(bytearray(length))
        self._frame[: len(beginning)] = beginning
        self._filled_bytes = len(beginning)
