"""DescribeConfigs: every setting, its value, source, type, documentation and synonyms."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic
from tidelog.cluster.settings.broker_config import BROKER_SETTINGS
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 3, 4, 5


def describe(
    wire: WireClient, type: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=type, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = wire.call(request, version).results
    assert (result.resource_type, result.resource_name) == (type, name)
    assert isinstance(result, DescribeConfigsResult)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_setting_of_a_topic_is_told(
    wire: WireClient, new_name: NewName, version: int
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic, cleanup_policy="compact", retention_ms="1000")
    configs = by_name(describe(wire, TOPIC, topic, version=version))
    assert configs.keys() == {setting.name for setting in TOPIC_SETTINGS}
    policy, segment = configs["cleanup.policy"], configs["segment.bytes"]
    assert (policy.value, policy.config_source, policy.read_only) == (
        "compact",
        DYNAMIC_TOPIC,
        False,
    )
    assert (segment.value, segment.config_source) == (str(1024**3), DEFAULT)
    if version >= 3:
        assert all(config.config_type > 0 and config.documentation for config in configs.values())
    synonyms = [(each.name, each.value, each.source) for each in configs["retention.ms"].synonyms]
    assert synonyms[0] == ("retention.ms", "1000", DYNAMIC_TOPIC)
    assert len(synonyms) == 1


def test_only_the_keys_asked_for_are_told(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    configs = by_name(describe(wire, TOPIC, topic, ["retention.ms", "no.such.key"]))
    assert list(configs) == ["retention.ms"]
    assert len(by_name(describe(wire, TOPIC, topic, []))) == len(TOPIC_SETTINGS)


def test_a_broker_tells_who_it_is_and_what_was_set(
    wire: WireClient, handlers_broker: Broker
) -> None:
    configs = by_name(describe(wire, BROKER, "1"))
    assert configs["node.id"].value == configs["broker.id"].value == "1"
    listener = f"PLAINTEXT://127.0.0.1:{handlers_broker.port}"
    assert configs["advertised.listeners"].value == listener
    assert configs["listeners"].value == listener
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source) == ("2", STATIC_BROKER)
    assert [(each.value, each.source) for each in partitions.synonyms] == [
        ("2", STATIC_BROKER),
        ("1", DEFAULT),
    ]
    assert configs["log.retention.hours"].value == "168"
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["auto.create.topics.enable"].read_only
    assert configs["group.initial.rebalance.delay.ms"].value == "0"
    assert all(config.config_type > 0 and config.documentation for config in configs.values())


def test_the_cluster_default_of_brokers_has_only_what_was_set(wire: WireClient) -> None:
    assert "num.partitions" not in by_name(describe(wire, BROKER, ""))


def test_groups_have_every_setting(wire: WireClient, new_name: NewName) -> None:
    configs = by_name(describe(wire, GROUP, new_name("group")))
    assert configs["consumer.session.timeout.ms"].value == "45000"
    assert configs["consumer.session.timeout.ms"].config_source == DEFAULT


def test_loggers_have_levels(wire: WireClient) -> None:
    root = by_name(describe(wire, LOGGER, "1"))["root"]
    assert root.value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert root.config_source == 6


def test_an_unknown_subscription_has_defaults(wire: WireClient, new_name: NewName) -> None:
    configs = by_name(describe(wire, CLIENT_METRICS, new_name("subscription")))
    assert {name: (each.value, each.config_source) for name, each in configs.items()} == {
        "interval.ms": ("300000", DEFAULT),
        "match": ("", DEFAULT),
        "metrics": ("", DEFAULT),
    }


def test_a_topic_without_settings_tells_the_sources_that_kafka_tells(
    wire: WireClient, new_name: NewName
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    configs = by_name(describe(wire, TOPIC, topic))
    sources = {name: each.config_source for name, each in configs.items()}
    assert sources.pop("min.insync.replicas") == DYNAMIC_DEFAULT_BROKER
    assert set(sources.values()) == {DEFAULT}
    told = {
        name: [(each.name, each.value, each.source) for each in configs[name].synonyms]
        for name in ("min.insync.replicas", "durability", "retention.ms", "flush.ms")
    }
    assert told == {
        "min.insync.replicas": [
            ("min.insync.replicas", "1", DYNAMIC_DEFAULT_BROKER),
            ("min.insync.replicas", "1", DEFAULT),
        ],
        "durability": [("durability", "fsync", DEFAULT)],
        "retention.ms": [],
        "flush.ms": [],
    }


def test_a_broker_has_every_setting_of_kafka(wire: WireClient) -> None:
    configs = by_name(describe(wire, BROKER, "1"))
    kafkas = {setting.name for setting in BROKER_SETTINGS if not setting.hidden}
    assert kafkas <= configs.keys()
    assert len(kafkas - {"durability", "record.validation.enable"}) == 340
    hidden = {setting.name for setting in BROKER_SETTINGS if setting.hidden}
    assert not hidden & configs.keys()
    assert not configs["log.cleaner.backoff.ms"].read_only
    assert configs["log.cleaner.threads"].read_only
    assert configs["ssl.key.password"].is_sensitive


@pytest.mark.parametrize(
    ("type", "name", "expected"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_resources_have_error_rows(
    wire: WireClient, type: int, name: str, expected: ErrorCode
) -> None:
    result = describe(wire, type, name)
    assert (result.error_code, result.configs) == (expected, [])
    assert result.error_message
