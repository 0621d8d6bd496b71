"""A connection to another node, on the reactor: requests out, answers in.

The mirror image of `connection.py`, with frames from the same `frame_reader.py`. Calls are queued,
sent and answered in order; each ends exactly once, with its answer or a `PeerError`. The connection
is made by the first call that needs it. When it breaks, the calls that were sent end with an error,
for nobody knows whether they were carried out; those that were still queued wait for the next
connection, which is tried after a pause that grows with every failure. A call whose time is up
ends, and if it had been sent the connection ends with it, since answers come in order.

    closed ──call──▶ connecting ──▶ negotiating ──▶ ready
       ▲                  └───────────────┴────────────┴──broken──▶ pausing
       └──────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.headers import decode_response, encode_request
from tidelog.server.network.frame_reader import FrameReader
from tidelog.server.network.receive_buffer import ReceiveMemory
from tidelog.world.network import BROKEN, READABLE, WRITABLE

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.network.reactor import Reactor, Timer
    from tidelog.world import World
    from tidelog.world.network import Address, Transport

_API_VERSIONS_VERSION = 3
_RECEIVES_PER_TURN_MAX = 16
_SENT_PER_CALL_BYTES_MAX = 1 << 20
_ARENA_BYTES = 64 * 1024


class PeerError(TidelogError):
    """A call has no answer; the message says why."""


class PeerDisconnected(PeerError):
    """The connection ended; the call may have been carried out or not."""


class PeerRefused(PeerDisconnected):
    """The machine answers and nobody listens there: the call was not carried out."""


class PeerTimeout(PeerError):
    """The call's time was up."""


class PeerOverloaded(PeerError):
    """Too many calls wait already."""


class PeerVersionError(PeerError):
    """The peer serves no version of the API that this node knows."""


Done = Callable[["Message | None", PeerError | None], None]


@dataclass(slots=True, frozen=True)
class PeerOptions:
    """Limits of a peer connection."""

    client_id: str = "tidelog"
    in_flight_max: int = 5
    queued_max: int = 1000
    waits_for_peer: bool = True
    """Whether queued calls wait for the next try when nobody listens there; otherwise they end."""
    connect_timeout_s: float = 10.0
    response_bytes_max: int = 256 << 20
    backoff_s_min: float = 0.05
    backoff_s_max: float = 1.0


class _State(Enum):
    CLOSED = "closed"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"
    PAUSING = "pausing"


class _Call:
    """One request on its way, and who waits for it."""

    __slots__ = (
        "correlation_id",
        "done",
        "message",
        "timer",
        "version",
        "version_max",
        "version_min",
    )

    def __init__(
        self,
        message: Message,
        version_max: int | None,
        done: Done,
        version_min: int | None = None,
    ) -> None:
        self.message = message
        self.version_max = version_max
        self.version_min = version_min
        self.done: Done | None = done
        self.timer: Timer | None = None
        self.version = -1
        self.correlation_id = -1

    def end(self, reactor: Reactor, response: Message | None, error: PeerError | None) -> None:
        """Tell who waits, once; what they raise must not keep others from their answers."""
        done, self.done = self.done, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if done is not None:
            try:
                done(response, error)
            except Exception:
                reactor.log.exception("peer_callback_failed", api=type(self.message).__name__)


class PeerConnection:
    """Calls to the node at one address. All of it belongs to the loop thread.

    `on_state(is_ready)` hears when the connection stands and when it is lost or cannot be made.
    """

    def __init__(
        self,
        address: Address,
        world: World,
        reactor: Reactor,
        options: PeerOptions | None = None,
        on_state: Callable[[bool], None] | None = None,
    ) -> None:
        self.address = address
        self._world = world
        self._reactor = reactor
        self._options = options or PeerOptions()
        self._on_state = on_state
        self._state = _State.CLOSED
        self._transport: Transport | None = None
        self._events = 0
        self._memory = ReceiveMemory(arena_bytes=_ARENA_BYTES)
        self._frames = FrameReader(self._memory, self._options.response_bytes_max)
        self._versions: dict[int, tuple[int, int]] = {}
        self._queued: deque[_Call] = deque()
        self._in_flight: deque[_Call] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._correlation_id = 0
        self._failures = 0
        self._timer: Timer | None = None  # of the connection: its making, or the pause before it

    def __repr__(self) -> str:
        host, port = self.address
        return f"PeerConnection({host}:{port}, {self._state.value})"

    @property
    def is_ready(self) -> bool:
        """Whether a call would be sent at once."""
        return self._state is _State.READY

    @property
    def waiting(self) -> int:
        """Calls that have not ended yet."""
        return len(self._queued) + len(self._in_flight)

    def call(
        self,
        message: Message,
        done: Done,
        *,
        timeout_s: float,
        version_max: int | None = None,
        version_min: int | None = None,
    ) -> None:
        """Send a request; `done(response, None)` or `done(None, error)` is called once, later."""
        call = _Call(message, version_max, done, version_min)
        if len(self._queued) >= self._options.queued_max:
            error = PeerOverloaded(f"{self._where} has {len(self._queued)} calls waiting")
            self._reactor.call_soon(lambda: call.end(self._reactor, None, error))
            return
        call.timer = self._reactor.call_later(timeout_s, lambda: self._expired(call))
        self._queued.append(call)
        if self._state is _State.READY:
            self._send_queued()
        elif self._state is _State.CLOSED:
            self._connect()

    def close(self, reason: str = "closed") -> None:
        """End the connection and all calls; a later call connects again."""
        ended = [*self._forget_connection(), *self._queued]
        self._queued.clear()
        self._failures = 0
        self._end_all(ended, reason)

    @property
    def _where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    # Making the connection

    def _connect(self) -> None:
        self._state = _State.CONNECTING
        self._timer = self._reactor.call_later(
            self._options.connect_timeout_s,
            lambda: self._broken(f"no connection within {self._options.connect_timeout_s:g} s"),
        )
        self._frames = FrameReader(self._memory, self._options.response_bytes_max)
        self._events = WRITABLE
        self._transport = transport = self._world.connect(self.address)
        transport.attach(self._reactor, self._on_ready, WRITABLE)

    def _connected(self) -> None:
        self._state = _State.NEGOTIATING
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        call = _Call(request, _API_VERSIONS_VERSION, self._negotiated)
        call.version = _API_VERSIONS_VERSION
        self._put_out(call)
        self._flush()

    def _negotiated(self, response: Message | None, error: PeerError | None) -> None:
        if error is not None:
            return
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code:
            self._broken(f"ApiVersions: {ErrorCode(response.error_code).name}")
            return
        self._versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self._cancel_timer()
        self._state = _State.READY
        self._failures = 0
        if self._on_state is not None:
            self._on_state(True)
        self._send_queued()

    # Sending

    def _send_queued(self) -> None:
        while self._queued and len(self._in_flight) < self._options.in_flight_max:
            call = self._queued.popleft()
            if call.done is None:
                continue
            try:
                call.version = self._version_for(call)
            except PeerVersionError as error:
                call.end(self._reactor, None, error)
                continue
            self._put_out(call)
        self._flush()

    def _version_for(self, call: _Call) -> int:
        """The newest version that both sides know, and that the caller wants."""
        known = type(call.message)
        served = self._versions.get(known.API_KEY)
        name = ApiKey(known.API_KEY).name
        if served is None:
            raise PeerVersionError(f"{self._where} does not serve {name}")
        newest = min(served[1], known.MAX_VERSION)
        if call.version_max is not None:
            newest = min(newest, call.version_max)
        oldest = max(known.MIN_VERSION, call.version_min or 0)
        if newest < max(served[0], oldest):
            raise PeerVersionError(
                f"{self._where} serves {name} {served[0]}-{served[1]}, "
                f"this node needs {oldest}-{known.MAX_VERSION}"
            )
        return newest

    def _put_out(self, call: _Call) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        call.correlation_id = self._correlation_id
        frame = encode_request(
            call.message.API_KEY,
            call.version,
            call.correlation_id,
            self._options.client_id,
            call.message,
        )
        self._in_flight.append(call)
        self._outgoing.append(memoryview(frame))

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        outgoing = self._outgoing
        sent_bytes = 0
        try:
            while outgoing and sent_bytes < _SENT_PER_CALL_BYTES_MAX:
                taken = transport.send(outgoing[0])
                sent_bytes += taken
                if taken < len(outgoing[0]):
                    outgoing[0] = outgoing[0][taken:]
                else:
                    outgoing.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._broken(f"send failed: {error.strerror or error}")
            return
        self._watch(READABLE | WRITABLE if outgoing else READABLE)

    def _watch(self, events: int) -> None:
        if self._transport is not None and events != self._events:
            self._events = events
            self._transport.watch(events)

    # Receiving

    def _on_ready(self, ready: int) -> None:
        if self._state is _State.CONNECTING:
            if ready & BROKEN:
                self._cannot_connect()
            else:
                self._connected()
            return
        if ready & WRITABLE:
            self._flush()
        if ready & (READABLE | BROKEN) and self._transport is not None:
            self._receive()

    def _cannot_connect(self) -> None:
        assert self._transport is not None
        is_refused, reason = False, "the connection was reset"
        try:
            self._transport.receive_into(self._frames.room())
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            reason = error.strerror or str(error)
        ended: list[_Call] = []
        if is_refused and not self._options.waits_for_peer:
            ended = list(self._queued)
            self._queued.clear()
        self._broken(f"cannot connect: {reason}")
        for call in ended:
            call.end(self._reactor, None, PeerRefused(f"{self._where}: {reason}"))

    def _receive(self) -> None:
        try:
            for _ in range(_RECEIVES_PER_TURN_MAX):
                if not self._receive_some():
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._broken(f"receive failed: {error.strerror or error}")
        except ProtocolError as error:
            self._broken(f"malformed answer: {error}")

    def _receive_some(self) -> bool:
        """Take what is there, up to the room for it; says whether there may be more."""
        transport, frames = self._transport, self._frames
        if transport is None:
            return False
        room = frames.room()
        received = transport.receive_into(room)
        if not received:
            self._broken("closed by the peer")
            return False
        for frame in frames.received(received):
            self._answered(frame)
            if self._transport is not transport:
                return False
        return received == len(room)

    def _answered(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise ProtocolError("an answer that nobody waits for")
        call = self._in_flight[0]
        correlation_id, response = decode_response(call.message.API_KEY, call.version, frame)
        if correlation_id != call.correlation_id:
            raise ProtocolError(
                f"answer {correlation_id} where {call.correlation_id} was to come next"
            )
        self._in_flight.popleft()
        call.end(self._reactor, response, None)
        if self._queued and self._state is _State.READY:
            self._send_queued()

    # Ends

    def _expired(self, call: _Call) -> None:
        call.timer = None
        if call.done is None:
            return
        error = PeerTimeout(f"{self._where} has not answered {type(call.message).__name__} in time")
        if call in self._in_flight:
            call.end(self._reactor, None, error)
            # Later answers would come behind the one that is missing.
            self._broken("a call timed out")
        else:
            # First: who is told may close the connection, with all that is queued.
            self._queued.remove(call)
            call.end(self._reactor, None, error)

    def _broken(self, reason: str) -> None:
        ended = self._forget_connection()
        self._failures += 1
        self._pause()
        self._end_all(ended, reason)
        if self._on_state is not None:
            self._on_state(False)

    def _pause(self) -> None:
        options = self._options
        self._state = _State.PAUSING
        longest_s = min(options.backoff_s_min * 2 ** (self._failures - 1), options.backoff_s_max)
        # Spread, or all nodes would come back to one that restarts in the same moment.
        pause_s = longest_s * (0.8 + 0.4 * self._world.random.random())
        self._timer = self._reactor.call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._state = _State.CLOSED
        if self._queued:
            self._connect()

    def _forget_connection(self) -> deque[_Call]:
        """Closes the connection, if there is one; returns the calls that end with it."""
        self._cancel_timer()
        self._state = _State.CLOSED
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._frames.close()
        self._outgoing.clear()
        in_flight, self._in_flight = self._in_flight, deque()
        return in_flight

    def _end_all(self, calls: Iterable[_Call], reason: str) -> None:
        for call in calls:
            call.end(self._reactor, None, PeerDisconnected(f"{self._where}: {reason}"))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
