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

CHUNK_BYTES = 256 * 1024
_ROOM_BYTES_MIN = 64 * 1024
_SPARE_CHUNKS_MAX = 16
_SPARE_BYTES_MAX = 32 * 1024 * 1024


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
        """Keep the chunk for later use, unless there are enough."""
        size_bytes = len(chunk.view)
        if len(self._chunks) < self._chunks_max and self._bytes + size_bytes <= self._bytes_max:
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

    def room(self) -> memoryview:
        """Memory to receive into; say with `settle` how much of it was used."""
        return self._chunk.view[self._position :]

    def settle(self, used_bytes: int) -> None:
        """The bytes at the start of the room are processed; views of them may be kept.

        The caller has let go of its own views, the room included.
        """
        if self._chunk.is_free():
            self._position = 0
            return
        # Multiples of 64: what the processor writes next is another cache line.
        self._position += (used_bytes + 63) & ~63
        if self._chunk_bytes - self._position < _ROOM_BYTES_MIN:
            self._spare.give_back(self._chunk)
            self._chunk = self._spare.take(self._chunk_bytes, size_bytes_max=self._chunk_bytes)
            self._position = 0
