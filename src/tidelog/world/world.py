"""Everything that a node takes from outside of itself, as one interface.

A node never reaches for the clock, a socket, a file, a thread or a random number: it is built as
`Node(config, world)`. The operating system's world is thin: bound functions, no extra frame on the
hot path. The simulator's is an event heap that draws every delay and fault from its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from random import Random
from typing import Protocol, TextIO, TypeVar

from tidelog.world.files import Files
from tidelog.world.network import Accepting, Address, LocalPeer, Poller, Transport
from tidelog.world.workers import Isolated, IsolatedWork, OnCrash, Task, TaskEvent, Worker

Item = TypeVar("Item")
Result = TypeVar("Result")


class World(Protocol):
    """The clock, random numbers, files, the network, and work beside the loop."""

    files: Files
    random: Random
    log_stream: TextIO | None
    """Where log lines go; None is standard error."""

    # Time

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def busy_ns(self) -> int:
        """For measuring how long a piece of work takes, in nanoseconds."""
        ...

    # The network

    def reachable_host(self, host: str) -> str:
        """What clients are told of a listener on `host`, which may stand for any address."""
        ...

    def make_poller(self) -> Poller: ...

    def listen(
        self,
        address: Address,
        *,
        backlog: int,
        receive_buffer_bytes: int,
        send_buffer_bytes: int,
    ) -> Accepting[Address]:
        """Takes the address, port 0 for any free one; buffer sizes of -1 leave them to the system.

        Raises OSError.
        """
        ...

    def listen_locally(self) -> Accepting[LocalPeer] | None:
        """Listens for processes of this machine that can be given files; None where that cannot
        be. Raises OSError."""
        ...

    def connect(self, address: Address) -> Transport:
        """A connection, made when its transport is attached: it stands when that is writable.

        A host's name is looked up beside the loop, and each of its addresses is tried.
        """
        ...

    # Work beside the loop

    def start_worker(self, name: str, on_crash: OnCrash) -> Worker: ...

    def side_by_side(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
    ) -> Iterator[Result]:
        """Does the work for all items, several at a time, and gives the results as they come.

        The caller waits: for use at start, at the end, and in jobs.
        """
        ...

    def start_isolated(
        self,
        work: IsolatedWork[Task, TaskEvent],
        failed: Callable[[str, bool], TaskEvent],
        post: Callable[[Callable[[], None]], None],
    ) -> Isolated[Task, TaskEvent]:
        """`failed(problem, is_bug)` makes the last event of a task that did not come to its end."""
        ...

    def give_way(self) -> None:
        """In a job that computes for long: every millisecond or so, lets the loop go first."""
        ...

    def make_lock(self) -> AbstractContextManager[object]:
        """Keeps jobs of several workers apart."""
        ...
