"""One broker for the tests of the SDK; each test has topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tidelog.client import Client, connect
from tidelog.testing import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(settings={"broker.rack": "r1"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with connect(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: Client) -> str:
    name = f"sdk-{next(_numbers)}"
    client.create_topic(name, partitions=4)
    return name
