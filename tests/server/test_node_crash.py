"""A bug in a background thread ends the node: waiters are told, the log says why, it exits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.server.batches import batch, produce_request
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import ConnectionEnded, WireClient

pytestmark = pytest.mark.realtime

_TIMEOUT_S = 60

_RUN = """
import sys
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.process import run_node
import tidelog.cli

def ready(node):
    print(node.addresses[0][1], flush=True)
    node.reactor.call_later(0.2, lambda: break_it(node))

def broken(*arguments):
    raise TypeError("injected bug")

BREAK

config = NodeConfig({
    "log.dirs": sys.argv[1],
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.cleaner.backoff.ms": "50",
})
tidelog.cli.tidelog = lambda standalone_mode: run_node(config, on_ready=ready)
tidelog.cli.main()
"""

_IN_JOURNAL = """
from tidelog.storage.journal.writer import JournalWriter

def break_it(node):
    JournalWriter._choose_direct = broken
"""

_IN_CHECKPOINT = """
from tidelog.storage.directories import checkpointer

def break_it(node):
    checkpointer.write_offsets = broken
"""

_IN_DELETION = """
from tidelog.storage.directories.serving_directory import ServingDirectory

def break_it(node):
    ServingDirectory._remove_deleted = broken
    delete_first_log(node)

def delete_first_log(node):
    if node.store.logs:
        node.store.delete(next(iter(node.store.logs)))
    else:
        node.reactor.call_later(0.05, lambda: delete_first_log(node))
"""


class _Crash:
    """A node in a process of its own that runs into a bug after a moment."""

    def __init__(self, data: Path, how: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN.replace("BREAK", how), str(data)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._killer = threading.Timer(_TIMEOUT_S, self._process.kill)
        self._killer.start()
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> str:
        """Waits for the process to exit with an error, and returns what it logged."""
        _, errors = self._process.communicate()
        self._killer.cancel()
        assert self._process.returncode == 1, (self._process.returncode, errors.decode())
        return errors.decode()


def _produce_until_refused(client: WireClient) -> int:
    """The error code of the first append that fails; -1 when the connection ends before."""
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    try:
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        while True:
            answer = client.call(produce_request("orders", {0: batch(b"x")}), 9)
            row = answer.responses[0].partition_responses[0]
            if row.error_code:
                return int(row.error_code)
    except (OSError, ConnectionEnded):
        return -1


def test_a_bug_in_the_journals_thread_fails_its_waiters_and_ends_the_process(
    tmp_path: Path,
) -> None:
    crash = _Crash(tmp_path, _IN_JOURNAL)
    with WireClient("127.0.0.1", crash.port, timeout_s=_TIMEOUT_S) as client:
        assert _produce_until_refused(client) == ErrorCode.KAFKA_STORAGE_ERROR
    logged = crash.end()
    assert "CRITICAL thread_failed" in logged
    assert "TypeError: injected bug" in logged
    assert "error: " in logged
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("how", [_IN_CHECKPOINT, _IN_DELETION], ids=["checkpoint", "deletion"])
def test_a_bug_on_the_maintenance_thread_ends_the_process(tmp_path: Path, how: str) -> None:
    crash = _Crash(tmp_path, how)
    with WireClient("127.0.0.1", crash.port, timeout_s=_TIMEOUT_S) as client:
        _produce_until_refused(client)
    logged = crash.end()
    assert "CRITICAL thread_failed" in logged
    assert "TypeError: injected bug" in logged
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
