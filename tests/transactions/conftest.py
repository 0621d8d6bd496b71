"""One broker for transactions with real clients; each test has names of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """For a topic, a group or a transactional id."""
    return f"name-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """A topic of two partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return name
