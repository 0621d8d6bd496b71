"""Whatever a well-formed admin request says, it is answered, and no handler fails on it."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import project, structs
from tests.server.handlers.admin_calls import create_topic
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.fields import INT8, INT16, INT32, INT64, UINT16, UINT32, Primitive
from tidelog.protocol.registry import messages_of
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

ADMIN_APIS = [
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_RECORDS,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
]

# The ends of each range and the small numbers that mean something: ids, codes, special values.
NUMBERS: dict[Primitive, st.SearchStrategy[Any]] = {
    kind: st.sampled_from([low, -1, 0, 1, 2, 4, high] if low else [0, 1, 2, high])
    for kind, low, high in (
        (INT8, -(2**7), 2**7 - 1),
        (INT16, -(2**15), 2**15 - 1),
        (INT32, -(2**31), 2**31 - 1),
        (INT64, -(2**63), 2**63 - 1),
        (UINT16, 0, 2**16 - 1),
        (UINT32, 0, 2**32 - 1),
    )
}


@pytest.fixture(scope="module")
def victim() -> Iterator[Broker]:
    with Broker(settings={"logging.level": "error"}) as broker:
        with WireClient("127.0.0.1", broker.port) as wire:
            for name in ("a", "orders"):
                create_topic(wire, name, partitions=2)
        yield broker


@pytest.mark.parametrize("api", ADMIN_APIS, ids=lambda api: api.name.lower())
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_it_is_answered(victim: Broker, api: ApiKey, data: st.DataObject) -> None:
    request_class = messages_of(api).request
    served = victim.node.handlers[int(api)]
    version = data.draw(st.integers(served.min_version, served.max_version))
    request = project(data.draw(structs(request_class, NUMBERS)), version)
    with WireClient("127.0.0.1", victim.port) as wire:
        wire.call(request, version)
    assert victim.node.metrics.handler_failures == 0
