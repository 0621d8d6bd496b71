"""AlterConfigs and IncrementalAlterConfigs: settings change, row by row."""

from collections.abc import Callable, Iterator

import pytest

from tests.server.handlers.admin_calls import create_topic
from tests.server.handlers.settings.test_describe_configs import by_name, describe
from tidelog.protocol.apis import alter_configs as replacing
from tidelog.protocol.apis import incremental_alter_configs as incremental
from tidelog.protocol.apis.describe_configs import DescribeConfigsResourceResult
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def replace(
    wire: WireClient, type: int, name: str, *, validate_only: bool = False, **configs: str
) -> int:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=type,
                resource_name=name,
                configs=[
                    replacing.AlterableConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    (row,) = wire.call(request, 2).responses
    assert (row.resource_type, row.resource_name) == (type, name)
    return int(row.error_code)


def change(
    wire: WireClient,
    type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> int:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=type,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in operations
                ],
            )
        ],
        validate_only=validate_only,
    )
    (row,) = wire.call(request, 1).responses
    assert (row.resource_type, row.resource_name) == (type, name)
    assert bool(row.error_message) is (row.error_code != 0)
    return int(row.error_code)


def configs_of(
    wire: WireClient, name: str, type: int = TOPIC
) -> dict[str, DescribeConfigsResourceResult]:
    return by_name(describe(wire, type, name))


@pytest.fixture
def topic(wire: WireClient, new_name: NewName) -> str:
    name = new_name("topic")
    create_topic(wire, name, retention_ms="1000", segment_bytes="2000000")
    return name


def test_replacing_takes_back_what_is_not_named(wire: WireClient, topic: str) -> None:
    assert replace(wire, TOPIC, topic, retention_ms="5000") == 0
    configs = configs_of(wire, topic)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
    assert configs["segment.bytes"].config_source == 5


def test_replacing_can_be_tried(wire: WireClient, topic: str) -> None:
    assert replace(wire, TOPIC, topic, validate_only=True, retention_ms="5000") == 0
    assert configs_of(wire, topic)["retention.ms"].value == "1000"


def test_replacing_refuses_wrong_values_and_log_levels(wire: WireClient, topic: str) -> None:
    assert replace(wire, TOPIC, topic, retention_ms="soon") == ErrorCode.INVALID_CONFIG
    assert replace(wire, LOGGER, "1", root="INFO") == ErrorCode.INVALID_REQUEST
    missing = replace(wire, TOPIC, "no-such-topic", retention_ms="1")
    assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_single_settings_are_set_and_deleted(wire: WireClient, topic: str) -> None:
    operations = [("retention.ms", DELETE, None), ("max.message.bytes", SET, "4096")]
    assert change(wire, TOPIC, topic, *operations, validate_only=True) == 0
    assert configs_of(wire, topic)["retention.ms"].value == "1000"
    assert change(wire, TOPIC, topic, *operations) == 0
    configs = configs_of(wire, topic)
    assert configs["retention.ms"].config_source == 5
    assert configs["max.message.bytes"].value == "4096"
    assert configs["segment.bytes"].value == "2000000"


def test_lists_are_appended_to_and_subtracted_from(wire: WireClient, topic: str) -> None:
    assert change(wire, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) == 0
    assert configs_of(wire, topic)["cleanup.policy"].value == "delete,compact"
    assert change(wire, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) == 0
    assert configs_of(wire, topic)["cleanup.policy"].value == "delete,compact"
    assert change(wire, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert configs_of(wire, topic)["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_wrong_changes_are_refused_and_change_nothing(
    wire: WireClient,
    topic: str,
    operations: list[tuple[str, int, str | None]],
    expected: ErrorCode,
) -> None:
    assert change(wire, TOPIC, topic, ("max.message.bytes", SET, "999"), *operations) == expected
    configs = configs_of(wire, topic)
    assert configs["retention.ms"].value == "1000"
    assert configs["max.message.bytes"].config_source == 5


@pytest.fixture
def restored_cluster_settings(wire: WireClient) -> Iterator[None]:
    yield
    for name in ("", "1"):
        assert change(wire, BROKER, name, ("log.retention.ms", DELETE, None)) == 0


@pytest.mark.usefixtures("restored_cluster_settings")
def test_topics_inherit_settings_of_brokers(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    assert change(wire, BROKER, "", ("log.retention.ms", SET, "7000")) == 0
    inherited = configs_of(wire, topic)["retention.ms"]
    assert (inherited.value, inherited.config_source) == ("7000", 3)
    assert change(wire, BROKER, "1", ("log.retention.ms", SET, "8000")) == 0
    inherited = configs_of(wire, topic)["retention.ms"]
    assert (inherited.value, inherited.config_source) == ("8000", 2)
    assert configs_of(wire, "", BROKER)["log.retention.ms"].value == "7000"


def test_settings_that_need_a_restart_cannot_be_changed(wire: WireClient) -> None:
    refused = change(wire, BROKER, "1", ("num.partitions", SET, "4"))
    assert refused in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert change(wire, BROKER, "9", ("log.retention.ms", SET, "1")) == ErrorCode.INVALID_REQUEST


def test_log_levels_change_at_once(wire: WireClient) -> None:
    before = configs_of(wire, "1", LOGGER)["root"].value
    assert before is not None
    assert change(wire, LOGGER, "1", ("root", SET, "ERROR")) == 0
    assert configs_of(wire, "1", LOGGER)["root"].value == "ERROR"
    assert change(wire, LOGGER, "1", ("root", SET, before)) == 0
    assert configs_of(wire, "1", LOGGER)["root"].value == before


@pytest.mark.parametrize(
    ("name", "operation", "expected"),
    [
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("another", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("5", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_log_levels_are_refused(
    wire: WireClient, name: str, operation: tuple[str, int, str | None], expected: ErrorCode
) -> None:
    assert change(wire, LOGGER, name, operation) == expected


def test_groups_have_settings_of_their_own(wire: WireClient, new_name: NewName) -> None:
    group = new_name("group")
    assert change(wire, GROUP, group, ("consumer.session.timeout.ms", SET, "50000")) == 0
    timeout = configs_of(wire, group, GROUP)["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.config_source) == ("50000", 8)


def test_resources_of_an_unknown_type_are_refused(wire: WireClient) -> None:
    assert change(wire, 77, "x", ("a", SET, "1")) == ErrorCode.INVALID_REQUEST
