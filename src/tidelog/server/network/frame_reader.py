"""Frames out of a stream of bytes, without I/O: bytes go in, whole frames come out.

A frame is four bytes of length and as many bytes of content. Who owns the stream receives into
`room()`, tells `received()` how much came, and gets the frames that are whole.

Where bytes go. Between frames the room is in the arena that all streams of a loop share, and frames
are handed out where they lie. A frame that is not whole yet gets a buffer of its own, sized by what
has arrived and not by what its length claims: a length that lies costs its sender the bytes, not us
the memory. The room then ends with the frame, so that the next read starts at a frame's beginning.
A stream whose last frame was big is read in two steps, a few bytes into the arena and the rest
straight into the frame's buffer, which keeps records from being copied. Views of frames stay valid
for as long as somebody has them.

Who may not go on. Frames are taken one by one, and a frame counts as taken when the next one is
asked for. Who cannot take the frame that it was given closes the iterator: that frame and all
behind it are *held*, in memory of their own, and come again from `held()`. While frames are held
nothing may be received.

            received: no whole frame              received: the rest of it
    between ───────────────────────▶ within frame ────────────────────────▶ between
       │  ▲                                                                    │
       │  └── held(): all were taken ── holding ◀── the iterator was closed ───┤
       └────────────────────────────────────────────── the iterator was closed ┘
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct

from tidelog.protocol.errors import ProtocolError
from tidelog.server.network.receive_buffer import Chunk, ReceiveMemory

_LENGTH = Struct(">i")
_LENGTH_BYTES = 4
_NOTHING = memoryview(b"")

# A thousand small requests in one go would make all other streams wait for them.
_RECEIVED_AT_ONCE_BYTES_MAX = 128 * 1024
_BUFFER_BYTES_MIN = 64 * 1024
_BUFFER_GROWTH = 4
_PROVEN_BYTES_MAX = 8 * 1024 * 1024
_BIG_FRAME_BYTES = 64 * 1024
_FIRST_BYTES_OF_BIG_FRAME = 4096

Frames = Generator[memoryview, None, None]


class FrameReader:
    """One stream's frames. Lengths outside of the limits raise ProtocolError, behind the frames
    before them; too little memory raises ReceiveMemoryError. The stream has to end then."""

    __slots__ = (
        "_buffer",
        "_charged_bytes",
        "_filled_bytes",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_held",
        "_is_closed",
        "_memory",
        "_proven_bytes",
        "_room_end",
        "_size_bytes",
    )

    def __init__(
        self, memory: ReceiveMemory, frame_bytes_max: int, *, frame_bytes_min: int = 0
    ) -> None:
        self._memory = memory
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min
        self._proven_bytes = 0
        """How large the last frame was that came in pieces: the next may well be so again."""
        self._held: memoryview | None = None
        self._is_closed = False
        # Of a frame that is under way, length included. The length is not known before four bytes
        # of it are there; until then the size is that.
        self._buffer: Chunk | None = None
        self._charged_bytes = 0
        self._filled_bytes = 0
        self._size_bytes = 0
        self._room_end = 0

    @property
    def is_holding(self) -> bool:
        """Whether frames are there that could not be taken."""
        return self._held is not None

    @property
    def is_within_frame(self) -> bool:
        """Whether the stream must not end here."""
        return self._buffer is not None

    def room(self) -> memoryview:
        """Where the next bytes of the stream go; never empty."""
        if self._buffer is not None:
            return self._buffer.view[self._filled_bytes : self._room_end]
        if self._proven_bytes >= _BIG_FRAME_BYTES:
            return self._memory.arena.room(_FIRST_BYTES_OF_BIG_FRAME)
        return self._memory.arena.room(_RECEIVED_AT_ONCE_BYTES_MAX)

    def received(self, size_bytes: int) -> Frames:
        """So many bytes were put into the room; gives the frames that are whole now."""
        buffer = self._buffer
        if buffer is None:
            return self._split(self._memory.arena.take(size_bytes), is_shared=True)
        self._filled_bytes = filled_bytes = self._filled_bytes + size_bytes
        if filled_bytes < self._room_end:
            return self._split(_NOTHING, is_shared=False)
        if self._size_bytes == _LENGTH_BYTES:
            self._size_bytes = _LENGTH_BYTES + self._check(_LENGTH.unpack_from(buffer.view)[0])
        if filled_bytes < self._size_bytes:
            self._grow(buffer)
            return self._split(_NOTHING, is_shared=False)
        self._buffer = None
        self._proven_bytes = min(filled_bytes, _PROVEN_BYTES_MAX)
        self._release()
        self._memory.give_back(buffer)
        return self._split(buffer.view[:filled_bytes], is_shared=False)

    def held(self) -> Frames:
        """The frames that could not be taken before."""
        held, self._held = self._held, None
        return self._split(_NOTHING if held is None else held, is_shared=False)

    def close(self) -> None:
        """The stream has ended; whatever is there of frames is given up."""
        self._is_closed = True
        self._buffer = None
        self._held = None
        self._release()

    def _split(self, view: memoryview, *, is_shared: bool) -> Frames:
        """The whole frames at the start of the view; what is behind them is kept.

        The hot loop of every stream: about a third of a microsecond for a frame.
        """
        at, end = 0, len(view)
        try:
            while end - at >= _LENGTH_BYTES:
                (length,) = _LENGTH.unpack_from(view, at)
                if not self._frame_bytes_min <= length <= self._frame_bytes_max:
                    self._check(length)
                frame_end = at + _LENGTH_BYTES + length
                if frame_end > end:
                    break
                yield view[at + _LENGTH_BYTES : frame_end]
                at = frame_end
        except GeneratorExit:
            if not self._is_closed:
                rest = view[at:]
                self._held = memoryview(bytearray(rest)) if is_shared else rest
            raise
        if at < end and not self._is_closed:
            self._begin(view[at:])

    def _check(self, length: int) -> int:
        if not self._frame_bytes_min <= length <= self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {length} bytes, allowed are {self._frame_bytes_min} to "
                f"{self._frame_bytes_max}"
            )
        return length

    def _begin(self, beginning: memoryview) -> None:
        """A frame of which not more than this is there; its length is checked, if it is there."""
        self._filled_bytes = filled_bytes = len(beginning)
        self._size_bytes = _LENGTH_BYTES
        if filled_bytes >= _LENGTH_BYTES:
            self._size_bytes += _LENGTH.unpack_from(beginning)[0]
        buffer = self._take_buffer()
        buffer.view[:filled_bytes] = beginning
        self._buffer = buffer

    def _grow(self, buffer: Chunk) -> None:
        filled_bytes = self._filled_bytes
        grown = self._take_buffer()
        grown.view[:filled_bytes] = buffer.view[:filled_bytes]
        self._buffer = grown
        self._memory.give_back(buffer)

    def _take_buffer(self) -> Chunk:
        grown_bytes = max(
            _BUFFER_BYTES_MIN, _BUFFER_GROWTH * self._filled_bytes, self._proven_bytes
        )
        size_bytes = min(self._size_bytes, grown_bytes)
        buffer = self._memory.take_buffer(size_bytes, self._charged_bytes)
        self._charged_bytes = size_bytes
        self._room_end = min(len(buffer.view), self._size_bytes)
        return buffer

    def _release(self) -> None:
        self._memory.release(self._charged_bytes)
        self._charged_bytes = 0
