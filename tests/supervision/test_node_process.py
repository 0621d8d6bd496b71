"""A node as a process: it says when it is ready, and never outlives who started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.supervision.node_process import NodeProcess
from tidelog.testing.broker import free_port

_TIMEOUT_S = 30.0

# Starts a node as a supervisor does, prints its pid when it is ready, and waits to be killed.
_PARENT = """
import sys, time
from pathlib import Path
from tidelog.supervision.node_process import NodeProcess
port, folder = sys.argv[1:]
node = NodeProcess(
    {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": f"{folder}/data"},
    Path(folder) / "node.log",
)
while not node.is_ready:
    time.sleep(0.01)
print(node.pid, flush=True)
time.sleep(600)
"""


def settings(folder: Path) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "log.dirs": str(folder / "data"),
    }


def await_ready(node: NodeProcess) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not node.is_ready:
        assert node.status is None, node.last_words
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_node_starts_pauses_and_ends_cleanly(tmp_path: Path) -> None:
    node = NodeProcess(settings(tmp_path), tmp_path / "node.log")
    try:
        assert not node.is_ready
        await_ready(node)
        node.pause()
        node.resume()
        node.pause()
        node.terminate()  # a paused node goes on to end
        assert node.wait(_TIMEOUT_S) == 0
    finally:
        node.kill()
    assert "node_stopped" in node.last_words


def test_a_node_that_cannot_start_leaves_its_last_words(tmp_path: Path) -> None:
    node = NodeProcess({**settings(tmp_path), "num.partition": "1"}, tmp_path / "node.log")
    assert node.wait(_TIMEOUT_S) == 1
    assert "num.partitions" in node.last_words
    assert not node.is_ready


def test_the_environment_sets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_NUM_PARTITION", "1")
    node = NodeProcess(settings(tmp_path), tmp_path / "node.log")
    try:
        await_ready(node)
    finally:
        node.kill()


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_node_ends_when_its_parent_is_killed(tmp_path: Path, is_paused: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(free_port()), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    try:
        if is_paused:
            os.kill(pid, signal.SIGSTOP)
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + _TIMEOUT_S
    while is_alive(pid):
        assert time.monotonic() < deadline, "the node outlived its parent"
        time.sleep(0.02)
    assert "node_stopped" in (tmp_path / "node.log").read_text()
