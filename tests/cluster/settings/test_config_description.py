from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.config_changes import ConfigReplacement, alter_configs
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.cluster.settings.broker_config import BROKER_SETTINGS
from tidelog.cluster.settings.config_description import (
    BrokerConfigLayers,
    ConfigEntry,
    ConfigSource,
    describe_broker_config,
    describe_client_metrics_config,
    describe_cluster_config,
    describe_group_config,
    describe_topic_config,
)
from tidelog.cluster.settings.config_schema import ConfigType
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS

NOTHING = BrokerConfigLayers({}, {}, {})


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in entries}


def test_every_setting_of_a_topic_is_described() -> None:
    entries = describe_topic_config({}, NOTHING)
    assert len(entries) == len(TOPIC_SETTINGS)
    assert all(entry.is_default and entry.documentation for entry in entries)
    retention = by_name(entries)["retention.ms"]
    assert (retention.value, retention.type) == ("604800000", ConfigType.LONG)
    assert retention.synonyms == []  # the default is in hours, and nobody has chosen it
    segment = by_name(entries)["segment.bytes"]
    assert segment.synonyms == [("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG)]


def test_a_value_says_where_it_comes_from_and_what_it_hides() -> None:
    layers = BrokerConfigLayers(
        dynamic={"log.retention.ms": "3"},
        dynamic_default={"log.retention.ms": "4"},
        static={"log.retention.hours": "5"},
    )
    retention = by_name(describe_topic_config({"retention.ms": "2"}, layers))["retention.ms"]
    assert (retention.value, retention.source) == ("2", ConfigSource.TOPIC_CONFIG)
    assert retention.synonyms == [
        ("retention.ms", "2", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert not retention.is_default


def test_a_value_in_hours_is_told_in_milliseconds() -> None:
    layers = BrokerConfigLayers({}, {}, {"log.retention.hours": "5"})
    retention = by_name(describe_topic_config({}, layers))["retention.ms"]
    assert (retention.value, retention.source) == ("18000000", ConfigSource.STATIC_BROKER_CONFIG)


def test_a_broker_is_described_with_what_its_clients_look_for() -> None:
    layers = BrokerConfigLayers({}, {}, {"num.partitions": "6", "ssl.keystore.password": "secret"})
    entries = by_name(describe_broker_config(layers))
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source) == ("6", ConfigSource.STATIC_BROKER_CONFIG)
    assert partitions.read_only
    assert not entries["log.retention.ms"].read_only
    assert "advertised.listeners" in entries
    password = entries["ssl.keystore.password"]
    assert password.sensitive
    assert password.value is None
    assert all(synonym.value is None for synonym in password.synonyms)


def test_a_constant_is_told_whatever_was_set() -> None:
    layers = BrokerConfigLayers({}, {}, {"num.io.threads": "8"})
    threads = by_name(describe_broker_config(layers))["num.io.threads"]
    assert (threads.value, threads.source) == ("1", ConfigSource.DEFAULT_CONFIG)
    assert threads.read_only
    assert "always 1 here" in threads.documentation


def test_hidden_settings_are_told_only_when_they_were_made() -> None:
    name = "producer.id.expiration.check.interval.ms"
    assert name not in by_name(describe_broker_config(NOTHING))
    layers = BrokerConfigLayers({}, {}, {name: "5"})
    assert by_name(describe_broker_config(layers))[name].value == "5"


def test_a_setting_of_a_listener_has_the_one_for_all_as_synonym() -> None:
    name = "listener.name.outside.max.connections"
    layers = BrokerConfigLayers({name: "5"}, {}, {"max.connections": "9"})
    entries = by_name(describe_broker_config(layers))
    assert (entries[name].value, entries[name].type) == ("5", ConfigType.INT)
    assert [each[:2] for each in entries[name].synonyms] == [
        (name, "5"),
        ("max.connections", "9"),
        ("max.connections", "2147483647"),
    ]
    assert entries["max.connections"].value == "9"


def test_an_unknown_name_is_kept_secret() -> None:
    layers = BrokerConfigLayers({"my.own.password": "secret"}, {}, {})
    entry = by_name(describe_broker_config(layers))["my.own.password"]
    assert (entry.value, entry.type, entry.sensitive) == (None, ConfigType.UNKNOWN, True)
    assert entry.read_only
    assert [each.value for each in entry.synonyms] == [None]


def test_every_default_of_a_broker_is_a_valid_value() -> None:
    for setting in BROKER_SETTINGS:
        assert setting.documentation
        if setting.default is not None:
            setting.parse(setting.default)


def test_settings_for_all_brokers_are_described_apart() -> None:
    host = ClusterHost()
    resource = ConfigResource(ConfigResourceType.BROKER, "")
    host.decide(
        alter_configs(
            [ConfigReplacement(resource, {"log.retention.ms": "5"})], host.image, host.settings
        )
    )
    (entry,) = describe_cluster_config(host.image)
    assert (entry.name, entry.value, entry.source) == (
        "log.retention.ms",
        "5",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    layers = BrokerConfigLayers.of(host.image, 1, {})
    assert by_name(describe_topic_config({}, layers))["retention.ms"].value == "5"


def test_groups_and_client_metrics_are_described_too() -> None:
    session = by_name(describe_group_config({"consumer.session.timeout.ms": "50000"}, NOTHING))[
        "consumer.session.timeout.ms"
    ]
    assert (session.value, session.source) == ("50000", ConfigSource.GROUP_CONFIG)
    defaults = by_name(describe_group_config({}, NOTHING))
    assert len(defaults) == 17  # as in Kafka 4.3
    default = ConfigSource.DEFAULT_CONFIG
    assert defaults["consumer.session.timeout.ms"].synonyms == [
        ("group.consumer.session.timeout.ms", "45000", default)
    ]
    assert defaults["share.isolation.level"].synonyms == [
        ("share.isolation.level", "read_uncommitted", default)
    ]
    interval = by_name(describe_client_metrics_config({}))["interval.ms"]
    assert (interval.value, interval.is_default) == ("300000", True)
