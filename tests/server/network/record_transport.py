"""A transport with all that makes TLS different from a socket, and none of its cryptography.

Both sides greet each other before anything else. Bytes travel in records that are given out only
when they are whole, so that some are there of which the poller knows nothing. Now and then the
node's side asks for new keys and sends nothing more before it has received them. A record that the
socket takes a part of is finished with the next send, which has to bring the same bytes. The end of
the data is a record too.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
from collections.abc import Sequence
from struct import Struct

from tidelog.world.files import Buffer
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE, Loop, OnReady

GREETING = b"hello"
RECORD_BYTES_MAX = 16 * 1024
RECORDS_UNTIL_KEYS = 10
DATA, ASK_KEYS, KEYS, END = 1, 2, 3, 4
_HEADER = Struct(">BH")
_UNREAD_BYTES_MAX = 1 << 20
_TABLE = bytes(each ^ 0x5A for each in range(256))


def record(kind: int, data: bytes = b"") -> bytes:
    return _HEADER.pack(kind, len(data)) + data.translate(_TABLE)


def split(raw: bytearray) -> list[tuple[int, bytes]]:
    """Takes the whole records off the front."""
    found = []
    while len(raw) >= _HEADER.size:
        kind, size = _HEADER.unpack_from(raw)
        if len(raw) < _HEADER.size + size:
            break
        found.append((kind, bytes(raw[_HEADER.size : _HEADER.size + size]).translate(_TABLE)))
        del raw[: _HEADER.size + size]
    return found


def _blocked() -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class RecordTransport:
    """The node's side."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._fd = sock.fileno()
        self._loop: Loop | None = None
        self._wanted = self._polled = 0
        self._greeting_left = GREETING
        self._is_greeted = False
        self._has_ended = False
        self._raw = bytearray()
        self._plain = bytearray()
        self._unsent = b""
        self._unsent_plain: bytes | None = None
        self._records = 0
        self._waits_for_keys = False
        self._is_told_later = False
        self.hidden_reads = 0
        """Times at which bytes were there that the poller did not know of."""

    def attach(self, loop: Loop, on_ready: OnReady, events: int, /) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._wanted = events
        self._polled = READABLE | WRITABLE
        loop.register(self._fd, self._on_descriptor, self._polled)

    def watch(self, events: int, /) -> None:
        self._wanted = events
        self._poll()
        self._tell_of_plain()

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.unregister(self._fd)
        self._socket.close()

    def receive_into(self, room: memoryview, /) -> int:
        if not self._plain:
            self._fill()
        size = min(len(room), len(self._plain))
        if not size:
            if self._has_ended:
                return 0
            raise _blocked()
        room[:size] = self._plain[:size]
        del self._plain[:size]
        self._tell_of_plain()
        return size

    def send(self, data: Buffer, /) -> int:
        if self._waits_for_keys:
            self._poll()
            raise _blocked()
        if self._unsent_plain is None:
            self._unsent_plain = bytes(memoryview(data)[:RECORD_BYTES_MAX])
            self._unsent = record(DATA, self._unsent_plain)
            self._records += 1
            if self._records % RECORDS_UNTIL_KEYS == 0:
                self._unsent += record(ASK_KEYS)
        plain = self._unsent_plain
        assert bytes(memoryview(data)[: len(plain)]) == plain, "other bytes than before"
        self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if self._unsent:
            raise _blocked()
        self._unsent_plain = None
        self._waits_for_keys = self._records % RECORDS_UNTIL_KEYS == 0
        return len(plain)

    def send_gathered(self, parts: Sequence[Buffer], more: bool, /) -> int:
        return self.send(b"".join(parts))

    def send_file(self, fd: int, position: int, size_bytes: int, /) -> int:
        begins = position - position % mmap.ALLOCATIONGRANULARITY
        size = min(size_bytes, RECORD_BYTES_MAX)
        length = position + size - begins
        with mmap.mmap(fd, length, access=mmap.ACCESS_READ, offset=begins) as mapped:
            return self.send(mapped[position - begins : length])

    def make_send_room(self, size_bytes: int, /) -> None:
        pass

    def pass_file(self, fd: int, data: bytes, /) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    # What the descriptor's events mean for the stream

    def _on_descriptor(self, ready: int) -> None:
        if not self._is_greeted:
            self._greet(ready)
            return
        told = ready & (BROKEN | PEER_CLOSED)
        if ready & READABLE:
            waited = self._waits_for_keys
            self._fill()
            if waited and not self._waits_for_keys:
                told |= WRITABLE
            if self._plain or self._has_ended:
                told |= READABLE
        if ready & WRITABLE and not self._waits_for_keys:
            told |= WRITABLE
        told &= self._wanted | BROKEN
        if told:
            self._on_ready(told)
        self._poll()

    def _greet(self, ready: int) -> None:
        if ready & WRITABLE and self._greeting_left:
            self._greeting_left = self._greeting_left[self._socket.send(self._greeting_left) :]
        if ready & (READABLE | BROKEN):
            self._receive_raw()
        if self._has_ended:
            self._on_ready(BROKEN)
            return
        if not self._greeting_left and len(self._raw) >= len(GREETING):
            if not self._raw.startswith(GREETING):
                self._on_ready(BROKEN)
                return
            del self._raw[: len(GREETING)]
            self._is_greeted = True
            self._take_records()
            self._tell_of_plain()
        self._poll()

    def _poll(self) -> None:
        if self._loop is None:
            return
        if not self._is_greeted:
            events = READABLE | (WRITABLE if self._greeting_left else 0)
        else:
            events = self._wanted & PEER_CLOSED
            if self._wanted & READABLE or self._waits_for_keys:
                events |= READABLE
            if self._wanted & WRITABLE and not self._waits_for_keys:
                events |= WRITABLE
        if events != self._polled:
            self._polled = events
            self._loop.modify(self._fd, events)

    def _tell_of_plain(self) -> None:
        """Bytes that are here already do not show up in the poller."""
        if not self._is_greeted or self._is_told_later or self._loop is None:
            return
        if (self._plain or self._has_ended) and self._wanted & READABLE:
            self._is_told_later = True
            self.hidden_reads += 1
            self._loop.call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._is_told_later = False
        if self._loop is not None and self._wanted & READABLE:
            self._on_ready(READABLE)

    def _fill(self) -> None:
        self._receive_raw()
        self._take_records()

    def _receive_raw(self) -> None:
        while len(self._plain) + len(self._raw) < _UNREAD_BYTES_MAX:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            if not data:
                self._has_ended = True
                return
            self._raw += data

    def _take_records(self) -> None:
        for kind, data in split(self._raw):
            if kind == DATA:
                self._plain += data
            elif kind == END:
                self._has_ended = True
            else:
                assert kind == KEYS
                self._waits_for_keys = False


class RecordSocket:
    """The client's side: a blocking socket with records on it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._raw = bytearray()
        self._plain = bytearray()
        self.keys_sent = 0
        self.close = sock.close

    def greet(self) -> None:
        for byte in GREETING:
            self._socket.sendall(bytes([byte]))
        greeting = b""
        while len(greeting) < len(GREETING):
            greeting += self._socket.recv(len(GREETING) - len(greeting))
        assert greeting == GREETING

    def sendall(self, data: bytes) -> None:
        for at in range(0, len(data), RECORD_BYTES_MAX):
            self._socket.sendall(record(DATA, data[at : at + RECORD_BYTES_MAX]))

    def end(self) -> None:
        """Send no more data; keys may still be sent."""
        self._socket.sendall(record(END))

    def recv(self, size: int) -> bytes:
        while not self._plain:
            data = self._socket.recv(65536)
            if not data:
                return b""
            self._raw += data
            for kind, plain in split(self._raw):
                if kind == ASK_KEYS:
                    self.keys_sent += 1
                    # A node that has answered everything may have closed without waiting for them.
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        self._socket.sendall(record(KEYS))
                else:
                    self._plain += plain
        taken = bytes(self._plain[:size])
        del self._plain[:size]
        return taken
