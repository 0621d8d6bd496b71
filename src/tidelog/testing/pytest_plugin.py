"""Fixtures for pytest: `tidelog_broker`, `tidelog_cluster`. They come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tidelog.testing.broker import Broker

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster


@pytest.fixture(scope="session")
def tidelog_broker() -> Iterator[Broker]:
    """A broker for the whole test session: `tidelog_broker.bootstrap_servers`.

    Use topics and groups of your own in each test.
    """
    with Broker() as broker:
        yield broker


@pytest.fixture
def tidelog_cluster() -> Iterator[Cluster]:
    """Three nodes for one test, which may kill them: `tidelog_cluster.kill(1)`."""
    from tidelog.testing.cluster import Cluster

    with Cluster(nodes=3) as cluster:
        yield cluster
