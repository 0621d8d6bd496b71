"""What the supervisor does with its nodes, with real processes."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidelog.supervision.supervisor import NodePlan, State, SupervisionError, Supervisor
from tidelog.testing.broker import free_port

_TIMEOUT_S = 30.0

Make = Callable[..., Supervisor]


class Clock:
    """Time that passes as it does, and faster when a test wants it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Iterator[Make]:
    made: list[Supervisor] = []

    def supervisor(count: int, **settings: str) -> Supervisor:
        plans = []
        for number in range(1, count + 1):
            port = free_port()
            data = tmp_path / f"node-{number}"
            own = {
                "node.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(data),
            }
            output = tmp_path / f"node-{number}.log"
            plans.append(NodePlan(number, ("127.0.0.1", port), data, output, {**own, **settings}))
        made.append(Supervisor(plans, clock=clock, sleep=time.sleep))
        return made[-1]

    yield supervisor
    for each in made:
        each.stop(_TIMEOUT_S)


def tick_until(supervisor: Supervisor, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, [node.state for node in supervisor.nodes]
        supervisor.tick()
        time.sleep(0.01)


def test_a_crashed_node_is_started_again_after_pauses_that_grow(make: Make, clock: Clock) -> None:
    supervisor = make(1)
    (node,) = supervisor.nodes
    pauses = []
    for round_ in range(3):
        tick_until(supervisor, lambda: node.state is State.RUNNING)
        assert node.restarts == round_
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGKILL)
        tick_until(supervisor, lambda: node.state is State.CRASHED)
        assert node.note == "killed by signal 9"
        pauses.append(node.next_start_s - clock())
        clock.ahead_s += 60
    assert pauses[0] == pytest.approx(0.5, abs=0.2)
    assert pauses[1] == pytest.approx(1.0, abs=0.2)
    assert pauses[2] == pytest.approx(2.0, abs=0.2)
    # A node that has run for a while begins with the short pause again.
    tick_until(supervisor, lambda: node.state is State.RUNNING)
    clock.ahead_s += 60
    supervisor.tick()
    assert node.pause_s == pytest.approx(0.5)


def test_nodes_stop_together_and_cleanly(make: Make) -> None:
    supervisor = make(1)
    tick_until(supervisor, lambda: all(each.state is State.RUNNING for each in supervisor.nodes))
    assert supervisor.stop(_TIMEOUT_S) == []
    assert all(each.state is State.STOPPED for each in supervisor.nodes)
    assert all("node_stopped" in each.plan.output.read_text() for each in supervisor.nodes)


def test_a_node_that_does_not_stop_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = make(1)
    (node,) = supervisor.nodes
    tick_until(supervisor, lambda: node.state is State.RUNNING)
    assert node.process is not None
    process = node.process
    monkeypatch.setattr(process, "terminate", lambda: None)
    assert supervisor.stop(0.1) == [node]
    assert process.status == -signal.SIGKILL


def test_a_node_that_never_served_ends_the_supervision_with_its_words(make: Make) -> None:
    supervisor = make(1, **{"num.partition": "1"})
    with pytest.raises(SupervisionError, match=r"node 1 did not start.*num\.partitions"):
        tick_until(supervisor, lambda: False)


def test_new_nodes_wait_for_the_first_and_known_ones_for_nobody(make: Make) -> None:
    supervisor = make(2)
    supervisor.tick()
    assert [node.state for node in supervisor.nodes] == [State.STARTING, State.WAITING]
    first = supervisor.nodes[0]
    tick_until(supervisor, lambda: first.state is State.RUNNING)
    tick_until(supervisor, lambda: supervisor.nodes[1].state is State.STARTING)
    tick_until(supervisor, lambda: supervisor.nodes[1].state is State.RUNNING)
    supervisor.stop(_TIMEOUT_S)
    again = Supervisor(
        [node.plan for node in supervisor.nodes], clock=time.monotonic, sleep=time.sleep
    )
    try:
        again.tick()
        assert [node.state for node in again.nodes] == [State.STARTING, State.STARTING]
        tick_until(again, lambda: all(node.state is State.RUNNING for node in again.nodes))
    finally:
        again.stop(_TIMEOUT_S)
