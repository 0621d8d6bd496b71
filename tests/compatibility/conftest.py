"""One broker for these tests, raw connections to it, and topics of each test's own."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

_numbers = count(1)

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", broker.port) as client:
        yield client


@pytest.fixture
def make_topic(wire: WireClient) -> MakeTopic:
    def make(partitions: int = 1, **config: str) -> str:
        name = f"made-{next(_numbers)}"
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        answer = wire.call(CreateTopicsRequest(topics=[topic]), version=7)
        assert answer.topics[0].error_code == 0, answer.topics[0]
        return name

    return make
