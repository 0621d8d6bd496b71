import pytest

from tests.cluster.cluster_host import ClusterHost, outcome
from tidelog.cluster.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    ConfigReplacement,
    Operation,
    alter_configs,
    incremental_alter_configs,
)
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType

ORDERS = ConfigResource(ConfigResourceType.TOPIC, "orders")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
GROUP = ConfigResource(ConfigResourceType.GROUP, "readers")
METRICS = ConfigResource(ConfigResourceType.CLIENT_METRICS, "java")


@pytest.fixture
def host() -> ClusterHost:
    settings = ControllerSettings(1, broker_config={"log.cleanup.policy": "compact"})
    host = ClusterHost(settings=settings)
    host.create("orders")
    return host


def change(
    host: ClusterHost, resource: ConfigResource, *operations: tuple[str, int, str | None]
) -> str:
    wanted = ConfigChange(resource, [ConfigOperation(*each) for each in operations])
    (row,) = host.decide(incremental_alter_configs([wanted], host.image, host.settings))
    return outcome(row.error)


def replace(host: ClusterHost, resource: ConfigResource, **configs: str | None) -> str:
    values = {name.replace("_", "."): value for name, value in configs.items()}
    (row,) = host.decide(
        alter_configs([ConfigReplacement(resource, values)], host.image, host.settings)
    )
    return outcome(row.error)


def test_single_settings_are_set_and_deleted_and_the_others_stay(host: ClusterHost) -> None:
    assert change(host, ORDERS, ("retention.ms", Operation.SET, "5")) == "ok"
    assert change(host, ORDERS, ("retention.bytes", Operation.SET, "7")) == "ok"
    assert host.image.topic_configs("orders") == {"retention.ms": "5", "retention.bytes": "7"}
    assert change(host, ORDERS, ("retention.ms", Operation.DELETE, None)) == "ok"
    assert host.image.topic_configs("orders") == {"retention.bytes": "7"}


def test_lists_grow_and_shrink_from_what_holds_now(host: ClusterHost) -> None:
    # The broker's default is compact.
    assert change(host, ORDERS, ("cleanup.policy", Operation.APPEND, "delete")) == "ok"
    assert host.image.topic_configs("orders") == {"cleanup.policy": "compact,delete"}
    assert change(host, ORDERS, ("cleanup.policy", Operation.APPEND, "delete")) == "ok"
    assert host.image.topic_configs("orders") == {"cleanup.policy": "compact,delete"}
    assert change(host, ORDERS, ("cleanup.policy", Operation.SUBTRACT, "compact")) == "ok"
    assert host.image.topic_configs("orders") == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (
            ("retention.ms", Operation.APPEND, "5"),
            "INVALID_CONFIG: Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ("cleanup.policy", Operation.APPEND, "burn"),
            "INVALID_CONFIG: Invalid value compact,burn for configuration cleanup.policy: "
            "Each item must be one of: compact, delete",
        ),
        (
            ("retention.ms", Operation.SET, None),
            "INVALID_REQUEST: Null value not supported for : retention.ms",
        ),
        (("retention.ms", 9, "5"), "INVALID_REQUEST: Unknown operation type 9"),
        (
            ("remote.storage.enable", Operation.SET, "true"),
            "INVALID_CONFIG: Tiered storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_a_wrong_operation_is_refused(
    host: ClusterHost, operation: tuple[str, int, str | None], answer: str
) -> None:
    assert change(host, ORDERS, operation) == answer
    assert not host.image.topic_configs("orders")


def test_all_operations_on_a_resource_count_or_none(host: ClusterHost) -> None:
    assert change(
        host,
        ORDERS,
        ("retention.ms", Operation.SET, "5"),
        ("segment.bytes", Operation.SET, "1"),
    ) == (
        "INVALID_CONFIG: Invalid value 1 for configuration segment.bytes: Value must be at least 14"
    )
    assert not host.image.topic_configs("orders")
    assert change(
        host, ORDERS, ("retention.ms", Operation.SET, "5"), ("retention.ms", Operation.SET, "6")
    ) == ("INVALID_REQUEST: Error due to duplicate config keys: retention.ms")


def test_a_replacement_drops_what_it_does_not_name(host: ClusterHost) -> None:
    assert replace(host, ORDERS, retention_ms="5", segment_ms="9") == "ok"
    assert replace(host, ORDERS, retention_ms="6") == "ok"
    assert host.image.topic_configs("orders") == {"retention.ms": "6"}
    assert replace(host, ORDERS) == "ok"
    assert not host.image.topic_configs("orders")


def test_validation_alone_changes_nothing(host: ClusterHost) -> None:
    decision = alter_configs(
        [ConfigReplacement(ORDERS, {"retention.ms": "5"})],
        host.image,
        host.settings,
        validate_only=True,
    )
    assert (decision.records, decision.rows[0].error) == ([], None)


def test_a_topic_must_exist_and_a_resource_comes_once(host: ClusterHost) -> None:
    nothing = ConfigResource(ConfigResourceType.TOPIC, "nothing")
    assert replace(host, nothing, retention_ms="5") == (
        "UNKNOWN_TOPIC_OR_PARTITION: The topic 'nothing' does not exist."
    )
    assert replace(host, ConfigResource(ConfigResourceType.TOPIC, ""), retention_ms="5") == (
        "INVALID_REQUEST: Default topic resources are not allowed."
    )
    rows = alter_configs(
        [ConfigReplacement(ORDERS, {}), ConfigReplacement(ORDERS, {})], host.image, host.settings
    ).rows
    assert outcome(rows[1].error) == "INVALID_REQUEST: Each resource must appear at most once."
    assert replace(host, ConfigResource(1, "x")) == "INVALID_REQUEST: Unexpected resource type 1."


def test_brokers_have_settings_of_their_own_and_for_all(host: ClusterHost) -> None:
    assert replace(host, ALL_BROKERS, log_retention_ms="5") == "ok"
    assert replace(host, BROKER, log_retention_ms="6") == "ok"
    assert host.image.cluster_configs() == {"log.retention.ms": "5"}
    assert host.image.broker_configs(1) == {"log.retention.ms": "6"}
    effective = host.settings.effective_broker_config(host.image)
    assert effective["log.retention.ms"] == "6"


@pytest.mark.parametrize(
    ("resource", "name", "answer"),
    [
        (
            BROKER,
            "listeners",
            "INVALID_REQUEST: Cannot update these configs dynamically: listeners",
        ),
        (
            BROKER,
            "log.retention.hours",
            "INVALID_REQUEST: Cannot update these configs dynamically: log.retention.hours",
        ),
        (
            BROKER,
            "log.cleaner.threads",
            "INVALID_REQUEST: Cannot update these configs dynamically: log.cleaner.threads "
            "(one process compacts one log at a time)",
        ),
        (
            BROKER,
            "ssl.keystore.location",
            "INVALID_REQUEST: These security configs can be dynamically updated only per-listener "
            "using the listener prefix: ssl.keystore.location",
        ),
        (
            ALL_BROKERS,
            "listener.name.outside.ssl.keystore.location",
            "INVALID_REQUEST: Cannot update these configs at default cluster level, broker id must "
            "be specified: listener.name.outside.ssl.keystore.location",
        ),
        (
            BROKER,
            "log.message.timestamp.type",
            "INVALID_REQUEST: Invalid value 5 for configuration log.message.timestamp.type: "
            "String must be one of: CreateTime, LogAppendTime",
        ),
        (
            BROKER,
            "min.insync.replicas",
            "INVALID_CONFIG: min.insync.replicas cannot be altered for one broker, only for all of "
            "them or for a topic.",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "x"),
            "log.retention.ms",
            "INVALID_REQUEST: Unable to parse broker name as a base 10 number.",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "7"),
            "log.retention.ms",
            "INVALID_REQUEST: Unexpected broker id, there is no broker 7.",
        ),
    ],
)
def test_a_brokers_wrong_settings_are_refused(
    host: ClusterHost, resource: ConfigResource, name: str, answer: str
) -> None:
    assert change(host, resource, (name, Operation.SET, "5")) == answer


def test_names_that_nobody_knows_are_kept_for_brokers(host: ClusterHost) -> None:
    assert change(host, BROKER, ("my.own.name", Operation.SET, "5")) == "ok"
    assert host.image.broker_configs(1) == {"my.own.name": "5"}
    assert change(host, BROKER, ("my.own.name", Operation.APPEND, "5")) == (
        "INVALID_CONFIG: Unknown broker config name: my.own.name"
    )
    assert change(host, BROKER, ("my.own.name", Operation.DELETE, None)) == "ok"
    assert not host.image.broker_configs(1)


def test_what_was_never_made_can_be_deleted_even_if_it_could_not_be_made(
    host: ClusterHost,
) -> None:
    assert change(host, BROKER, ("num.partitions", Operation.DELETE, None)) == "ok"


def test_several_wrong_names_are_told_in_words(host: ClusterHost) -> None:
    assert change(
        host,
        BROKER,
        ("num.partitions", Operation.SET, "5"),
        ("auto.create.topics.enable", Operation.SET, "true"),
    ) == (
        "INVALID_REQUEST: Cannot update these configs dynamically: num.partitions, "
        "auto.create.topics.enable"
    )
    assert change(
        host, BROKER, ("log.roll.ms", Operation.SET, None), ("log.retention.ms", 0, None)
    ) == ("INVALID_REQUEST: Null value not supported for : log.roll.ms, log.retention.ms")


def test_min_insync_replicas_of_the_cluster_stays(host: ClusterHost) -> None:
    assert change(host, ALL_BROKERS, ("min.insync.replicas", Operation.SET, "2")) == "ok"
    assert change(host, ALL_BROKERS, ("min.insync.replicas", Operation.DELETE, None)) == (
        "INVALID_CONFIG: min.insync.replicas of all brokers cannot be removed, only altered."
    )


def test_no_setting_locks_everybody_out(host: ClusterHost) -> None:
    assert change(host, BROKER, ("max.connections.per.ip", Operation.SET, "0")) == (
        "INVALID_REQUEST: max.connections.per.ip can be 0 only if "
        "max.connections.per.ip.overrides is set."
    )
    overrides = ("max.connections.per.ip.overrides", Operation.SET, "10.0.0.1:5")
    assert change(host, BROKER, overrides, ("max.connections.per.ip", Operation.SET, "0")) == "ok"
    assert change(host, BROKER, ("max.connections.per.ip.overrides", Operation.DELETE, None)) == (
        "INVALID_REQUEST: max.connections.per.ip can be 0 only if "
        "max.connections.per.ip.overrides is set."
    )
    # What a broker has for itself stands above what all brokers have.
    assert change(host, ALL_BROKERS, ("max.connections.per.ip", Operation.SET, "0")) == "ok"


@pytest.mark.parametrize("value", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:-5", "10.0.0.1:5,host"])
def test_overrides_of_addresses_are_pairs(host: ClusterHost, value: str) -> None:
    for resource in (BROKER, ALL_BROKERS):
        answer = change(host, resource, ("max.connections.per.ip.overrides", Operation.SET, value))
        assert answer == (
            f"INVALID_REQUEST: Invalid value {value} for configuration "
            f"max.connections.per.ip.overrides: {value.split(',')[-1]} is not NAME:NUMBER"
        )


def test_a_value_has_a_longest_length(host: ClusterHost) -> None:
    answer = change(host, BROKER, ("my.own.name", Operation.SET, "x" * 32768))
    assert answer == ("INVALID_CONFIG: The value of my.own.name is longer than 32767 characters.")


def test_groups_have_settings_within_the_brokers_limits(host: ClusterHost) -> None:
    assert replace(host, GROUP, consumer_session_timeout_ms="50000") == "ok"
    assert host.image.group_configs("readers") == {"consumer.session.timeout.ms": "50000"}
    assert replace(host, GROUP, consumer_session_timeout_ms="1000") == (
        "INVALID_CONFIG: consumer.session.timeout.ms must be greater than or equal to 45000"
    )
    assert replace(host, GROUP, consumer_heartbeat_interval_ms="20000") == (
        "INVALID_CONFIG: consumer.heartbeat.interval.ms must be less than or equal to 15000"
    )
    assert replace(host, GROUP, consumer_session_timeout="1") == (
        "INVALID_CONFIG: Unknown group config name: consumer.session.timeout. "
        "Did you mean consumer.session.timeout.ms?"
    )
    assert replace(host, ConfigResource(ConfigResourceType.GROUP, "")) == (
        "INVALID_REQUEST: Default group resources are not allowed."
    )


def test_client_metrics_subscriptions_are_checked(host: ClusterHost) -> None:
    assert replace(host, METRICS, interval_ms="1000", match="client_software_name=apache.*") == "ok"
    assert replace(host, METRICS, interval_ms="5") == (
        "INVALID_REQUEST: Invalid value 5 for interval.ms, interval must be between 100 and "
        "3600000 (1 hour)"
    )
    assert replace(host, METRICS, match="color=red") == (
        "INVALID_CONFIG: Illegal client matching pattern: color=red"
    )
    assert replace(host, METRICS, match="client_id=(") == (
        "INVALID_CONFIG: Illegal client matching pattern: client_id=("
    )
    assert replace(host, METRICS, interval="5") == (
        "INVALID_REQUEST: Unknown client metrics configuration: interval"
    )


def test_brokers_are_told_of_values_that_stay(host: ClusterHost) -> None:
    assert replace(host, BROKER, log_retention_ms="6") == "ok"
    again = alter_configs(
        [ConfigReplacement(BROKER, {"log.retention.ms": "6"})], host.image, host.settings
    )
    assert len(again.records) == 1
    replace(host, ORDERS, retention_ms="6")
    again = alter_configs(
        [ConfigReplacement(ORDERS, {"retention.ms": "6"})], host.image, host.settings
    )
    assert again.records == []
