"""One client's connection: its transport, its frames, its requests and its answers, on the reactor.

What it is made of decides; it only ties them together. `frame_reader.py` makes frames of what is
received, `pipeline.py` starts requests and brings their answers into order, and `send_queue.py` has
what is to be sent. Requests that may not start yet are held by the frame reader, and while it
holds any the transport is not read: a client that sends too much has its own buffers filled.
Answers collect until the turn ends and leave with one system call where they fit.

How a connection ends. A client may end its side of the stream and still read: it gets the answers
to all that it sent, and then the connection is closed. So it is in Kafka, which does not look at a
connection before it has answered the request before. But a client that is gone looks the same until
something is sent to it, so the waiting has a limit: a connection on which nothing moves for
`socket.unread.timeout.ms` after that is *abandoned*. Then whatever waits is given up and what the
client had sent is still processed. A client that resets the connection is gone for certain, and its
connection abandoned at once: as in Kafka, what it sent before counts, and is read to the end.

                 the peer has ended            nothing moves        all is processed
                 its side of the stream        for too long         or answered
        open ──────────────────────────▶ left ─────────────▶ abandoned ─────────────▶ closed
          ├──────────────────────────────────────────────────▶ ▲                        ▲
          │        reset, while requests are held                                       │
          └── malformed frame, limit, idle, end of the node ────────────────────────────┘

The end is seen in one of two ways: by receiving it, or, while the connection is not read, by an
event of its own. In the latter case there may be more to receive ahead of the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ProtocolError
from tidelog.server.network.frame_reader import FrameReader
from tidelog.server.network.pipeline import OUTGOING_BYTES_MAX, Hold, Pipeline
from tidelog.server.network.receive_buffer import ReceiveMemoryError
from tidelog.server.network.send_queue import SendQueue
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE

if TYPE_CHECKING:
    from tidelog.protocol.produce import ProduceShape
    from tidelog.server.network.connections import Connections
    from tidelog.server.network.frame_reader import Frames
    from tidelog.server.network.listener import Listener
    from tidelog.world.network import Transport

_REQUEST_BYTES_MIN = 8

ANONYMOUS = "ANONYMOUS"

_ENDED_BY_ABANDONING = (Hold.ORDER, Hold.PENDING, Hold.OUTGOING)
"""What keeps requests from starting only because answers are waited for, or not read."""


class Connection:
    """A client's transport with what was received and what is to be sent.

    `respond`, `respond_in_parts`, `wait_for` and `answer_deferred` are the pipeline's own.
    """

    __slots__ = (
        "_events",
        "_frames",
        "_has_ended",
        "_hold",
        "_is_lost",
        "_outgoing",
        "_pipeline",
        "_resume_is_due",
        "_shared",
        "_throttled_until",
        "_transport",
        "answer_deferred",
        "client_id",
        "client_id_bytes",
        "client_software_name",
        "client_software_version",
        "closed",
        "has_left",
        "id",
        "last_active",
        "listener",
        "on_closed",
        "passes_files",
        "peer_host",
        "peer_port",
        "principal",
        "produce_shape",
        "respond",
        "respond_in_parts",
        "wait_for",
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
        self.on_closed: Callable[[], None] | None = None
        """Who wants to hear when the connection ends."""
        self.has_left = False
        """Whether the client has ended its side of the stream, which may have more to receive."""
        self.last_active = shared.reactor.now

        self._shared = shared
        self._transport = transport
        self._events = READABLE
        self._has_ended = False  # all that the client sent is received
        self._is_lost = False  # the client reads nothing any more, and has sent all it ever will
        self._hold: Hold | None = None  # why frames are held, if there are any
        self._resume_is_due = False
        self._throttled_until = 0.0

        self._frames = FrameReader(
            shared.memory, shared.request_bytes_max, frame_bytes_min=_REQUEST_BYTES_MIN
        )
        self._outgoing = SendQueue(transport, shared.metrics)
        self._pipeline = pipeline = Pipeline(
            partial(shared.dispatch, self),
            self._outgoing,
            shared.budget,
            partial(shared.dirty.append, self),
        )
        self.respond = pipeline.respond
        self.respond_in_parts = pipeline.respond_in_parts
        self.wait_for = pipeline.wait_for
        self.answer_deferred = pipeline.answer_deferred

        transport.attach(shared.reactor, self.on_ready, READABLE)

    @property
    def peer(self) -> str:
        """The client's address, for log lines."""
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def is_busy(self) -> bool:
        """Whether requests or answers of this connection are under way."""
        return bool(self._pipeline.pending or self._outgoing or self._hold)

    @property
    def is_answering(self) -> bool:
        """Whether there are answers that are to leave, at the end of this turn or later."""
        return self._pipeline.is_announced or bool(self._outgoing)

    @property
    def is_sending(self) -> bool:
        """Whether there are answers that the client has not taken yet."""
        return bool(self._outgoing)

    def on_ready(self, ready: int) -> None:
        """The transport has something to read, room to write, or an end."""
        if ready & WRITABLE:
            self.flush()
            if self.closed:
                return
        if ready & READABLE and self._events & READABLE:
            self._receive()
        elif ready & BROKEN:
            self._lose("connection reset")
        elif ready & PEER_CLOSED:
            self._leave()

    def close(self, reason: str) -> None:
        """End the connection and give up what it waits for."""
        if self.closed:
            return
        self.closed = True
        shared = self._shared
        self._transport.close()
        self._frames.close()
        self._outgoing.clear()
        shared.remove(self, reason)
        self._pipeline.close()
        if self.on_closed is not None:
            # Not at once: the caller may be deep in something else.
            shared.reactor.call_soon(self.on_closed)

    # Receiving

    def _receive(self) -> None:
        room = self._frames.room()
        try:
            received = self._transport.receive_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error.strerror}")
            return
        if not received:
            self._leave()
            self._has_ended = True
            self._end_when_answered()
            return
        shared = self._shared
        shared.metrics.bytes_received += received
        self.last_active = shared.reactor.now
        try:
            frames = self._frames.received(received)
        except (ProtocolError, ReceiveMemoryError) as error:
            self._refuse(error)
        else:
            self._process(frames)

    def _process(self, frames: Frames) -> None:
        try:
            self._hold = hold = self._pipeline.process(frames)
        except (ProtocolError, ReceiveMemoryError) as error:
            self._refuse(error)
            return
        except Exception:
            # A bug: whatever state it has left, the order of answers can not be relied upon.
            self.close("a request failed")
            raise
        if hold is not None:
            if self._is_lost and hold not in _ENDED_BY_ABANDONING:
                self.close("connection reset")
                return
            self._watch(self._events & ~READABLE | (0 if self.has_left else PEER_CLOSED))
            if hold is Hold.BUDGET:
                self._shared.budget.wait(self)

    def _refuse(self, error: ProtocolError | ReceiveMemoryError) -> None:
        shared = self._shared
        if isinstance(error, ProtocolError):
            shared.metrics.malformed_frames += 1
            self.close(f"{error} (socket.request.max.bytes)")
        else:
            shared.log.warning("connection_refused_memory", peer=self.peer, error=error)
            self.close(f"{error} (queued.max.request.bytes)")

    def resume(self) -> None:
        """Go on with what is held: something that it may have waited for has happened."""
        if self._hold is not None and not self._resume_is_due:
            self._resume_is_due = True
            # Not at once: the caller may be deep in another connection's request.
            self._shared.reactor.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._resume_is_due = False
        if self.closed:
            return
        self._process(self._frames.held())
        if self.closed or self._hold is not None:
            return
        if self._has_ended:
            self._end_when_answered()
        else:
            self._watch(self._events & ~PEER_CLOSED | READABLE)

    def throttle(self, throttle_ms: int) -> None:
        """Start no more requests of the client for this long."""
        shared = self._shared
        shared.metrics.throttled_ms += throttle_ms
        until = shared.reactor.now + throttle_ms / 1000
        if until <= self._throttled_until:
            return  # another quota holds it off for longer
        self._throttled_until = until
        self._pipeline.is_throttled = True
        shared.reactor.call_later(throttle_ms / 1000 + 0.001, self._end_throttle)

    def _end_throttle(self) -> None:
        if self._throttled_until <= self._shared.reactor.now:
            self._throttled_until = 0.0
            self._pipeline.is_throttled = False
            self.resume()

    # Sending

    def flush(self) -> None:
        """Put out the answers that are there and send what can be sent without waiting."""
        pipeline = self._pipeline
        pipeline.is_announced = False
        if self.closed:
            return
        if pipeline.pending and pipeline.put_out():
            self.resume()
        outgoing = self._outgoing
        sent_bytes = 0
        if self._is_lost:
            outgoing.clear()
        else:
            try:
                sent_bytes = outgoing.send()
            except OSError as error:
                self._lose(f"send failed: {error.strerror}")
                if self.closed:
                    return
        if sent_bytes:
            self.last_active = self._shared.reactor.now
        if outgoing:
            self._watch(self._events | WRITABLE)
        elif self._events & WRITABLE:
            self._watch(self._events & ~WRITABLE)
        if self._hold is Hold.OUTGOING and outgoing.size_bytes <= OUTGOING_BYTES_MAX:
            self.resume()
        if self._has_ended:
            self._end_when_answered()

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._transport.watch(events)

    def make_send_room(self, size_bytes: int) -> None:
        """Let so much be on its way to the client."""
        self._transport.make_send_room(size_bytes)

    # The end of the client's side

    def _lose(self, reason: str) -> None:
        """The client is gone. Requests that are held, and what is to be received behind them, may
        have to start yet."""
        if self._is_lost:
            return  # while requests are held, the event comes again and again
        if self._hold not in _ENDED_BY_ABANDONING:
            self.close(reason)
            return
        self._is_lost = True
        self._outgoing.clear()
        self.abandon()
        self.resume()

    def abandon(self) -> None:
        """Wait no longer for what a client asked that has ended its side."""
        self._pipeline.abandon()
        if self._has_ended:
            self._end_when_answered()

    def _leave(self) -> None:
        self.has_left = True
        self.last_active = self._shared.reactor.now
        self._watch(self._events & ~(READABLE | PEER_CLOSED))

    def _end_when_answered(self) -> None:
        """Close when nothing is left to be done for a client that has ended its side."""
        if not self.is_busy or (self._pipeline.is_abandoned and self._hold is None):
            self.close("closed by peer")
