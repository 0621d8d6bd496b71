"""The network as a node sees it: streams of bytes that never block, and readiness.

A `Transport` is one end of a stream. Its calls do what they can at once: where nothing can be done
they raise BlockingIOError, and a `Poller` tells when to try again. A stream that broke raises other
kinds of OSError. TLS will be one more transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.world.files import Buffer

# Of a registered descriptor; the numbers are epoll's.
READABLE = 0x001
WRITABLE = 0x004
BROKEN = 0x008 | 0x010
PEER_CLOSED = 0x2000

Address = tuple[str, int]
ANY_HOST = ("", "0.0.0.0", "::")
"""Hosts that stand for every address of the machine."""


class Transport(Protocol):
    """One end of a stream of bytes."""

    fd: int
    """What a poller knows it by."""

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
        """Sends a range of a file without a copy through this process."""
        ...

    def pass_file(self, fd: int, data: bytes, /) -> int:
        """Sends bytes and with them a descriptor to read the file by; only on transports from
        `listen_locally`."""
        ...

    def close(self) -> None: ...


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
