"""The configuration: sources, types, and errors that help."""

from pathlib import Path

import pytest

from tidelog.server.configuration.config_file import ConfigError
from tidelog.server.configuration.node_config import SETTINGS, NodeConfig


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        """
        num.partitions = 2
        "log.retention.ms" = 1000
        listeners = ["PLAINTEXT://127.0.0.1:0"]
        rack = "a"
        [auto.create.topics]
        enable = false
        """
    )
    config = NodeConfig.load(
        file=file,
        environment={"TIDELOG_NUM_PARTITIONS": "3", "HOME": "/root", "TIDELOG_NODE_ID": "4"},
        flags=["node.id=5"],
    )
    assert config.num_partitions == 3
    assert config.node_id == 5
    assert config.broker_rack == "a"
    assert config.auto_create_topics_enable is False
    assert config.explicit["log.retention.ms"] == "1000"
    assert config.parsed_listeners[0].port == 0


def test_defaults_hold_without_any_source() -> None:
    config = NodeConfig()
    assert config.num_partitions == 1
    assert config.durability == "fsync"
    assert config.auto_create_topics_enable is True
    assert config.parsed_listeners[0].port == 9092


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.partitons": "3"}, "num.partitons. Did you mean num.partitions?"),
        ({"num.partitions": "many"}, "num.partitions"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"durability": "always"}, "fsync, page-cache"),
        ({"listeners": "PLAINTEXT://here"}, "HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT is there twice"),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER is not one of listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address that clients"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "NAME:NUMBER"),
        ({"log.dirs": ""}, "log.dirs"),
        ({"broker.id": "2", "node.id": "3"}, "broker.id is 2 and node.id is 3"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"listener.name.a.ssl.keystore.locaton": "x"}, "listener.name.a.ssl.keystore.locaton"),
        ({"group.coordinator.rebalance.protocols": "classic,streams"}, "classic, consumer"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], message: str) -> None:
    if "listeners" in settings and "here" in settings["listeners"]:
        settings = {"listeners": "PLAINTEXT://here:port"}
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert message in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        NodeConfig.load(file=tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("= 3")
    with pytest.raises(ConfigError, match=r"broken\.toml: is not TOML"):
        NodeConfig.load(file=broken)


def test_a_flag_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="name=value"):
        NodeConfig.load(flags=["num.partitions"])


def test_every_setting_is_documented_and_has_a_default_of_its_type() -> None:
    for setting in SETTINGS:
        assert setting.documentation, setting.name
        if setting.default is not None:
            setting.parse(setting.default)


def test_dynamic_settings_go_over_static_ones() -> None:
    config = NodeConfig({"num.partitions": "2"})
    changed = config.changed({"log.retention.ms": "5"})
    assert changed.num_partitions == 2
    assert changed.explicit["log.retention.ms"] == "5"
    assert "log.retention.ms" not in config.explicit


ELR = "eligible.leader.replicas.version"


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({}, {"metadata.version": 30, ELR: 1, "group.version": 1, "transaction.version": 2}),
        ({"initial.metadata.version": "3.9"}, {"metadata.version": 21}),
        ({"initial.metadata.version": "23"}, {"metadata.version": 23, "group.version": 1}),
        (
            {"initial.feature.levels": "group.version=0, transaction.version=1"},
            {"metadata.version": 30, ELR: 1, "transaction.version": 1},
        ),
        (
            {"initial.metadata.version": "4.1-IV1", "initial.feature.levels": "kraft.version=1"},
            {"metadata.version": 27, ELR: 1, "group.version": 1, "transaction.version": 2},
        ),
    ],
)
def test_the_levels_of_a_new_cluster_can_be_chosen(
    settings: dict[str, str], levels: dict[str, int]
) -> None:
    assert NodeConfig(settings).initial_levels == levels


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"initial.metadata.version": "9.9"},
            "initial.metadata.version: Unknown metadata.version '9.9'. Supported metadata.version "
            "are: 3.3-IV3, 3.4-IV0,",
        ),
        ({"initial.feature.levels": "group.version"}, "group.version is not NAME=LEVEL"),
        ({"initial.feature.levels": "group.version=x"}, "group.version=x is not NAME=LEVEL"),
        ({"initial.feature.levels": "no.such=1"}, "Unsupported feature: no.such"),
        ({"initial.feature.levels": "share.version=1"}, "share.version with feature level 1"),
        ({"initial.feature.levels": "kraft.version=0"}, "kraft.version with feature level 0"),
        (
            {"initial.metadata.version": "3.7-IV1", "log.dirs": "/a,/b"},
            "Multiple log directories (aka JBOD) are not supported in metadata.version 3.7-IV1. "
            "Need 3.7-IV2 or higher.",
        ),
    ],
)
def test_levels_that_no_cluster_can_start_with_are_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig(settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"remote.log.storage.system.enable": "true"}, "no remote storage"),
        (
            {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "no authorizer, so every client may do everything",
        ),
        ({"create.topic.policy.class.name": "com.example.Policy"}, "Java classes"),
        ({"config.providers": "file"}, "as they are written"),
        ({"security.inter.broker.protocol": "SSL"}, "not encrypted or authenticated"),
        ({"metadata.log.dir": "/elsewhere"}, "first of log.dirs"),
        ({"transaction.two.phase.commit.enable": "true"}, "always have a timeout"),
    ],
)
def test_what_the_node_does_not_have_is_refused_with_the_reason(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert next(iter(settings)) in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"remote.log.storage.system.enable": "false"},
        {"process.roles": "controller, broker"},
        {"controller.quorum.voters": "1@localhost:9093"},
        {"authorizer.class.name": ""},
        {"security.inter.broker.protocol": "PLAINTEXT"},
    ],
)
def test_what_the_node_does_have_is_taken(settings: dict[str, str]) -> None:
    assert NodeConfig(settings).without_effect == []


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        ({"listeners": "SSL://:9093"}, "SSL"),
        ({"listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093"}, "SASL_PLAINTEXT"),
        ({"listeners": "sasl_ssl://:9093"}, "SASL_SSL"),
        (
            {
                "listeners": "INSIDE://:9092,OUTSIDE://:9093",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
            },
            "SASL_SSL",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092",
                "listener.security.protocol.map": "plaintext:ssl",
            },
            "SSL",
        ),
    ],
)
def test_a_secure_listener_is_refused_and_not_served_in_the_clear(
    settings: dict[str, str], protocol: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert f"asks for {protocol}" in str(raised.value)
    assert "in the clear" in str(raised.value)


def test_a_flag_does_not_take_away_the_security_that_a_file_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    flags = ["listeners=PLAINTEXT://127.0.0.1:9092"]
    for text in (
        "listeners=SASL_SSL://:9093\n",
        "listeners=OUT://:9093\nlistener.security.protocol.map=OUT:SSL,PLAINTEXT:PLAINTEXT\n",
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match="would serve everybody in the clear"):
            NodeConfig.load(file=file, flags=flags)
    file.write_text("listeners=PLAINTEXT://:9093\n")
    (listener,) = NodeConfig.load(file=file, flags=flags).parsed_listeners
    assert listener.port == 9092


def test_a_listener_needs_a_protocol_where_protocols_are_mapped() -> None:
    settings = {"listeners": "OUTSIDE://:9092", "listener.security.protocol.map": "INSIDE:SSL"}
    with pytest.raises(ConfigError, match="OUTSIDE has no security protocol"):
        NodeConfig(settings)
    with pytest.raises(ConfigError, match="INSIDE:TLS is not NAME:PROTOCOL"):
        NodeConfig({"listener.security.protocol.map": "INSIDE:TLS"})


def test_settings_without_effect_are_known_by_name() -> None:
    config = NodeConfig(
        {
            "num.partitions": "3",
            "num.io.threads": "8",
            "num.network.threads": "1",  # as it is here anyway
            "queued.max.requests": "500",
            "metric.reporters": "com.example.Reporter",
            "listener.name.plaintext.ssl.client.auth": "required",
            "listener.name.plaintext.max.connections": "7",
            "listener.name.plaintex.max.connections": "9",  # there is no such listener
            "inter.broker.protocol.version": "3.9",
            "super.users": "User:admin",
        }
    )
    assert config.without_effect == [
        "inter.broker.protocol.version",
        "listener.name.plaintex.max.connections",
        "listener.name.plaintext.ssl.client.auth",
        "metric.reporters",
        "num.io.threads",
        "queued.max.requests",
        "super.users",
    ]
    assert config.listener_max_connections["plaintext"] == 7


# The settings of the server.properties that comes with Kafka 4.3.
KAFKAS_SERVER_PROPERTIES = """\
# Role, quorum and listeners of one node.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,\\
    CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.mark.parametrize("name", ["server.properties", "server.conf", "SERVER.PROPERTIES"])
def test_kafkas_own_file_is_read(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(KAFKAS_SERVER_PROPERTIES)
    config = NodeConfig.load(file=file)
    assert [
        (listener.name, listener.port, listener.advertised_host, listener.is_controller)
        for listener in config.parsed_listeners
    ] == [("PLAINTEXT", 9092, "localhost", False), ("CONTROLLER", 9093, "localhost", True)]
    assert (config.inter_broker_listener_name, config.quorum_listener_name) == (
        "PLAINTEXT",
        "CONTROLLER",
    )
    assert config.starts_new_cluster
    assert config.num_recovery_threads_per_data_dir == 2
    assert config.socket_send_buffer_bytes == 102400
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.without_effect == [
        "num.io.threads",
        "num.network.threads",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
    ]


def test_the_form_of_a_file_is_told_by_its_name_else_by_its_text(tmp_path: Path) -> None:
    toml, properties = 'listeners = ["A://h:1", "B://h:2"]', "listeners=A://h:1, B://h:2"
    for name, text in [
        ("node.toml", toml),
        ("node.conf", toml),
        ("node.properties", properties),
        ("node.conf", properties),
    ]:
        file = tmp_path / name
        file.write_text(text)
        assert NodeConfig.load(file=file).listeners == ("A://h:1", "B://h:2")
    wrong = tmp_path / "wrong.properties"
    wrong.write_text("num.partitons=3")
    with pytest.raises(ConfigError, match=r"num\.partitons\. Did you mean num\.partitions\?"):
        NodeConfig.load(file=wrong)
    wrong.write_text("broker.rack=\\u00g1")
    with pytest.raises(ConfigError, match=r"wrong\.properties: is not a properties file: line 1"):
        NodeConfig.load(file=wrong)


def test_what_cannot_be_changed_or_is_unknown_changes_nothing() -> None:
    config = NodeConfig({"num.partitions": "2"})
    changed = config.changed(
        {"num.partitions": "9", "my.own.name": "x", "log.retention.ms": "never"}
    )
    assert changed is config
