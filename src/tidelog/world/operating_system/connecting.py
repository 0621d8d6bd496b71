"""Connections that this side makes: the name is looked up, its addresses are tried in turn.

    looking up ──▶ trying an address ──▶ standing
        │              │    ▲  └─────┐
        │              └────┘        │
        │           the next one     │ there is none
        └── not found ───────────────┴──────▶ failed

Nothing of it waits on the loop. A look-up may take seconds, or a minute when a name server is away:
it has a thread of its own for as long as it takes. Whoever asks for the same address meanwhile gets
the same answer, so there are never more such threads than addresses.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidelog.world.files import Buffer
from tidelog.world.network import BROKEN, WRITABLE, Address, Loop, OnReady
from tidelog.world.operating_system.network import SocketTransport, tune


class Candidate(NamedTuple):
    """One address that a name stands for."""

    family: int
    kind: int
    protocol: int
    socket_address: Any


Found = list[Candidate] | OSError
"""What a look-up came to."""


def _look_up(address: Address, flags: int = 0) -> list[Candidate]:
    try:
        rows = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{address[0]!r} is not the name of a host") from error
    return [Candidate(family, kind, protocol, found) for family, kind, protocol, _, found in rows]


class NameLookups:
    """Looks names up beside the loop."""

    def __init__(self, look_up: Callable[[Address], list[Candidate]] = _look_up) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._waiting: dict[Address, list[Callable[[Found], None]]] = {}

    def begin(self, address: Address, done: Callable[[Found], None]) -> None:
        """Look an address up; `done` is called later, on another thread."""
        with self._lock:
            waiting = self._waiting.setdefault(address, [])
            waiting.append(done)
            if len(waiting) > 1:
                return
        name = f"tidelog-lookup-{address[0]}"
        threading.Thread(target=self._run, args=(address,), name=name, daemon=True).start()

    def _run(self, address: Address) -> None:
        found: Found
        try:
            found = self._look_up(address)
        except OSError as error:
            found = error
        with self._lock:
            waiting = self._waiting.pop(address)
        for done in waiting:
            done(found)


class ConnectingTransport:
    """A stream that is being made; once it stands, its calls are those of the socket's own."""

    __slots__ = (
        "_address",
        "_candidates",
        "_events",
        "_failure",
        "_is_closed",
        "_lookups",
        "_loop",
        "_on_ready",
        "_socket",
        "_stream",
        "pass_file",
        "receive_into",
        "send",
        "send_file",
        "send_gathered",
        "watch",
    )

    receive_into: Callable[[memoryview], int]
    send: Callable[[Buffer], int]
    send_gathered: Callable[[Sequence[Buffer], bool], int]
    send_file: Callable[[int, int, int], int]
    pass_file: Callable[[int, bytes], int]
    watch: Callable[[int], None]
    _loop: Loop
    _on_ready: OnReady
    _socket: socket.socket

    def __init__(self, address: Address, lookups: NameLookups) -> None:
        self._address = address
        self._lookups = lookups
        self._candidates: deque[Candidate] = deque()
        self._events = 0
        self._failure: OSError | None = None
        self._is_closed = False
        self._stream: SocketTransport | None = None
        self.receive_into = self.send = self._not_standing
        self.send_gathered = self.send_file = self.pass_file = self._not_standing
        self.watch = self._watch_later

    def make_send_room(self, size_bytes: int, /) -> None:
        if self._stream is not None:
            self._stream.make_send_room(size_bytes)

    def attach(self, loop: Loop, on_ready: OnReady, events: int, /) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._events = events
        try:
            # An address in numbers is not looked up anywhere.
            found = _look_up(self._address, socket.AI_NUMERICHOST)
        except OSError:
            self._lookups.begin(
                self._address, lambda found: loop.post(lambda: self._looked_up(found))
            )
        else:
            self._looked_up(found)

    def close(self) -> None:
        self._is_closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _looked_up(self, found: Found) -> None:
        if self._is_closed:
            return
        if isinstance(found, OSError):
            self._failure = found
        else:
            self._candidates.extend(found)
        self._try_next()

    def _try_next(self) -> None:
        while self._candidates:
            candidate = self._candidates.popleft()
            try:
                self._begin(candidate)
            except OSError as error:
                self._failure = error
            else:
                return
        self._loop.call_soon(self._tell_failure)

    def _begin(self, candidate: Candidate) -> None:
        self._socket = sock = socket.socket(candidate.family, candidate.kind, candidate.protocol)
        try:
            tune(sock)
            stream = SocketTransport(sock)
            code = sock.connect_ex(candidate.socket_address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            stream.attach(self._loop, self._tried, WRITABLE)
        except OSError:
            sock.close()
            raise
        self._stream = stream

    def _tried(self, ready: int) -> None:
        """The system says what came of an attempt."""
        stream = self._stream
        assert stream is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code or ready & BROKEN:
            self._failure = OSError(code, os.strerror(code)) if code else ConnectionResetError()
            self._stream = None
            stream.close()
            self._try_next()
            return
        self.receive_into, self.send = stream.receive_into, stream.send
        self.send_gathered, self.send_file = stream.send_gathered, stream.send_file
        self.pass_file = stream.pass_file
        self.watch = stream.watch
        stream.hand_over(self._on_ready, self._events)

    def _tell_failure(self) -> None:
        if not self._is_closed:
            self._on_ready(BROKEN)

    def _watch_later(self, events: int, /) -> None:
        self._events = events

    def _not_standing(self, *_: object) -> int:
        raise self._failure or BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
