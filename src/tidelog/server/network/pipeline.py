"""The requests of one connection and the order of their answers, without I/O.

Everything that decides when a request may start and when its answer may leave is here; there is no
socket, no clock and no loop. Frames go in by `process`, answers by `respond` and its like, and come
out of it in the order of the requests, into the queue that is sent from.

What may start. As in Kafka a connection has one request at work at a time, with one exception:
Produce requests behind Produce requests that have done their work and only wait for durability
start at once, so that one fdatasync serves them all. An answer that is there at once changes
nothing. With a request that waits for its answer the pipeline is in one of two modes:

                    starts      a promise,       an exclusive     the last promise
                                not exclusive    promise          is answered
      idle          any         pipelined        exclusive        -
      pipelined     Produce     pipelined        exclusive        idle
      exclusive     none        -                -                idle

So an exclusive promise is the last of those that are pending. Apart from that no request starts
while one of these holds, each of which ends by itself: too many requests or bytes of them are
pending here; too many bytes of answers wait for the client to read them; the client is throttled;
all connections together have too much under way. `process` says which; who called it keeps the
frames back, stops to read, and calls again when it may be over.

Answers. An answer whose turn it is goes to the queue at once. The others are kept with their
promises: when the first of them is answered, `put_out` moves it there with all that are ready
behind it. It is left to the end of the loop's turn, since the requests of a turn are often answered
together; `announce` is called once when there is something to put out or to send.

Ends. `close` gives up every promise exactly once; later answers are dropped by the promises
themselves. `abandon` is for a client that has ended its side and for which there is no more
waiting: what is pending is given up, and what it sent before its end is still processed (acks=0
records, for one) but not waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from tidelog.protocol.api_keys import ApiKey
from tidelog.server.request import Deferred, Part, RawResponse, Request

if TYPE_CHECKING:
    from tidelog.server.network.frame_reader import Frames
    from tidelog.server.network.request_budget import RequestBudget

_PRODUCE = int(ApiKey.PRODUCE)
_API_KEY = Struct(">h")

OUTGOING_BYTES_MAX = 1024 * 1024
PENDING_REQUESTS_MAX = 1000
PENDING_BYTES_MAX = 32 * 1024 * 1024


class Hold(Enum):
    """Why a request may not start."""

    ORDER = "an earlier request is at work"
    PENDING = "too much of this connection waits for answers"
    OUTGOING = "the client does not read its answers"
    THROTTLE = "the client is above a quota"
    BUDGET = "all connections together have too much under way"


class Outgoing(Protocol):
    """Where answers go whose turn it is."""

    size_bytes: int

    def append(self, data: bytes, /) -> None: ...

    def extend(self, parts: list[Part], /) -> None: ...


class Pipeline:
    """Requests that were started, in order, with their answers or the promises of them.

    `start(frame)` serves a request: it responds, promises an answer by `wait_for`, or neither, when
    there is no answer.
    """

    __slots__ = (
        "_announce",
        "_budget",
        "_is_exclusive",
        "_outgoing",
        "_pending_bytes",
        "_start",
        "is_abandoned",
        "is_announced",
        "is_closed",
        "is_throttled",
        "pending",
    )

    def __init__(
        self,
        start: Callable[[memoryview], object],
        outgoing: Outgoing,
        budget: RequestBudget,
        announce: Callable[[], object],
    ) -> None:
        self._start = start
        self._outgoing = outgoing
        self._budget = budget
        self._announce = announce
        self.pending: deque[Deferred] = deque()
        """The promises of answers, and answers behind them, that have not been put out."""
        self._pending_bytes = 0
        self._is_exclusive = False
        self.is_announced = False
        """Whether `announce` was called; who puts out and sends sets it back."""
        self.is_throttled = False
        self.is_abandoned = False
        self.is_closed = False

    # Requests

    def process(self, frames: Frames) -> Hold | None:
        """Start the requests, up to the first that may not start; says why it may not.

        That request is left with the frames, and so are those behind it.
        """
        outgoing, budget, start = self._outgoing, self._budget, self._start
        for frame in frames:
            if (
                self.pending
                or outgoing.size_bytes > OUTGOING_BYTES_MAX
                or self.is_throttled
                or budget.is_over
            ) and (hold := self._hold(frame)) is not None:
                frames.close()
                return hold
            start(frame)
            if self.is_closed:
                frames.close()
                return None
        return None

    def _hold(self, frame: memoryview) -> Hold | None:
        if self._budget.is_over:
            return Hold.BUDGET
        if self.is_throttled:
            return Hold.THROTTLE
        if self._outgoing.size_bytes > OUTGOING_BYTES_MAX:
            return Hold.OUTGOING
        if not self.pending:
            return None
        if self._is_exclusive or _API_KEY.unpack_from(frame)[0] != _PRODUCE:
            return Hold.ORDER
        if len(self.pending) >= PENDING_REQUESTS_MAX or self._pending_bytes >= PENDING_BYTES_MAX:
            return Hold.PENDING
        return None

    # Answers

    def respond(self, request: Request, response: bytes) -> None:
        """Answer with one frame, behind the answers of earlier requests."""
        if self.pending:
            self._append_ready(request, response)
            return
        self._outgoing.append(response)
        if not self.is_announced:
            self.is_announced = True
            self._announce()

    def respond_in_parts(self, request: Request, response: RawResponse) -> None:
        """Answer with a frame whose parts may be ranges of files."""
        if self.pending:
            self._append_ready(request, response.parts)
            return
        self._outgoing.extend(response.parts)
        if not self.is_announced:
            self.is_announced = True
            self._announce()

    def wait_for(self, deferred: Deferred) -> None:
        """A handler promised an answer for later (or has given it already)."""
        size_bytes = deferred.request.size_bytes
        self.pending.append(deferred)
        self._pending_bytes += size_bytes
        self._budget.acquire(size_bytes)
        if deferred.is_exclusive:
            self._is_exclusive = True
        if self.is_abandoned:
            _give_up(deferred)
        if deferred.ready and not self.is_announced:
            self.is_announced = True
            self._announce()

    def answer_deferred(self, deferred: Deferred, parts: bytes | list[Part] | None) -> None:
        """The answer of a promise: a frame or its parts; None for no answer at all."""
        assert not deferred.ready, "a request is answered once"
        deferred.ready = True
        deferred.parts = parts
        if not self.is_announced:
            self.is_announced = True
            self._announce()

    def put_out(self) -> bool:
        """Move the answers that are there to the queue, up to the first that is not there.

        Says whether there were any: what could not start before may start now.
        """
        pending = self.pending
        outgoing = self._outgoing
        put_out_bytes = 0
        put_out_count = 0
        while pending and pending[0].ready:
            deferred = pending.popleft()
            put_out_count += 1
            put_out_bytes += deferred.request.size_bytes
            parts = deferred.parts
            if type(parts) is bytes:
                outgoing.append(parts)
            elif parts is not None:
                outgoing.extend(parts)  # type: ignore[arg-type]
        if not put_out_count:
            return False
        self._pending_bytes -= put_out_bytes
        if not pending:
            self._is_exclusive = False
        self._budget.release(put_out_count, put_out_bytes)
        return True

    def _append_ready(self, request: Request, parts: bytes | list[Part]) -> None:
        deferred = Deferred(request, is_exclusive=False)
        deferred.ready = True
        deferred.parts = parts
        self.wait_for(deferred)

    # Ends

    def abandon(self) -> None:
        """Wait for nothing any more: what is pending, and what is promised later, is given up."""
        self.is_abandoned = True
        for deferred in tuple(self.pending):
            _give_up(deferred)
        if self.pending and not self.is_announced:
            self.is_announced = True
            self._announce()

    def close(self) -> None:
        """Give up everything; nothing is put out any more."""
        if self.is_closed:
            return
        self.is_closed = True
        # Both lead back to who owns this object: kept, each would be a cycle for the collector.
        self._announce = _do_nothing
        self._start = _refuse
        pending, self.pending = self.pending, deque()
        self._budget.release(len(pending), self._pending_bytes)
        self._pending_bytes = 0
        for deferred in pending:
            deferred.give_up()


def _give_up(deferred: Deferred) -> None:
    if not deferred.ready:
        deferred.give_up()
        deferred.ready = True


def _do_nothing() -> None:
    pass


def _refuse(_frame: memoryview) -> None:
    raise AssertionError("the pipeline is closed")
