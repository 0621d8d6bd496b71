"""The world of a node that runs for real: clock, sockets, files and threads of the system."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from random import Random, SystemRandom
from time import monotonic, perf_counter_ns, sleep, time_ns
from typing import TextIO, TypeVar

from tidelog.world.files import Files
from tidelog.world.network import Accepting, Address, LocalPeer, Poller, Transport
from tidelog.world.operating_system.connecting import ConnectingTransport, NameLookups
from tidelog.world.operating_system.files import OsFiles
from tidelog.world.operating_system.network import (
    EpollPoller,
    ListeningSocket,
    LocalListeningSocket,
)
from tidelog.world.operating_system.reachable_host import reachable_host
from tidelog.world.operating_system.threads import WorkerThread, side_by_side
from tidelog.world.workers import Isolated, IsolatedWork, OnCrash, Task, TaskEvent, Worker

Item = TypeVar("Item")
Result = TypeVar("Result")

_GIVE_WAY_S = 0.001


class OperatingSystem:
    """A `World`. Give it other files to see how a node copes with them."""

    monotonic = staticmethod(monotonic)
    busy_ns = staticmethod(perf_counter_ns)

    def __init__(self, files: Files | None = None) -> None:
        self.files: Files = files or OsFiles()
        self.random: Random = SystemRandom()
        self.log_stream: TextIO | None = None
        self._lookups = NameLookups()

    def wall_ms(self) -> int:
        return time_ns() // 1_000_000

    def reachable_host(self, host: str) -> str:
        return reachable_host(host)

    def make_poller(self) -> Poller:
        return EpollPoller()

    def listen(
        self, address: Address, *, backlog: int, receive_buffer_bytes: int, send_buffer_bytes: int
    ) -> Accepting[Address]:
        return ListeningSocket(
            address,
            backlog=backlog,
            receive_buffer_bytes=receive_buffer_bytes,
            send_buffer_bytes=send_buffer_bytes,
        )

    def listen_locally(self) -> Accepting[LocalPeer] | None:
        if not sys.platform.startswith("linux"):
            return None
        return LocalListeningSocket(f"tidelog-{self.random.randbytes(16).hex()}")

    def connect(self, address: Address) -> Transport:
        return ConnectingTransport(address, self._lookups)

    def start_worker(self, name: str, on_crash: OnCrash) -> Worker:
        return WorkerThread(name, on_crash)

    def side_by_side(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
    ) -> Iterator[Result]:
        return side_by_side(work, items, threads)

    def start_isolated(
        self,
        work: IsolatedWork[Task, TaskEvent],
        failed: Callable[[str, bool], TaskEvent],
        post: Callable[[Callable[[], None]], None],
    ) -> Isolated[Task, TaskEvent]:
        # Only for compacted topics: a start has no time for its imports.
        from tidelog.world.operating_system.helper_process import HelperProcess

        return HelperProcess(work, failed, post)

    def give_way(self) -> None:
        # Longer than nothing: a thread that only yields gets the interpreter back at once.
        sleep(_GIVE_WAY_S)

    def make_lock(self) -> AbstractContextManager[object]:
        return threading.Lock()
