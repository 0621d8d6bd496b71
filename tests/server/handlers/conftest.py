"""One broker for the tests of all handlers: each test has topics of its own."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

_numbers = itertools.count()


@pytest.fixture(scope="session")
def handlers_broker() -> Iterator[Broker]:
    with Broker(settings={"num.partitions": "2", "broker.rack": "rack-a"}) as broker:
        yield broker


@pytest.fixture
def wire(handlers_broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", handlers_broker.port) as client:
        yield client


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """A name that no other test uses."""

    def make(prefix: str) -> str:
        return f"{prefix}-{next(_numbers)}"

    return make
