"""The consumer protocol (KIP-848) can be switched off by a setting."""

from tests.groups.conftest import SETTINGS
from tidelog.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient


def test_a_broker_with_classic_groups_only_refuses_the_consumer_protocol() -> None:
    settings = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic"}
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    with Broker(settings=settings) as broker, WireClient("127.0.0.1", broker.port) as client:
        client.call(FindCoordinatorRequest(key="g"), version=0)
        assert client.call(heartbeat, version=1).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), version=1).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
