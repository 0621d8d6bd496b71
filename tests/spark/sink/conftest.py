from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.sink.query import PARTITIONS, Query, sink_options
from tests.spark.topics import create_topic
from tidelog.client.cluster import Cluster
from tidelog.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.spark.connections import close_idle_clusters
from tidelog.testing import Broker

_SAFE_DOWNGRADE = 2


@pytest.fixture(scope="package")
def old_broker() -> Iterator[Broker]:
    """A broker whose transactions are those from before Kafka 4."""
    with Broker(mode="process") as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            update = FeatureUpdateKey(
                feature="transaction.version", max_version_level=1, upgrade_type=_SAFE_DOWNGRADE
            )
            response = cluster.ask_any(
                UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse
            )
            assert not response.error_code, response
        yield broker
    close_idle_clusters()


@pytest.fixture(params=["v2", "v1"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Brokers of both flows of transactions."""
    name = "broker" if request.param == "v2" else "old_broker"
    broker = request.getfixturevalue(name)
    assert isinstance(broker, Broker)
    return broker.bootstrap_servers


@pytest.fixture
def query(bootstrap: str, topic: str) -> Query:
    create_topic(bootstrap, topic, PARTITIONS)
    return Query(sink_options(bootstrap, topic))
