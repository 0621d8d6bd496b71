"""The network as a node sees it: streams of bytes that never block, and readiness.

A `Transport` is one end of a stream. Its calls do what they can at once; where nothing can be done
they raise BlockingIOError. A stream that broke raises other kinds of OSError.

When to try again is the transport's to say. It is attached to a loop with a callback, and the
callback gets events of the *stream*: READABLE when a receive may give something, WRITABLE when a
send may be taken. With a plain socket these are the events of its descriptor. A transport that does
more than to hand bytes on makes them of what it knows itself, and the one who uses it sees no
difference:

- While it is being made (a name is looked up, a connection is tried, keys are agreed upon) it says
  nothing, and then WRITABLE, or BROKEN when it came to nothing. The next receive raises why.
- A send that has to wait for something to be received, or the other way round, waits for the event
  of the descriptor that it needs, and is told as the event of the stream that was asked for.
- Bytes that it has received from its descriptor and not given out yet make the stream READABLE,
  though nothing is left for the poller to see; `call_soon` of the loop tells.
- A send that could not be taken is tried again with at least the same bytes, from the same place
  of the stream. So what a transport has made of them already stays of use.
- Ranges of files that it cannot hand to the system it reads, or maps, by itself: `send_file` names
  them by descriptor, position and size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.world.files import Buffer

# Of a stream, or a registered descriptor; the numbers are epoll's.
READABLE = 0x001
WRITABLE = 0x004
BROKEN = 0x008 | 0x010
PEER_CLOSED = 0x2000

Address = tuple[str, int]
ANY_HOST = ("", "0.0.0.0", "::")
"""Hosts that stand for every address of the machine."""

OnReady = Callable[[int], None]


class Cancellable(Protocol):
    """Something that is due later."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """What transports need of a reactor. All of it is for its thread, but for `post`."""

    def register(self, fd: int, callback: OnReady, events: int) -> None: ...

    @property
    def modify(self) -> Callable[[int, int], None]:
        """`modify(fd, events)`: wait for these events from now on."""
        ...

    def unregister(self, fd: int) -> None: ...

    def post(self, callback: Callable[[], None]) -> None:
        """Run the callback on the loop's thread; from any thread."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable: ...


class Transport(Protocol):
    """One end of a stream of bytes."""

    def attach(self, loop: Loop, on_ready: OnReady, events: int, /) -> None:
        """Call `on_ready(ready)` whenever one of these events of the stream holds, or BROKEN. To
        be called once, before all else but `close`; never calls back at once."""
        ...

    def watch(self, events: int, /) -> None:
        """Tell of these events from now on."""
        ...

    def receive_into(self, room: memoryview, /) -> int:
        """Receives what is there; 0 when the other side has ended the stream."""
        ...

    def send(self, data: Buffer, /) -> int:
        """Takes as much as there is room for."""
        ...

    def send_gathered(self, parts: Sequence[Buffer], more: bool, /) -> int:
        """Sends the parts as one; `more` says that something follows at once."""
        ...

    def send_file(self, fd: int, position: int, size_bytes: int, /) -> int:
        """Sends a range of a file; without a copy through this process, where that can be."""
        ...

    def make_send_room(self, size_bytes: int, /) -> None:
        """Lets at least so much be on its way, where the system has a limit."""
        ...

    def pass_file(self, fd: int, data: bytes, /) -> int:
        """Sends bytes and with them a descriptor to read the file by; only on transports from
        `listen_locally`."""
        ...

    def close(self) -> None:
        """Ends the stream and calls back no more; what was taken to be sent still leaves."""
        ...


class LocalPeer(NamedTuple):
    """A process of this machine at the other end of a stream."""

    process_id: int
    user_id: int
    is_trusted: bool
    """Whether it could read the node's files in any case."""


Peer = TypeVar("Peer")
_PeerOut = TypeVar("_PeerOut", covariant=True)


class Accepting(Protocol[_PeerOut]):
    """A socket that accepts connections."""

    fd: int
    address: Address
    """With the port that it got."""

    def accept(self) -> tuple[Transport, _PeerOut]:
        """The next connection and who it is from. Raises BlockingIOError when there is none, and
        other kinds of OSError when it was given up or there are no descriptors left."""
        ...

    def close(self) -> None: ...


class Poller(Protocol):
    """Waits for descriptors to become ready. All of it is for one thread, but for `wake`."""

    def register(self, fd: int, events: int, /) -> None: ...

    def modify(self, fd: int, events: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None:
        """To be called before the descriptor is closed."""
        ...

    def poll(self, wait_s: float, events_max: int, /) -> list[tuple[int, int]]:
        """Waits for readiness, or `wake`, and returns the descriptors with their events.

        `wake_fd` is among them after a wake-up until `clear_wake`.
        """
        ...

    wake_fd: int

    def wake(self) -> None:
        """Ends the present wait or the next; from any thread."""
        ...

    def clear_wake(self) -> None: ...

    def close(self) -> None: ...
