"""A real broker for tests: in a thread of this process, or in a process of its own."""

from __future__ import annotations

import random
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tidelog.errors import TidelogError
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.supervision.node_process import NodeProcess

if TYPE_CHECKING:
    from tidelog.server.node import Node

_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_HOST = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections: a port that a killed
# broker leaves is still free when it starts again.
_PORTS = (20_000, 32_000)

# What makes tests quick: a group forms at once, and internal topics are small.
_FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
}


class BrokerError(TidelogError):
    """The broker did not start or stop as it should."""


class Broker:
    """A broker on a free port of the loopback, ended with the `with` block.

    `mode="thread"` starts fastest; `mode="process"` can be killed and started again on the same
    data and port. `settings` are those of the node, by Kafka's names. Data is in a temporary
    folder unless `data` is given; a given folder is kept. In process mode, `join` has addresses of
    a cluster that the broker joins at its first start, and its output goes to `output`.
    """

    def __init__(
        self,
        *,
        mode: Literal["thread", "process"] = "thread",
        data: Path | str | None = None,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        join: str = "",
        output: Path | None = None,
    ) -> None:
        if mode == "thread" and join:
            raise BrokerError("only a broker in process mode can join a cluster")
        self._mode = mode
        self._join = join
        self._output = output
        self._own_folder = data is None
        self.data = Path(tempfile.mkdtemp(prefix="tidelog-") if data is None else data)
        self.port = port or free_port()
        self._settings = {**_FOR_TESTS, **(settings or {})}
        self._running: _ThreadBroker | _ProcessBroker | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"{_HOST}:{self.port}"

    @property
    def node(self) -> Node:
        """The node itself, in thread mode. It belongs to the broker's thread."""
        if not isinstance(self._running, _ThreadBroker):
            raise BrokerError("only a running broker in thread mode has its node here")
        return self._running.node

    @property
    def pid(self) -> int:
        """The broker's process, in process mode."""
        if not isinstance(self._running, _ProcessBroker):
            raise BrokerError("only a running broker in process mode has a pid of its own")
        return self._running.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, was not stopped, and in process mode has not ended by itself."""
        running = self._running
        return running is not None and (
            isinstance(running, _ThreadBroker) or running.process.status is None
        )

    def start(self) -> None:
        """Start, or start again on the same data and port; returns when it serves."""
        self.begin_start()
        self.await_start()

    def begin_start(self) -> None:
        """Start and do not wait: nodes of a cluster may need each other to serve."""
        if self._running is not None:
            raise BrokerError("the broker runs already")
        settings = {
            "listeners": f"PLAINTEXT://{_HOST}:{self.port}",
            "log.dirs": str(self.data),
            **self._settings,
        }
        if self._mode == "thread":
            self._running = _ThreadBroker(settings, self.port)
        else:
            is_new = not (self.data / META_PROPERTIES).exists()
            self._running = _ProcessBroker(settings, self._output, self._join if is_new else "")

    def await_start(self) -> None:
        """Wait until it serves."""
        if self._running is None:
            raise BrokerError("the broker was not started")
        try:
            self._running.await_start()
        except BrokerError:
            self._running = None
            raise

    def stop(self) -> None:
        """Shut down cleanly; does nothing when it does not run."""
        self.begin_stop()
        self.await_stop()

    def begin_stop(self) -> None:
        """Shut down cleanly and do not wait."""
        if self._running is not None:
            self._running.begin_stop()

    def await_stop(self) -> None:
        """Wait until a clean shutdown is over."""
        if self._running is not None:
            running, self._running = self._running, None
            running.await_stop()

    def kill(self) -> None:
        """kill -9, in process mode."""
        running, self._running = self._process("killed"), None
        running.kill()

    def pause(self) -> None:
        """SIGSTOP, in process mode: it does nothing any more, and its connections stay."""
        self._process("paused").process.pause()

    def resume(self) -> None:
        """SIGCONT: go on after `pause`."""
        self._process("resumed").process.resume()

    def _process(self, done: str) -> _ProcessBroker:
        if not isinstance(self._running, _ProcessBroker):
            raise BrokerError(f"only a running broker in process mode can be {done}")
        return self._running

    def close(self) -> None:
        """Stop, and remove the data if the folder was ours."""
        try:
            self.stop()
        finally:
            if self._own_folder:
                shutil.rmtree(self.data, ignore_errors=True)


class _ThreadBroker:
    def __init__(self, settings: Mapping[str, str], port: int) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._node: Node | None = None
        self._thread = threading.Thread(target=self._run, name=f"tidelog-{port}", daemon=True)
        self._thread.start()

    def await_start(self) -> None:
        if not self._ready.wait(_READY_TIMEOUT_S):
            raise BrokerError(f"the broker is not ready after {_READY_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise BrokerError(f"the broker did not start: {self._failure}") from self._failure

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    def begin_stop(self) -> None:
        self.node.request_stop()

    def await_stop(self) -> None:
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise BrokerError(f"the broker did not stop within {_STOP_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise BrokerError(f"the broker failed: {self._failure}") from self._failure

    def _run(self) -> None:
        from tidelog.server.configuration.node_config import NodeConfig
        from tidelog.server.process import run_node

        try:
            run_node(NodeConfig(self._settings), on_ready=self._serves, handle_signals=False)
        except BaseException as error:  # noqa: BLE001  it is raised again in the test's thread
            self._failure = error
        finally:
            self._ready.set()

    def _serves(self, node: Node) -> None:
        self._node = node
        self._ready.set()


class _ProcessBroker:
    def __init__(self, settings: Mapping[str, str], output: Path | None, join: str) -> None:
        self._own_output = output is None
        if output is None:
            with tempfile.NamedTemporaryFile(prefix="tidelog-", suffix=".log", delete=False) as own:
                output = Path(own.name)
        self._output = output
        self.process = NodeProcess(settings, output, join=join)

    def await_start(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self.process.is_ready:
            if self.process.status is not None or time.monotonic() > deadline:
                last_words = self.process.last_words
                self.kill()
                raise BrokerError(f"the broker did not start: {last_words}")
            time.sleep(0.005)

    def begin_stop(self) -> None:
        self.process.terminate()

    def await_stop(self) -> None:
        status = self.process.wait(_STOP_TIMEOUT_S)
        last_words = self.process.last_words if status else ""
        self.kill()
        if status is None:
            raise BrokerError(f"the broker did not stop within {_STOP_TIMEOUT_S:g} s")
        if status:
            raise BrokerError(f"the broker ended with status {status}: {last_words}")

    def kill(self) -> None:
        self.process.kill()
        if self._own_output:
            self._output.unlink(missing_ok=True)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    for _ in range(200):
        port = random.randint(*_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return port
    raise BrokerError(f"no free port between {_PORTS[0]} and {_PORTS[1]}")
