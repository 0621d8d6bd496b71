"""`tidelog cluster` and `tidelog node`, as a user runs them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, run_command
from tests.cli.interruptible import INTERRUPTIBLE
from tests.cli.terminal import on_terminal
from tidelog.testing import Broker, Cluster
from tidelog.testing.broker import free_port

_TIMEOUT_S = 60.0


class RunningCluster:
    """`tidelog cluster up`, with its output in a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text()

    def wait_for(self, is_there: Callable[[str], object]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_there(self.text):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def pids(self, node: int) -> list[int]:
        """Of a node's processes, the latest last."""
        lines = re.findall(rf"node {node} .*running  pid (\d+)", self.text)
        return [int(pid) for pid in lines]


@contextmanager
def running_cluster(folder: Path, *options: str) -> Iterator[RunningCluster]:
    output = folder / "output.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*INTERRUPTIBLE, "cluster", "up", "--data", str(folder / "cluster"), *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield RunningCluster(process, output)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _free_ports(count: int) -> int:
    """The first of several free ports in a row."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_all_nodes_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    port = free_port()
    with running_cluster(tmp_path, "--nodes", "1", "--port", str(port)) as cluster:
        cluster.wait_for(lambda text: "all nodes run" in text)
        assert f"Kafka clients connect to 127.0.0.1:{port}" in cluster.text
        (pid,) = cluster.pids(1)
        cluster.process.send_signal(ending)
        assert cluster.process.wait(_TIMEOUT_S) == 0
        assert not is_alive(pid)
    assert "stopped" in cluster.text
    assert "node_stopped" in (tmp_path / "cluster" / "node-1.log").read_text()


def test_a_killed_node_comes_back_with_its_data(tmp_path: Path) -> None:
    port = free_port()
    with running_cluster(tmp_path, "--nodes", "1", "--port", str(port)) as cluster:
        cluster.wait_for(lambda text: "all nodes run" in text)
        address = f"127.0.0.1:{port}"
        created = run_command("topic", "create", "kept", "-p", "2", bootstrap=address)
        assert created.returncode == 0, created.stderr
        os.kill(cluster.pids(1)[0], signal.SIGKILL)
        cluster.wait_for(lambda text: "crashed  killed by signal 9" in text)
        cluster.wait_for(lambda _: len(cluster.pids(1)) == 2)
        shown = run_command("cluster", "status", "--json", bootstrap=address)
        assert shown.returncode == 0, shown.stderr
        state = json.loads(shown.stdout)
        assert state["partitions"]["total"] == 2
        assert state["nodes"][0]["rack"] == os.uname().nodename
        cluster.process.terminate()
        assert cluster.process.wait(_TIMEOUT_S) == 0


def test_three_nodes_make_a_cluster_that_outlives_the_kill_of_one(tmp_path: Path) -> None:
    port = _free_ports(3)
    addresses = [f"127.0.0.1:{port + number}" for number in range(3)]

    def status(*, at: int) -> tuple[int, dict[str, Any]]:
        shown = run_command("cluster", "status", "--json", bootstrap=addresses[at])
        return shown.returncode, json.loads(shown.stdout)

    with running_cluster(tmp_path, "--nodes", "3", "--port", str(port)) as cluster:
        cluster.wait_for(lambda text: "all nodes run" in text)
        created = run_command("topic", "create", "orders", "-p", "3", bootstrap=addresses[1])
        assert created.returncode == 0, created.stderr
        deadline = time.monotonic() + _TIMEOUT_S
        while len(status(at=0)[1]["quorum"]["voters"]) < 3:
            assert time.monotonic() < deadline
        code, state = status(at=2)
        assert (code, state["health"]) == (0, "healthy")
        assert [node["replicas"] for node in state["nodes"]] == [3, 3, 3]
        assert {node["rack"] for node in state["nodes"]} == {os.uname().nodename}
        os.kill(cluster.pids(1)[0], signal.SIGKILL)
        cluster.wait_for(lambda text: "crashed  killed by signal 9" in text)
        produced = run_command(
            "produce", "orders", given="written meanwhile\n", bootstrap=addresses[1]
        )
        assert produced.returncode == 0, produced.stderr
        cluster.wait_for(lambda _: len(cluster.pids(1)) == 2)
        while status(at=0)[0] != 0:
            assert time.monotonic() < deadline, status(at=0)
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(_TIMEOUT_S) == 0
    for number in (1, 2, 3):
        assert "node_stopped" in (tmp_path / "cluster" / f"node-{number}.log").read_text()


def test_a_lost_node_is_removed_and_comes_back_empty(tmp_path: Path) -> None:
    with Cluster(nodes=3, data=tmp_path) as cluster:
        lost, address = 3, cluster.brokers[1].bootstrap_servers
        cluster.kill(lost)
        shutil.rmtree(cluster.brokers[lost].data)
        removed = run_command("node", "remove", str(lost), "--voter-only", bootstrap=address)
        assert removed.returncode == 0, removed.stderr
        assert removed.stdout == f"removed node {lost} from the voters\n"
        again = run_command("node", "remove", str(lost), "--voter-only", bootstrap=address)
        assert again.stdout == f"node {lost} has no vote\n"
        cluster.start(lost)
        cluster.await_serving()
        assert sorted(cluster.members().quorum.voter_ids) == [1, 2, 3]


def test_nodes_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--nodes", "1", "--port", str(free_port())) as cluster:
        cluster.wait_for(lambda text: "all nodes run" in text)
        (pid,) = cluster.pids(1)
        cluster.process.kill()
        cluster.process.wait()
        deadline = time.monotonic() + _TIMEOUT_S
        while is_alive(pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_port_in_use_ends_everything_with_the_nodes_words(tmp_path: Path, broker: Broker) -> None:
    with running_cluster(tmp_path, "--nodes", "1", "--port", str(broker.port)) as cluster:
        assert cluster.process.wait(_TIMEOUT_S) == 1
    assert "node 1 did not start" in cluster.text
    assert "Address already in use" in cluster.text
    assert "Traceback" not in cluster.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "node.id=3"), "every node has its own"),
        (("--port", "65535"), "leaves no ports for 3 nodes"),
        (("--nodes", "0"), "--nodes"),
        (("--set", "x"), "is not NAME=VALUE"),
    ],
)
def test_a_wrong_command_line_is_told(options: tuple[str, ...], message: str) -> None:
    done = run_command("cluster", "up", *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_on_a_terminal_a_table_shows_the_nodes(tmp_path: Path, broker: Broker) -> None:
    port = free_port()
    options = ("--nodes", "1", "--port", str(port), "--data", str(tmp_path / "cluster"))
    with on_terminal(broker, "cluster", "up", *options) as terminal:
        terminal.read_until(lambda text: "running" in text)
        assert "restarts" in terminal.text
        assert f"127.0.0.1:{port}" in terminal.text
        assert terminal.ctrl_c() == 0
        assert "stopped" in terminal.text
        assert terminal.shows_cursor


def test_status_shows_quorum_nodes_and_partitions(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "3")
    shown = run("cluster", "status").stdout
    assert "healthy" in shown
    assert re.search(r"quorum {2}leader 1, epoch \d+, voters 1, offset \d+", shown)
    assert "under-replicated 0, offline 0, under min ISR 0" in shown
    state = json.loads(run("cluster", "status", "--json").stdout)
    assert state["health"] == "healthy"
    assert state["quorum"]["voters"] == [1]
    (node,) = state["nodes"]
    assert (node["node"], node["state"], node["quorum"], node["metadata_lag"]) == (
        1,
        "serving",
        "leader",
        0,
    )
    assert node["leaders"] == node["replicas"] == state["partitions"]["total"] >= 3


def test_status_says_when_nobody_answers() -> None:
    done = run_command("cluster", "status")
    assert done.returncode == 1
    assert "is one running?" in done.stderr


def test_status_is_watched_until_it_is_interrupted(broker: Broker) -> None:
    process = subprocess.Popen(
        [*INTERRUPTIBLE, "cluster", "status", "--watch", "--json", "--interval", "0.1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "TIDELOG_BOOTSTRAP": broker.bootstrap_servers},
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as lines:
        states = [json.loads(lines.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(_TIMEOUT_S) == 0
    assert [state["health"] for state in states] == ["healthy"] * 3


def test_nodes_are_listed_and_described(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    assert "serving" in run("node", "list").stdout
    (row,) = json.loads(run("node", "list", "--json").stdout)
    assert row["node"] == 1
    assert f"{topic}-1" in run("node", "describe", "1").stdout
    described = json.loads(run("node", "describe", "1", "--json").stdout)
    (partition,) = [row for row in described["partitions"] if row["partition"] == f"{topic}-1"]
    assert partition == {
        "partition": f"{topic}-1",
        "role": "leader",
        "in_sync": True,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
    }


@pytest.mark.parametrize("verb", ["describe", "remove"])
def test_a_node_that_is_not_there_is_told(run: Run, verb: str) -> None:
    done = run("node", verb, "9", status=3)
    assert "there is no node 9 in the cluster; it has 1" in done.stderr


def test_a_node_that_serves_is_not_removed(run: Run, broker: Broker) -> None:
    done = run("node", "remove", "1", status=1)
    assert f"node 1 serves at {broker.bootstrap_servers}; stop it first" in done.stderr
