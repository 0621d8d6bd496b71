"""Where received bytes land: chunks that are used again as soon as nobody looks at them.

Records are never copied between the socket and the journal: the produce path works on views into
the chunk they were received into, and the journal may hold such a view until it has written it. So
a chunk is written to again only when no view of it is left. Python knows: a bytearray refuses to
change its length while views of it exist, and asking for that costs a quarter of a microsecond.

One arena serves all connections of a loop (5,000 idle connections need no memory for receiving):
bytes are received behind the part that is still looked at, and a new chunk is taken when the rest
of this one is short.
"""

from __future__ import annotations

from collections import deque
from math import inf

from tidelog.errors import TidelogError

CHUNK_BYTES = 256 * 1024
_ROOM_BYTES_MIN = 64 * 1024
_SPARE_CHUNKS_MAX = 16
_SPARE_CHUNK_BYTES_MIN = 16 * 1024
_SPARE_BYTES_MAX = 32 * 1024 * 1024
_BUFFER_KEPT_TIMES_MAX = 4


class Chunk:
    """A bytearray with a view of all of it."""

    __slots__ = ("buffer", "view")

    def __init__(self, size_bytes: int) -> None:
        self.buffer = bytearray(size_bytes)
        self.view = memoryview(self.buffer)

    def is_free(self) -> bool:
        """Whether no view but our own is left."""
        self.view.release()
        try:
            self.buffer.pop()
        except BufferError:
            return False
        else:
            self.buffer.append(0)
            return True
        finally:
            self.view = memoryview(self.buffer)


class SpareChunks:
    """Chunks given back while views of them may still exist; taken again when those are gone."""

    def __init__(self, *, chunks_max: int = _SPARE_CHUNKS_MAX, bytes_max: int = _SPARE_BYTES_MAX):
        self._chunks: deque[Chunk] = deque()
        self._chunks_max = chunks_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def give_back(self, chunk: Chunk) -> None:
        """Keep the chunk for later use, unless there are enough or it is soon made anew."""
        size_bytes = len(chunk.view)
        if (
            size_bytes >= _SPARE_CHUNK_BYTES_MIN
            and len(self._chunks) < self._chunks_max
            and self._bytes + size_bytes <= self._bytes_max
        ):
            self._chunks.append(chunk)
            self._bytes += size_bytes

    def take(self, size_bytes: int, *, size_bytes_max: int) -> Chunk:
        """A chunk of at least `size_bytes`; a kept one only if not above `size_bytes_max`."""
        chunks = self._chunks
        for _ in range(len(chunks)):
            chunk = chunks.popleft()
            if size_bytes <= len(chunk.view) <= size_bytes_max and chunk.is_free():
                self._bytes -= len(chunk.view)
                return chunk
            chunks.append(chunk)
        return Chunk(size_bytes)


class ReceiveArena:
    """The memory that small frames of all connections are received into."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._spare = SpareChunks()
        self._chunk = Chunk(chunk_bytes)
        self._position = 0
        self._taken_bytes = 0

    def room(self, size_bytes_max: int) -> memoryview:
        """Memory to receive into; say with `take` how much of it was used."""
        if self._taken_bytes:
            self._move_on()
        position = self._position
        return self._chunk.view[position : position + size_bytes_max]

    def take(self, size_bytes: int) -> memoryview:
        """The bytes that were received into the room. They stay as they are for as long as
        somebody has a view of them."""
        self._taken_bytes = size_bytes
        position = self._position
        return self._chunk.view[position : position + size_bytes]

    def _move_on(self) -> None:
        """To the next room: the same memory, unless what was taken is still looked at."""
        taken_bytes, self._taken_bytes = self._taken_bytes, 0
        if self._chunk.is_free():
            self._position = 0
            return
        # Multiples of 64: what the processor writes next is another cache line.
        self._position += (taken_bytes + 63) & ~63
        if self._chunk_bytes - self._position < _ROOM_BYTES_MIN:
            self._spare.give_back(self._chunk)
            self._chunk = self._spare.take(self._chunk_bytes, size_bytes_max=self._chunk_bytes)
            self._position = 0


class ReceiveMemoryError(TidelogError):
    """Frames under way take all the memory that they may have together."""


class ReceiveMemory:
    """What frames are received into: an arena for those that come whole, buffers for the others.

    The buffers of frames under way are limited together. They are charged to the one who asked for
    them: `take_buffer` replaces the charge, `release` takes it off.
    """

    __slots__ = ("_buffers_bytes_max", "_spare", "arena", "buffers_bytes")

    def __init__(self, buffers_bytes_max: float = inf, *, arena_bytes: int = CHUNK_BYTES) -> None:
        self.arena = ReceiveArena(arena_bytes)
        self.buffers_bytes = 0
        """Of frames that are under way."""
        self._buffers_bytes_max = buffers_bytes_max
        self._spare = SpareChunks()

    def take_buffer(self, size_bytes: int, charged_bytes: int) -> Chunk:
        """A buffer of at least this size, by one who has been charged `charged_bytes` for the
        smaller one that it replaces. Raises ReceiveMemoryError."""
        buffers_bytes = self.buffers_bytes + size_bytes - charged_bytes
        if buffers_bytes > self._buffers_bytes_max:
            raise ReceiveMemoryError(
                f"{size_bytes} bytes for a frame that arrives in pieces would make "
                f"{buffers_bytes} for all such frames; allowed are {self._buffers_bytes_max:.0f}"
            )
        self.buffers_bytes = buffers_bytes
        return self._spare.take(size_bytes, size_bytes_max=_BUFFER_KEPT_TIMES_MAX * size_bytes)

    def release(self, charged_bytes: int) -> None:
        """The frame is whole, or given up."""
        self.buffers_bytes -= charged_bytes

    def give_back(self, buffer: Chunk) -> None:
        """To be used again, once nobody looks at it."""
        self._spare.give_back(buffer)
