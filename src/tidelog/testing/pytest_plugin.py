"""The fixture `tidelog_broker` for pytest; it comes with the package and needs no import."""

from collections.abc import Iterator

import pytest

from tidelog.testing.broker import Broker


@pytest.fixture(scope="session")
def tidelog_broker() -> Iterator[Broker]:
    """A broker for the whole test session: `tidelog_broker.bootstrap_servers`.

    Use topics and groups of your own in each test.
    """
    with Broker() as broker:
        yield broker
