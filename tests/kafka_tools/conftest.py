from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kafka_tools.kafka_command import KafkaTools, missing_programs
from tidelog.testing import Cluster

NODES = 3


@pytest.fixture(scope="session")
def tools() -> KafkaTools:
    missing = missing_programs()
    if missing:
        pytest.skip(f"Kafka's tools need {' and '.join(missing)} on the PATH")
    return KafkaTools()


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools) -> Iterator[Cluster]:
    with Cluster(nodes=NODES) as cluster:
        yield cluster


@pytest.fixture
def run(tools: KafkaTools, cluster: Cluster) -> Callable[..., str]:
    """Runs a tool against the cluster."""

    def run(tool: str, *arguments: str) -> str:
        return tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments)

    return run
