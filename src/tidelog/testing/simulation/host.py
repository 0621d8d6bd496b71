"""A simulated machine: the world of one process, which may die and be started again.

What runs on it is a reactor, whose turns are events. A turn happens when a socket is ready, a timer
is due or a job has posted its result, and takes a little time in which nothing else happens there.
Jobs beside the loop are events too, late by as much as the seed says. A machine that loses power
takes everything along that was not synced, in the middle of an operation if need be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

from tidelog.testing.faults import PowerCut
from tidelog.testing.simulation.disk import SimulatedDisk
from tidelog.testing.simulation.network import (
    Network,
    SimulatedAccepting,
    SimulatedTransport,
)
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation
from tidelog.world.files import Files
from tidelog.world.network import BROKEN, READABLE, Address
from tidelog.world.workers import IsolatedWork, Job, OnCrash, Task, TaskEvent, Worker

if TYPE_CHECKING:
    from tidelog.server.network.reactor import Reactor

Item = TypeVar("Item")
Result = TypeVar("Result")

_EPOCH_MS = 1_700_000_000_000


@dataclass(slots=True)
class HostFaults:
    """How often work on a machine is late."""

    late_jobs: float = 0.0
    late_turns: float = 0.0


class SimulatedPoller:
    """Readiness of a simulated host's sockets."""

    wake_fd = -1

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.watched: dict[int, int] = {}
        self._candidates: set[int] = set()
        """Whatever may be ready; the others are not looked at."""
        self.is_woken = False

    def register(self, fd: int, events: int, /) -> None:
        assert fd not in self.watched, "a descriptor is registered once"
        self.watched[fd] = events
        self._candidates.add(fd)
        self._host.look_again()

    def modify(self, fd: int, events: int, /) -> None:
        assert fd in self.watched
        self.watched[fd] = events
        self._candidates.add(fd)
        self._host.look_again()

    def unregister(self, fd: int, /) -> None:
        del self.watched[fd]
        self._candidates.discard(fd)

    def poll(self, wait_s: float, events_max: int, /) -> list[tuple[int, int]]:
        found = self.ready_now()[:events_max]
        return [(self.wake_fd, READABLE), *found] if self.is_woken else found

    def ready_now(self) -> list[tuple[int, int]]:
        """The sockets with something to do, in the order in which they were made."""
        if not self._candidates:
            return []
        found = []
        for fd in sorted(self._candidates):
            ready = self.ready_events(fd)
            if ready:
                found.append((fd, ready))
            else:
                self._candidates.discard(fd)
        return found

    def ready_events(self, fd: int) -> int:
        # As with epoll, a broken stream is told whether one asks for it or not.
        return self._host.sockets[fd].ready() & (self.watched[fd] | BROKEN)

    def became_ready(self, fd: int) -> bool:
        """A socket has changed; whether somebody has to look at it."""
        if fd not in self.watched or not self.ready_events(fd):
            return False
        self._candidates.add(fd)
        return True

    def wake(self) -> None:
        self.is_woken = True
        self._host.request_turn(self._host.simulation.now_us)

    def clear_wake(self) -> None:
        self.is_woken = False

    def close(self) -> None:
        self.watched.clear()
        self._candidates.clear()


class SimulatedWorker:
    """Jobs as events, one after the other."""

    def __init__(self, host: SimulatedHost, name: str, on_crash: OnCrash) -> None:
        self._host = host
        self._name = name
        self._on_crash = on_crash
        self._jobs: deque[Job] = deque()
        self._is_due = False

    def submit(self, job: Job, /) -> None:
        self._jobs.append(job)
        if not self._is_due:
            self._is_due = True
            self._host.after(self._host.draw_job_delay_us(), self._run_one)

    def drain(self) -> None:
        while self._jobs:
            self._run(self._jobs.popleft())

    close = drain

    def _run_one(self) -> None:
        self._is_due = False
        if self._jobs:
            self._run(self._jobs.popleft())
        if self._jobs and not self._is_due:
            self._is_due = True
            self._host.after(self._host.draw_job_delay_us(), self._run_one)

    def _run(self, job: Job) -> None:
        try:
            job()
        except PowerCut:
            pass
        except Exception as error:  # noqa: BLE001  a bug of the node, which has to end of it
            self._on_crash(self._name, error)
        if not self._host.has_power:
            self._host.lose_power()


class SimulatedIsolated(Generic[Task, TaskEvent]):
    """Work in another process: each step to the next event happens at a time of its own."""

    def __init__(
        self,
        host: SimulatedHost,
        work: IsolatedWork[Task, TaskEvent],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._host = host
        self._work = work
        self._post = post
        self._is_closed = False

    def submit(self, task: Task, on_event: Callable[[TaskEvent], None], /) -> None:
        events = self._work(task, self._host.files, lambda size_bytes: None)

        def step() -> None:
            if self._is_closed:
                return
            try:
                event = next(events)
            except StopIteration:
                return
            except PowerCut:
                self._host.lose_power()
                return
            self._post(lambda: on_event(event))
            self._host.after(self._host.draw_job_delay_us(), step)

        self._host.after(self._host.draw_job_delay_us(), step)

    def close(self) -> None:
        self._is_closed = True


class SimulatedHost:
    """A `World` for one process at a time."""

    def __init__(
        self,
        simulation: Simulation,
        network: Network,
        name: str,
        faults: HostFaults | None = None,
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.disk: SimulatedDisk | None = None
        self.faults = faults or HostFaults()
        self.random = simulation.random(f"{name}/program")
        self.clock_skew_ms = 0
        self.is_alive = False
        self.log_stream: TextIO | None = None
        self.sockets: dict[int, SimulatedTransport | SimulatedAccepting] = {}
        self.on_power_loss: Callable[[], None] = lambda: None
        self._network = network
        self._times = simulation.random(f"{name}/times")
        self._life = 0
        self._poller: SimulatedPoller | None = None
        self._reactor: Reactor | None = None
        self._after_turn: Callable[[], None] = lambda: None
        self._turn_at_us: int | None = None
        self._turn_number = 0
        self._busy_until_us = 0
        self._paused_until_us = 0
        self._is_turning = False

    files: Files

    # Life

    def boot(self) -> None:
        """Begin a life: the process that is started next has this world."""
        assert not self.is_alive
        self._life += 1
        self.is_alive = True
        self._poller = None
        self._reactor = None
        self._turn_at_us = None
        self._paused_until_us = 0
        self.sockets = {}
        if self.disk is not None:
            self.files = self.disk.files()

    def run(self, reactor: Reactor, after_turn: Callable[[], None] = lambda: None) -> None:
        """Give a reactor its turns from now on."""
        self._reactor = reactor
        self._after_turn = after_turn
        self.request_turn(self.simulation.now_us)

    def end(self) -> None:
        """The process ends: whatever was arranged for it is off, and its peers hear of it."""
        if self.is_alive:
            self.is_alive = False
            self._network.host_went_down(self)
            self.sockets = {}
            if self.disk is not None:
                self.disk.kill()

    def lose_power(self) -> None:
        """The machine goes off; its disk keeps what was synced, and of the rest what chance has
        it. Or the process was killed at an operation of the disk, which loses nothing."""
        if self.is_alive:
            self.is_alive = False
            self._network.host_went_down(self)
            self.sockets = {}
            assert self.disk is not None
            where = f" in {self.disk.ended_at}" if self.disk.ended_at else ""
            if self.disk.was_killed:
                self.simulation.count("kills in an operation")
                self.simulation.trace(self.name, f"is killed{where}")
            else:
                self.simulation.count("power cuts")
                self.simulation.trace(self.name, f"loses power{where}")
                self.disk.power_cut()
            self.on_power_loss()

    @property
    def has_power(self) -> bool:
        """False from the operation of its disk on at which the power went."""
        return self.is_alive and (self.disk is None or not self.disk.is_cut)

    def after(self, delay_us: int, callback: Callable[[], None]) -> None:
        """Arrange an event of this life."""
        life = self._life

        def happen() -> None:
            if not self.is_alive or self._life != life:
                return
            if self.simulation.now_us < self._paused_until_us:
                self.simulation.at(self._paused_until_us, happen)
            else:
                callback()

        self.simulation.after(delay_us, happen)

    def pause(self, duration_us: int) -> None:
        """Nothing runs for a while, as after a SIGSTOP; the network goes on without it."""
        self._paused_until_us = self.simulation.now_us + duration_us

    def resume(self) -> None:
        self._paused_until_us = 0

    # Turns

    def request_turn(self, at_us: int) -> None:
        """See that there is a turn at this time at the latest."""
        if self._is_turning or self._reactor is None:
            return
        at_us = max(at_us, self._busy_until_us, self.simulation.now_us)
        if self._turn_at_us is not None and self._turn_at_us <= at_us:
            return
        self._turn_at_us = at_us
        self._turn_number += 1
        number = self._turn_number
        self.after(at_us - self.simulation.now_us, lambda: self._turn(number))

    def look_again(self) -> None:
        """What is waited for has changed."""
        self.request_turn(self.simulation.now_us)

    def became_ready(self, socket: SimulatedTransport | SimulatedAccepting) -> None:
        """A socket may have something to do."""
        poller = self._poller
        if not self.is_alive or poller is None:
            return
        if poller.became_ready(socket.fd):
            self.request_turn(self.simulation.now_us)

    def _turn(self, number: int) -> None:
        reactor, poller = self._reactor, self._poller
        if number != self._turn_number or reactor is None or poller is None:
            return
        self._turn_at_us = None
        self._is_turning = True
        try:
            reactor.turn(0.0)
        finally:
            self._is_turning = False
        if not self.has_power:
            self.lose_power()
            return
        self._busy_until_us = self.simulation.now_us + self._draw_turn_us()
        self._after_turn()
        if not self.is_alive:
            return
        if poller.is_woken or poller.ready_now():
            self.request_turn(self._busy_until_us)
        else:
            wait_us = int(reactor.seconds_until_due() * SECOND_US) + 1
            self.request_turn(self.simulation.now_us + wait_us)

    def _draw_turn_us(self) -> int:
        if self._times.random() < self.faults.late_turns:
            self.simulation.count("late turns")
            return self._times.randrange(MS_US, 300 * MS_US)
        return self._times.randrange(10, 100)

    def draw_job_delay_us(self) -> int:
        if self._times.random() < self.faults.late_jobs:
            self.simulation.count("late jobs")
            return self._times.randrange(10 * MS_US, 2000 * MS_US)
        return self._times.randrange(20, 2 * MS_US)

    # The world

    def monotonic(self) -> float:
        return self.simulation.now_us / SECOND_US

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.simulation.now_us // MS_US + self.clock_skew_ms

    def busy_ns(self) -> int:
        return self.simulation.now_us * 1000

    def reachable_host(self, host: str) -> str:
        return host

    def make_poller(self) -> SimulatedPoller:
        assert self._poller is None, "one process, one reactor"
        self._poller = SimulatedPoller(self)
        return self._poller

    def listen(
        self, address: Address, *, backlog: int, receive_buffer_bytes: int, send_buffer_bytes: int
    ) -> SimulatedAccepting:
        accepting = self._network.listen(self, address)
        self.sockets[accepting.fd] = accepting
        return accepting

    def listen_locally(self) -> None:
        return None

    def connect(self, address: Address) -> SimulatedTransport:
        transport = self._network.connect(self, address)
        self.sockets[transport.fd] = transport
        return transport

    def start_worker(self, name: str, on_crash: OnCrash) -> Worker:
        return SimulatedWorker(self, name, on_crash)

    def side_by_side(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
    ) -> Iterator[Result]:
        return map(work, items)

    def start_isolated(
        self,
        work: IsolatedWork[Task, TaskEvent],
        failed: Callable[[str, bool], TaskEvent],
        post: Callable[[Callable[[], None]], None],
    ) -> SimulatedIsolated[Task, TaskEvent]:
        return SimulatedIsolated(self, work, post)

    def give_way(self) -> None:
        pass

    def make_lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    # For its sockets

    def forget(self, socket: SimulatedTransport | SimulatedAccepting) -> None:
        self.sockets.pop(socket.fd, None)

    def transports(self) -> list[SimulatedTransport]:
        return [each for each in self.sockets.values() if isinstance(each, SimulatedTransport)]
