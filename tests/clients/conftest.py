"""One broker for the tests with real clients; each test has topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tidelog.testing import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(settings={"message.max.bytes": str(12 * 1024 * 1024)}) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"
