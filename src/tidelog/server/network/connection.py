"""One client's connection: frames in, answers out in the order of the requests.

Receiving. Small frames are received into the arena all connections share and processed where they
lie. A frame that is not whole yet gets a buffer of its own that grows as its bytes arrive, so a
length that lies costs its sender the bytes it claims, not us. Once such a frame is whole the next
read starts at a frame's beginning, and a connection that sends big frames is read in two steps
(first bytes, then straight into the frame's buffer), which keeps records from being copied.

Order. As in Kafka a connection has one request at work at a time, with one exception: produce
requests behind a produce request that only waits for durability are processed at once, so that one
fdatasync serves them all. Answers leave in the order of the requests in any case. What has been
received and must wait is the backlog; while there is one, the socket is not read.

Sending. Answers collect until the turn ends and leave with one system call where they fit; ranges
of segment files go by sendfile, or to a reader on this machine by their descriptors. A client that
does not read stops being read from when `_OUTGOING_BYTES_MAX` wait for it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.server.network.send_queue import SendQueue
from tidelog.server.request import Deferred, Part, RawResponse, Request
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE

if TYPE_CHECKING:
    from tidelog.protocol.produce import ProduceShape
    from tidelog.server.network.connections import Connections
    from tidelog.server.network.listener import Listener
    from tidelog.server.network.receive_buffer import Chunk
    from tidelog.world.network import Transport

_PRODUCE = int(ApiKey.PRODUCE)
_LENGTH = Struct(">i")
_LENGTH_AND_API_KEY = Struct(">ih")
_REQUEST_BYTES_MIN = 8

_RECEIVED_PER_TURN_BYTES_MAX = 128 * 1024
_OUTGOING_BYTES_MAX = 1024 * 1024
_PENDING_REQUESTS_MAX = 1000
_PENDING_BYTES_MAX = 32 * 1024 * 1024

_FRAME_BUFFER_BYTES_MIN = 64 * 1024
_PROVEN_FRAME_BYTES_MAX = 8 * 1024 * 1024
_BIG_FRAME_BYTES = 64 * 1024
_FIRST_BYTES_OF_BIG_FRAME = 4096

ANONYMOUS = "ANONYMOUS"


class Connection:
    """A client's socket with what was received and what is to be sent."""

    __slots__ = (
        "_backlog",
        "_ends_after_backlog",
        "_events",
        "_exclusive",
        "_fd",
        "_frame",
        "_frame_filled_bytes",
        "_frame_size_bytes",
        "_is_dirty",
        "_outgoing",
        "_pending",
        "_pending_bytes",
        "_proven_frame_bytes",
        "_resume_is_due",
        "_shared",
        "_transport",
        "client_id",
        "client_id_bytes",
        "client_software_name",
        "client_software_version",
        "closed",
        "frame_charged_bytes",
        "id",
        "last_active",
        "listener",
        "passes_files",
        "peer_host",
        "peer_port",
        "principal",
        "produce_shape",
        "throttled_until",
    )

    def __init__(
        self,
        transport: Transport,
        peer: tuple[str, int],
        listener: Listener,
        shared: Connections,
        identifier: int,
        *,
        passes_files: bool = False,
    ) -> None:
        self.id = identifier
        self.peer_host, self.peer_port = peer
        self.listener = listener
        self.passes_files = passes_files
        """Whether fetches are answered with files, not with their bytes."""
        self.principal = ANONYMOUS
        self.produce_shape: ProduceShape | None = None
        """How the produce request before was made, apart from its partition and records."""
        self.client_id: str | None = None
        self.client_id_bytes = b""
        self.client_software_name = ""
        self.client_software_version = ""
        self.closed = False
        self.last_active = shared.reactor.now
        self.throttled_until = 0.0

        self._shared = shared
        self._transport = transport
        self._fd = transport.fd
        self._events = READABLE

        self._frame: Chunk | None = None
        self.frame_charged_bytes = 0
        self._frame_filled_bytes = 0
        self._frame_size_bytes = 0
        self._proven_frame_bytes = 0
        self._backlog: memoryview | None = None
        self._ends_after_backlog = False
        self._resume_is_due = False

        self._pending: deque[Deferred] = deque()
        self._pending_bytes = 0
        self._exclusive = False

        self._outgoing = SendQueue(transport, shared.metrics)
        self._is_dirty = False

        shared.reactor.register(self._fd, self.on_ready, READABLE)

    @property
    def peer(self) -> str:
        """The client's address, for log lines."""
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def is_busy(self) -> bool:
        """Whether requests or answers of this connection are under way."""
        return bool(self._pending or self._outgoing or self._backlog is not None)

    @property
    def is_answering(self) -> bool:
        """Whether there are answers that are to leave, at the end of this turn or later."""
        return self._is_dirty or bool(self._outgoing)

    @property
    def is_sending(self) -> bool:
        """Whether there are answers that the client has not taken yet."""
        return bool(self._outgoing)

    def on_ready(self, ready: int) -> None:
        """The socket has something to read, room to write, or an end."""
        if ready & WRITABLE:
            self.flush()
            if self.closed:
                return
        if ready & READABLE and self._events & READABLE:
            self._receive()
        elif ready & BROKEN:
            self.close("connection reset")
        elif ready & PEER_CLOSED:
            # What came before the end is still owed: acks=0 records, for one. But nobody is there
            # any more to wait for what may take long.
            self._ends_after_backlog = True
            self._watch(self._events & ~PEER_CLOSED)
            for deferred in self._pending:
                self._give_up_if_exclusive(deferred)
            self._mark_dirty()

    def close(self, reason: str) -> None:
        """End the connection and give up what it waits for."""
        if self.closed:
            return
        self.closed = True
        shared = self._shared
        shared.reactor.unregister(self._fd)
        self._transport.close()
        pending = self._pending
        shared.release(len(pending), self._pending_bytes)
        shared.release_frame_buffer(self)
        self._pending = deque()
        self._outgoing.clear()
        self._backlog = None
        self._frame = None
        shared.remove(self, reason)
        for deferred in pending:
            deferred.give_up()

    # Receiving

    def _receive(self) -> None:
        if self._frame is not None:
            self._receive_frame(self._frame)
            return
        shared = self._shared
        arena = shared.arena
        room = arena.room()
        if self._proven_frame_bytes >= _BIG_FRAME_BYTES:
            room = room[:_FIRST_BYTES_OF_BIG_FRAME]
        elif len(room) > _RECEIVED_PER_TURN_BYTES_MAX:
            # A thousand small requests in one go would make all other clients wait for them.
            room = room[:_RECEIVED_PER_TURN_BYTES_MAX]
        received = self._receive_into(room)
        if received:
            consumed = self._process(room, received)
            if consumed < received and not self.closed:
                self._keep_rest(room[consumed:received])
            del room
            arena.settle(received)

    def _receive_into(self, room: memoryview) -> int:
        try:
            received = self._transport.receive_into(room)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(f"receive failed: {error.strerror}")
            return 0
        if not received:
            self.close("closed by peer")
            return 0
        shared = self._shared
        shared.metrics.bytes_received += received
        self.last_active = shared.reactor.now
        return received

    def _process(self, view: memoryview, end: int) -> int:
        """Dispatch the whole frames at the start of `view[:end]`; returns where the rest begins."""
        shared = self._shared
        at = 0
        while end - at >= 4:
            (size_bytes,) = _LENGTH.unpack_from(view, at)
            if not _REQUEST_BYTES_MIN <= size_bytes <= shared.request_bytes_max:
                self._refuse_length(size_bytes)
                return end
            frame_end = at + 4 + size_bytes
            if frame_end > end:
                break
            if (
                self._pending
                or self._outgoing.size_bytes > _OUTGOING_BYTES_MAX
                or self.throttled_until
                or shared.is_over_budget
            ) and self._must_wait(view, at):
                break
            shared.dispatch(self, view[at + 4 : frame_end])
            if self.closed:
                return end
            at = frame_end
        return at

    def _refuse_length(self, size_bytes: int) -> None:
        self._shared.metrics.malformed_frames += 1
        self.close(
            f"a frame of {size_bytes} bytes, allowed are {_REQUEST_BYTES_MIN} to "
            f"{self._shared.request_bytes_max} (socket.request.max.bytes)"
        )

    def _must_wait(self, view: memoryview, at: int) -> bool:
        """Whether the frame at `at` has to wait for what is under way."""
        shared = self._shared
        if shared.is_over_budget:
            shared.wait_for_budget(self)
            return True
        if (
            self.throttled_until > shared.reactor.now
            or self._outgoing.size_bytes > _OUTGOING_BYTES_MAX
        ):
            return True
        if not self._pending:
            return False
        return (
            self._exclusive
            or len(self._pending) >= _PENDING_REQUESTS_MAX
            or self._pending_bytes >= _PENDING_BYTES_MAX
            or _LENGTH_AND_API_KEY.unpack_from(view, at)[1] != _PRODUCE
        )

    def _keep_rest(self, rest: memoryview) -> None:
        """Copy what could not be processed: requests that wait, or the start of a frame."""
        if _starts_with_frame(rest):
            self._keep_backlog(memoryview(bytearray(rest)))
        else:
            self._start_frame(rest)

    def _keep_backlog(self, backlog: memoryview) -> None:
        self._backlog = backlog
        self._watch((self._events & ~READABLE) | PEER_CLOSED)

    def _start_frame(self, rest: memoryview) -> None:
        filled_bytes = len(rest)
        self._frame_size_bytes = 4 if filled_bytes < 4 else 4 + _LENGTH.unpack_from(rest)[0]
        chunk = self._frame_buffer(filled_bytes)
        if chunk is not None:
            chunk.view[:filled_bytes] = rest
            self._frame = chunk
            self._frame_filled_bytes = filled_bytes

    def _frame_buffer(self, filled_bytes: int) -> Chunk | None:
        """Memory for the frame under way, sized by what arrived and not by what is claimed."""
        grown_bytes = max(_FRAME_BUFFER_BYTES_MIN, 4 * filled_bytes, self._proven_frame_bytes)
        return self._shared.frame_buffer(self, min(self._frame_size_bytes, grown_bytes))

    def _receive_frame(self, chunk: Chunk) -> None:
        filled_bytes = self._frame_filled_bytes
        room_end = min(len(chunk.view), self._frame_size_bytes)
        received = self._receive_into(chunk.view[filled_bytes:room_end])
        if not received:
            return
        self._frame_filled_bytes = filled_bytes = filled_bytes + received
        if filled_bytes < room_end:
            return
        if filled_bytes == 4 == self._frame_size_bytes:
            (size_bytes,) = _LENGTH.unpack_from(chunk.view)
            if not _REQUEST_BYTES_MIN <= size_bytes <= self._shared.request_bytes_max:
                self._refuse_length(size_bytes)
                return
            self._frame_size_bytes = 4 + size_bytes
        if filled_bytes < self._frame_size_bytes:
            self._grow_frame(chunk, filled_bytes)
            return
        self._frame = None
        self._proven_frame_bytes = min(filled_bytes, _PROVEN_FRAME_BYTES_MAX)
        self._process_frame(chunk, filled_bytes)

    def _grow_frame(self, chunk: Chunk, filled_bytes: int) -> None:
        grown = self._frame_buffer(filled_bytes)
        if grown is None:
            return
        grown.view[:filled_bytes] = chunk.view[:filled_bytes]
        self._frame = grown
        self._shared.spare_chunks.give_back(chunk)

    def _process_frame(self, chunk: Chunk, size_bytes: int) -> None:
        shared = self._shared
        shared.release_frame_buffer(self)
        if not self._process(chunk.view, size_bytes):
            self._keep_backlog(chunk.view[:size_bytes])
        shared.spare_chunks.give_back(chunk)

    def resume(self) -> None:
        """Go on with the backlog: something it may have waited for has happened."""
        if self._backlog is not None and not self._resume_is_due:
            self._resume_is_due = True
            # Not at once: the caller may be deep in another connection's request.
            self._shared.reactor.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._resume_is_due = False
        backlog = self._backlog
        if backlog is None or self.closed:
            return
        self._backlog = None
        size_bytes = len(backlog)
        consumed = self._process(backlog, size_bytes)
        if self.closed:
            return
        rest = backlog[consumed:]
        if _starts_with_frame(rest):
            self._backlog = rest
            return
        if rest:
            self._start_frame(rest)
            if self.closed:
                return
        if self._ends_after_backlog:
            self._end_when_answered()
        else:
            self._watch((self._events | READABLE) & ~PEER_CLOSED)

    def _end_when_answered(self) -> None:
        if not self._pending:
            self.flush()
            self.close("closed by peer")

    def throttle(self, throttle_ms: int) -> None:
        """Read nothing more from the client for this long."""
        shared = self._shared
        shared.metrics.throttled_ms += throttle_ms
        until = shared.reactor.now + throttle_ms / 1000
        if until <= self.throttled_until:
            return  # another quota holds it off for longer
        self.throttled_until = until
        shared.reactor.call_later(throttle_ms / 1000 + 0.001, self._end_throttle)

    def _end_throttle(self) -> None:
        if self.throttled_until <= self._shared.reactor.now:
            self.throttled_until = 0.0
            self.resume()

    # Answers

    def respond(self, request: Request, response: bytes) -> None:
        """Answer with one frame, behind the answers of earlier requests."""
        if self._pending:
            self._append_ready(request, response)
            return
        self._outgoing.append(response)
        if not self._is_dirty:
            self._is_dirty = True
            self._shared.dirty.append(self)

    def respond_in_parts(self, request: Request, response: RawResponse) -> None:
        """Answer with a frame whose parts may be ranges of files."""
        if self._pending:
            self._append_ready(request, response.parts)
        else:
            self._outgoing.extend(response.parts)
            self._mark_dirty()

    def wait_for(self, deferred: Deferred) -> None:
        """A handler promised an answer for later (or has given it already)."""
        size_bytes = deferred.request.size_bytes
        self._pending.append(deferred)
        self._pending_bytes += size_bytes
        self._shared.acquire(size_bytes)
        if deferred.is_exclusive:
            self._exclusive = True
            if self._ends_after_backlog:
                self._give_up_if_exclusive(deferred)
        if deferred.ready:
            self._mark_dirty()

    def _give_up_if_exclusive(self, deferred: Deferred) -> None:
        if deferred.is_exclusive and not deferred.ready:
            deferred.give_up()
            deferred.ready = True

    def answer_deferred(self, deferred: Deferred, parts: bytes | list[Part] | None) -> None:
        """The answer of a promise: a frame or its parts; None for no answer at all.

        It is put out at the end of the turn, with those of the requests behind it.
        """
        assert not deferred.ready, "a request is answered once"
        deferred.ready = True
        deferred.parts = parts
        if not self._is_dirty:
            self._is_dirty = True
            self._shared.dirty.append(self)

    def _mark_dirty(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._shared.dirty.append(self)

    def _append_ready(self, request: Request, parts: bytes | list[Part]) -> None:
        deferred = Deferred(request, is_exclusive=False)
        deferred.ready = True
        deferred.parts = parts
        self.wait_for(deferred)

    def _put_out_pending(self) -> None:
        """Put out the answers that are there, up to the first that is not."""
        pending = self._pending
        outgoing = self._outgoing
        released_bytes = 0
        released_count = 0
        while pending and pending[0].ready:
            deferred = pending.popleft()
            released_count += 1
            released_bytes += deferred.request.size_bytes
            parts = deferred.parts
            if type(parts) is bytes:
                outgoing.append(parts)
            elif parts is not None:
                outgoing.extend(parts)  # type: ignore[arg-type]
        if not released_count:
            return
        self._pending_bytes -= released_bytes
        if not pending:
            self._exclusive = False
        self._shared.release(released_count, released_bytes)
        if self._backlog is not None:
            self.resume()
        elif self._ends_after_backlog:
            self._shared.reactor.call_soon(self._end_when_answered)

    # Sending

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        self._is_dirty = False
        if self.closed:
            return
        if self._pending:
            self._put_out_pending()
        outgoing = self._outgoing
        try:
            sent_bytes = outgoing.send()
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return
        if sent_bytes:
            self.last_active = self._shared.reactor.now
        if outgoing:
            self._watch(self._events | WRITABLE)
        elif self._events & WRITABLE:
            self._watch(self._events & ~WRITABLE)
        if self._backlog is not None and outgoing.size_bytes <= _OUTGOING_BYTES_MAX:
            self.resume()

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._shared.reactor.modify(self._fd, events)


def _starts_with_frame(view: memoryview) -> bool:
    size_bytes = len(view)
    return size_bytes >= 4 and size_bytes >= 4 + int(_LENGTH.unpack_from(view)[0])
