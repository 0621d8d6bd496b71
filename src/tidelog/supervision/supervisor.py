"""Keeps the nodes of one machine running: starts them, starts them again, ends them together.

A node whose directory has been used starts at once: the quorum may need it. A new one waits until
another node serves, which it joins; the very first one begins the cluster. A node that ends without
having been told to is started again, after a pause that doubles each time until it has run for a
while. One that ends before it has ever served is an error of its settings or of the machine, and
ends the supervision.

`tick` does what is due; the caller decides how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.supervision.node_process import NodeProcess

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STABLE_S = 60.0
_STOP_POLL_S = 0.05


class SupervisionError(TidelogError):
    """A node could not be started."""


class State(Enum):
    """Where a node is in its life."""

    WAITING = "waiting"
    """For a node that it can join."""
    STARTING = "starting"
    RUNNING = "running"
    CRASHED = "crashed"
    """It is started again after a pause."""
    STOPPED = "stopped"


@dataclass(slots=True, frozen=True)
class NodePlan:
    """What is needed to start a node. `number` counts the nodes of this supervisor from 1."""

    number: int
    address: tuple[str, int]
    data: Path
    output: Path
    settings: Mapping[str, str]

    @property
    def is_new(self) -> bool:
        return not (self.data / META_PROPERTIES).exists()

    @property
    def host_and_port(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(slots=True)
class SupervisedNode:
    """A node and what happened to it so far."""

    plan: NodePlan
    state: State = State.WAITING
    process: NodeProcess | None = None
    restarts: int = 0
    note: str = ""
    """Why it last ended."""
    has_served: bool = False
    started_s: float = 0.0
    next_start_s: float = 0.0
    pause_s: float = field(default=_FIRST_PAUSE_S)


class Supervisor:
    """The nodes of `plans`; `join` has addresses of a cluster that they are to be part of."""

    def __init__(
        self,
        plans: Sequence[NodePlan],
        *,
        join: str = "",
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.nodes = [SupervisedNode(plan) for plan in plans]
        self._join = join
        self._clock = clock
        self._sleep = sleep

    def tick(self) -> bool:
        """Do what is due; whether anything has changed. Raises SupervisionError."""
        before = [(node.state, node.process, node.restarts) for node in self.nodes]
        for node in self.nodes:
            self._look_at(node)
        for node in self.nodes:
            if node.state is State.WAITING:
                self._start_if_possible(node)
        return before != [(node.state, node.process, node.restarts) for node in self.nodes]

    def stop(self, timeout_s: float) -> list[SupervisedNode]:
        """End all nodes together; those that had to be killed are returned."""
        for node in self.nodes:
            if node.process is not None:
                node.process.terminate()
        deadline_s = self._clock() + timeout_s
        while any(self._is_alive(node) for node in self.nodes) and self._clock() < deadline_s:
            self._sleep(_STOP_POLL_S)
        killed = [node for node in self.nodes if self._is_alive(node)]
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
            node.state, node.process = State.STOPPED, None
        return killed

    def _look_at(self, node: SupervisedNode) -> None:
        now_s = self._clock()
        if node.state is State.CRASHED:
            if now_s >= node.next_start_s:
                node.restarts += 1
                node.state = State.WAITING
            return
        process = node.process
        if process is None:
            return
        status = process.status
        if status is not None:
            self._ended(node, process, status)
        elif node.state is State.STARTING and process.is_ready:
            node.state, node.has_served = State.RUNNING, True
        elif node.state is State.RUNNING and now_s - node.started_s >= _STABLE_S:
            node.pause_s = _FIRST_PAUSE_S

    def _ended(self, node: SupervisedNode, process: NodeProcess, status: int) -> None:
        process.wait(0)
        node.process = None
        words = process.last_words
        ending = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        if not node.has_served:
            raise SupervisionError(f"node {node.plan.number} did not start ({ending}): {words}")
        node.note = f"{ending}: {words.splitlines()[-1]}" if status > 0 and words else ending
        node.state = State.CRASHED
        node.next_start_s = self._clock() + node.pause_s
        node.pause_s = min(node.pause_s * 2, _LONGEST_PAUSE_S)

    def _start_if_possible(self, node: SupervisedNode) -> None:
        plan = node.plan
        join = ""
        if plan.is_new:
            join = self._join or self._serving()
            is_first = not self._join and all(each.plan.is_new for each in self.nodes)
            if not join and not (is_first and node is self.nodes[0]):
                return
            # Each is given a free id by the cluster, so they come one after the other.
            if join and "node.id" not in plan.settings and self._joins_now():
                return
        plan.data.parent.mkdir(parents=True, exist_ok=True)
        node.process = NodeProcess(plan.settings, plan.output, join=join)
        node.state, node.started_s = State.STARTING, self._clock()

    def _serving(self) -> str:
        return ",".join(
            node.plan.host_and_port for node in self.nodes if node.state is State.RUNNING
        )

    def _joins_now(self) -> bool:
        return any(node.state is State.STARTING for node in self.nodes)

    def _is_alive(self, node: SupervisedNode) -> bool:
        return node.process is not None and node.process.status is None
