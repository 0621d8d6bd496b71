"""GetTelemetrySubscriptions and PushTelemetry over the wire."""

from collections.abc import Callable

from tests.server.handlers.settings.test_alter_configs import CLIENT_METRICS, DELETE, SET, change
from tests.server.handlers.settings.test_describe_configs import by_name, describe
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from tidelog.protocol.apis.list_config_resources import ListConfigResourcesRequest
from tidelog.protocol.apis.push_telemetry import PushTelemetryRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def is_offered(wire: WireClient) -> bool:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    served = {each.api_key for each in wire.call(request, 3).api_keys}
    apis = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert len(served & apis) in (0, 2)
    return apis <= served


def test_a_client_without_a_subscription_pushes_nothing(wire: WireClient) -> None:
    response = wire.call(GetTelemetrySubscriptionsRequest(), 0)
    assert (response.error_code, response.requested_metrics) == (0, [])
    assert response.client_instance_id != ZERO_UUID
    assert response.accepted_compression_types == [4, 3, 1, 2]


def test_a_subscription_is_made_served_and_removed(wire: WireClient, new_name: NewName) -> None:
    name = new_name("subscription")
    made = change(
        wire,
        CLIENT_METRICS,
        name,
        ("metrics", SET, "org.apache.kafka.producer."),
        ("interval.ms", SET, "1000"),
        ("match", SET, "client_id=wire"),
    )
    assert made == 0
    assert by_name(describe(wire, CLIENT_METRICS, name))["interval.ms"].value == "1000"
    listed = wire.call(ListConfigResourcesRequest(), 0).config_resources
    assert name in [each.resource_name for each in listed]

    assert is_offered(wire)

    subscribed = wire.call(GetTelemetrySubscriptionsRequest(), 0)
    assert subscribed.requested_metrics == ["org.apache.kafka.producer."]
    assert subscribed.push_interval_ms == 1000
    push = PushTelemetryRequest(
        client_instance_id=subscribed.client_instance_id,
        subscription_id=subscribed.subscription_id,
        metrics=b"otlp",
    )
    assert wire.call(push, 0).error_code == 0
    push.subscription_id += 1
    push.terminating = True
    assert wire.call(push, 0).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID

    removed = change(
        wire,
        CLIENT_METRICS,
        name,
        ("metrics", DELETE, None),
        ("interval.ms", DELETE, None),
        ("match", DELETE, None),
    )
    assert removed == 0
    assert not is_offered(wire)
    assert wire.call(GetTelemetrySubscriptionsRequest(), 0).requested_metrics == []
