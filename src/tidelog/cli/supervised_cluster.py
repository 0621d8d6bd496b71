"""The nodes of `tidelog cluster up` while they run: a table that changes in place, or lines."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import click

from tidelog.cli.failures import EXIT_FAILED, fail
from tidelog.cli.output import console, table
from tidelog.supervision.supervisor import (
    NodePlan,
    State,
    SupervisedNode,
    SupervisionError,
    Supervisor,
)

_TICK_S = 0.1
_STOP_S_MAX = 30.0
_COLUMNS = ("node", "address", "pid", "state", "restarts", "note")


def run_supervised(plans: Sequence[NodePlan], *, join: str, is_plain: bool) -> None:
    """Keep the nodes running until a signal ends all of them."""
    supervisor = Supervisor(plans, join=join, clock=time.monotonic, sleep=time.sleep)
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ending.set())
    failure: BaseException | None = None
    try:
        if sys.stdout.isatty() and not is_plain:
            _show_live(supervisor, ending)
        else:
            _print_lines(supervisor, ending)
    except SupervisionError as error:
        failure = error
    finally:
        _print_line("stopping")
        killed = supervisor.stop(_STOP_S_MAX)
    for node in killed:
        _print_line(f"node {node.plan.number} did not stop within {_STOP_S_MAX:g} s: killed")
    if failure is not None:
        fail(str(failure))
    _print_line("stopped")
    if killed:
        raise click.exceptions.Exit(EXIT_FAILED)


def _show_live(supervisor: Supervisor, ending: threading.Event) -> None:
    from rich.live import Live

    with Live(_view(supervisor), console=console(), auto_refresh=False) as live:
        while not ending.is_set():
            if supervisor.tick():
                live.update(_view(supervisor), refresh=True)
            ending.wait(_TICK_S)


def _view(supervisor: Supervisor) -> Any:
    from rich.console import Group
    from rich.text import Text

    rows = [_row(node) for node in supervisor.nodes]
    servers = ",".join(node.plan.host_and_port for node in supervisor.nodes)
    return Group(
        table(rows, _COLUMNS),
        Text(f"Kafka clients connect to {servers}. Ctrl-C ends all nodes."),
        Text(
            "In another terminal: tidelog cluster status --watch "
            f"-b {supervisor.nodes[0].plan.host_and_port}"
        ),
    )


def _row(node: SupervisedNode) -> dict[str, Any]:
    return {
        "node": node.plan.number,
        "address": node.plan.host_and_port,
        "pid": None if node.process is None else node.process.pid,
        "state": node.state.value,
        "restarts": node.restarts,
        "note": node.note,
    }


def _print_lines(supervisor: Supervisor, ending: threading.Event) -> None:
    told: dict[int, tuple[State, int | None]] = {}
    is_told_ready = False
    while not ending.is_set():
        supervisor.tick()
        for node in supervisor.nodes:
            pid = None if node.process is None else node.process.pid
            if told.get(node.plan.number) != (node.state, pid):
                told[node.plan.number] = (node.state, pid)
                _print_line(_line(node, pid))
        if not is_told_ready and all(node.state is State.RUNNING for node in supervisor.nodes):
            is_told_ready = True
            servers = ",".join(node.plan.host_and_port for node in supervisor.nodes)
            _print_line(f"all nodes run; Kafka clients connect to {servers}")
        ending.wait(_TICK_S)


def _line(node: SupervisedNode, pid: int | None) -> str:
    parts = [f"node {node.plan.number}", node.plan.host_and_port, node.state.value]
    if pid is not None:
        parts.append(f"pid {pid}")
    if node.restarts:
        parts.append(f"restarts {node.restarts}")
    if node.state is State.CRASHED:
        parts.append(node.note)
    return "  ".join(parts)


def _print_line(text: str) -> None:
    # A reader that has gone, as a terminal that was closed, must not keep nodes from ending.
    try:
        click.echo(f"{time.strftime('%H:%M:%S')}  {text}")
    except OSError:
        pass
