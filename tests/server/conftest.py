"""Real nodes for tests that talk to them on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.running_node import RunningNode


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., RunningNode]]:
    """Start nodes with settings of the test's own: `start_node({"num.partitions": "3"})`."""
    started: list[RunningNode] = []

    def start(settings: dict[str, str] | None = None, data: Path | None = None) -> RunningNode:
        node = RunningNode(data or tmp_path / "data", settings)
        started.append(node)
        return node

    yield start
    for node in started:
        node.stop()


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that the tests of a module share, each with topics of its own."""
    # A client that has gone looks like one that only ended its side: tests need not wait for it.
    settings = {"socket.unread.timeout.ms": "1000"}
    node = RunningNode(tmp_path_factory.mktemp("shared") / "data", settings)
    yield node
    node.stop()


@pytest.fixture
def served(start_node: Callable[..., RunningNode]) -> RunningNode:
    """A node with fresh data."""
    return start_node()
