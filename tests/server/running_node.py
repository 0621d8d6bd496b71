"""A real node in a thread on a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidelog.promise import Promise
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.create_topics import CreatableTopicConfig as TopicConfig
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.node import Node
from tidelog.testing.wire import WireClient
from tidelog.world.files import Files
from tidelog.world.operating_system import OperatingSystem

Result = TypeVar("Result")

_TIMEOUT_S = 30.0

_FOR_TESTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "logging.level": "error",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class RunningNode:
    """A node that serves on a thread of its own."""

    def __init__(
        self, data: Path, settings: dict[str, str] | None = None, files: Files | None = None
    ) -> None:
        self.data = data
        config = NodeConfig({**_FOR_TESTS, "log.dirs": str(data), **(settings or {})})
        self.node = Node(config, OperatingSystem(files))
        self.node.start()
        self.host, self.port = self.node.addresses[0]
        self._clients: list[WireClient] = []
        self._thread = threading.Thread(target=self.node.run, daemon=True)
        self._thread.start()

    def client(
        self, client_id: str | None = "test", receive_buffer_bytes: int | None = None
    ) -> WireClient:
        """A connection of its own; closed with the node."""
        client = WireClient(
            self.host,
            self.port,
            client_id=client_id,
            timeout_s=_TIMEOUT_S,
            receive_buffer_bytes=receive_buffer_bytes,
        )
        self._clients.append(client)
        return client

    def call(self, work: Callable[[], Result]) -> Result:
        """Run `work` on the node's loop and return what it returns."""
        done = threading.Event()
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again in the test
                errors.append(error)
            finally:
                done.set()

        self.node.reactor.post(run)
        assert done.wait(_TIMEOUT_S), "the node's loop does not turn"
        if errors:
            raise errors[0]
        return results[0]

    def wait_for(self, ask: Callable[[], Promise[Result]]) -> Result:
        """Run `ask` on the node's loop and return what its promise comes to."""
        done = threading.Event()
        promise = self.call(ask)
        self.call(lambda: promise.when_done(lambda _: done.set()))
        assert done.wait(_TIMEOUT_S), "the promise is not settled"
        return promise.result()

    def wait_until(self, holds: Callable[[Node], bool]) -> None:
        """Wait until something holds for the node, as its loop sees it."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.call(lambda: holds(self.node)):
            assert time.monotonic() < deadline, "it does not come true"
            time.sleep(0.005)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; `retention_ms="5"` is its setting retention.ms. Returns its id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                TopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        with WireClient(self.host, self.port) as client:
            (row,) = client.call(request, 7).topics
        assert row.error_code == 0, row
        topic_id: bytes = row.topic_id
        return topic_id

    def stop(self) -> None:
        """Shut down cleanly and wait for it."""
        for client in self._clients:
            client.close()
        self.node.request_stop()
        self.join()

    def join(self) -> None:
        """Wait for the end of a node that was told to stop."""
        for client in self._clients:
            client.close()
        self._thread.join(_TIMEOUT_S)
        assert not self._thread.is_alive(), "the node does not stop"
