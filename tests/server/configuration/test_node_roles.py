"""Roles of a node, the addresses of its quorum, and the listeners that other nodes use."""

import pytest

from tidelog.raft.settings import QuorumSettings
from tidelog.server.configuration.config_file import ConfigError
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.configuration.quorum_addresses import StaticVoter

TWO_LISTENERS = {
    "listeners": "CONTROLLER://:9093,INSIDE://node-1:9092,OUTSIDE://:9094",
    "controller.listener.names": "CONTROLLER",
}
BROKER = {"process.roles": "broker", "controller.quorum.bootstrap.servers": "a:9093"}


def test_a_node_is_broker_and_controller_and_one_listener_serves_both() -> None:
    config = NodeConfig()
    assert config.process_roles == ("broker", "controller")
    assert config.is_broker
    assert config.is_controller
    assert config.starts_new_cluster
    assert config.controller_listener_names == ()
    assert config.inter_broker_listener_name == config.quorum_listener_name == "PLAINTEXT"
    assert config.quorum_settings == QuorumSettings()
    assert config.controller_quorum_voters_max == 3


def test_voters_are_read() -> None:
    config = NodeConfig({"controller.quorum.voters": "1@node-1:9093, 2@[::1]:9094,3@10.0.0.3:9093"})
    assert config.controller_quorum_voters == (
        StaticVoter(1, "node-1", 9093),
        StaticVoter(2, "::1", 9094),
        StaticVoter(3, "10.0.0.3", 9093),
    )
    assert not config.starts_new_cluster


def test_the_controllers_listener_is_advertised_as_the_voters_have_it() -> None:
    settings = {**TWO_LISTENERS, "controller.quorum.voters": "1@node-1:19093"}
    controller = NodeConfig(settings).parsed_listeners[-1]
    assert (controller.advertised_host, controller.advertised_port) == ("node-1", 19093)
    settings["advertised.listeners"] = "CONTROLLER://elsewhere:9093"
    controller = NodeConfig(settings).parsed_listeners[-1]
    assert (controller.advertised_host, controller.advertised_port) == ("elsewhere", 9093)


def test_bootstrap_servers_are_read_once_each() -> None:
    config = NodeConfig({"controller.quorum.bootstrap.servers": "a:1,[::1]:2,a:1"})
    assert config.controller_quorum_bootstrap_servers == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    ("settings", "is_first"),
    [
        ({"controller.quorum.bootstrap.servers": "127.0.0.1:9092"}, True),
        ({"controller.quorum.bootstrap.servers": "localhost:9092"}, True),
        ({"controller.quorum.bootstrap.servers": "localhost:9093"}, False),
        ({"controller.quorum.bootstrap.servers": "other:9092"}, False),
        ({"controller.quorum.bootstrap.servers": "localhost:9092,other:9092"}, False),
        (
            {
                "controller.quorum.bootstrap.servers": "node-1:9092",
                "listeners": "PLAINTEXT://:9092",
                "advertised.listeners": "PLAINTEXT://node-1:9092",
            },
            True,
        ),
        (BROKER, False),
    ],
)
def test_a_node_begins_a_cluster_unless_it_is_sent_to_others(
    settings: dict[str, str], is_first: bool
) -> None:
    assert NodeConfig(settings).starts_new_cluster is is_first


def test_listeners_of_the_controller_come_last_and_are_opened() -> None:
    config = NodeConfig(TWO_LISTENERS)
    assert [(each.name, each.is_controller) for each in config.parsed_listeners] == [
        ("INSIDE", False),
        ("OUTSIDE", False),
        ("CONTROLLER", True),
    ]
    assert config.inter_broker_listener_name == "INSIDE"
    assert config.quorum_listener_name == "CONTROLLER"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({**TWO_LISTENERS, "inter.broker.listener.name": "outside"}, "OUTSIDE"),
        (
            {
                "listeners": "OUTSIDE://:9094,PLAINTEXT://:9092",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "PLAINTEXT",
        ),
    ],
)
def test_the_listener_of_brokers_can_be_named(settings: dict[str, str], name: str) -> None:
    config = NodeConfig(settings)
    assert config.inter_broker_listener_name == name
    assert config.without_effect == []


def test_a_broker_knows_the_controllers_listener_by_name() -> None:
    config = NodeConfig({**BROKER, "controller.listener.names": "CONTROLLER"})
    assert (config.is_broker, config.is_controller) == (True, False)
    assert config.quorum_listener_name == "CONTROLLER"
    assert [listener.name for listener in config.parsed_listeners] == ["PLAINTEXT"]


def test_a_controller_has_only_its_listener() -> None:
    config = NodeConfig(
        {
            "process.roles": "controller",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert (config.is_broker, config.is_controller) == (False, True)
    assert config.quorum_listener_name == "CONTROLLER"
    assert config.starts_new_cluster


def test_the_quorums_patience_comes_from_kafkas_settings() -> None:
    settings = NodeConfig(
        {
            "controller.quorum.election.timeout.ms": "1",
            "controller.quorum.fetch.timeout.ms": "200",
            "controller.quorum.election.backoff.max.ms": "3",
            "controller.quorum.request.timeout.ms": "4",
            "controller.quorum.retry.backoff.ms": "5",
            "controller.quorum.fetch.max.bytes": "6",
            "controller.quorum.fetch.snapshot.max.bytes": "7",
        }
    ).quorum_settings
    assert settings == QuorumSettings(
        election_timeout_ms=1,
        fetch_timeout_ms=200,
        election_backoff_max_ms=3,
        request_timeout_ms=4,
        retry_backoff_ms=5,
        fetch_max_wait_ms=50,  # a fetch that waits for longer would count as silence
        fetch_max_bytes=6,
        fetch_snapshot_max_bytes=7,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"process.roles": "broker,observer"}, "observer is no role"),
        ({"process.roles": ""}, "A node needs a role"),
        ({"process.roles": "broker"}, "has to know where controllers are"),
        (
            {"process.roles": "broker", "controller.quorum.voters": "1@a:9093"},
            "node 1 is this node, which is no controller",
        ),
        ({**BROKER, "controller.quorum.auto.join.enable": "true"}, "only a controller can join"),
        ({"controller.quorum.voters": "2@a:9093,3@b:9093"}, "not among the voters (2, 3)"),
        (
            {"controller.quorum.voters": "1@a:9093", "controller.quorum.auto.join.enable": "true"},
            "nobody can join voters that are fixed",
        ),
        ({"controller.quorum.voters": "a:9093"}, "'a:9093' is not ID@HOST:PORT"),
        ({"controller.quorum.voters": "1@a"}, "'1@a' is not ID@HOST:PORT"),
        ({"controller.quorum.voters": "1@a:70000"}, "'1@a:70000' is not ID@HOST:PORT"),
        ({"controller.quorum.voters": "x@a:9093"}, "'x@a:9093' is not ID@HOST:PORT"),
        ({"controller.quorum.voters": "1@0.0.0.0:9093"}, "could connect to"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "node 1 is there twice"),
        ({"controller.quorum.bootstrap.servers": "a"}, "'a' is not HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": ":9093"}, "':9093' is not HOST:PORT"),
        ({"controller.listener.names": "CONTROLLER"}, "CONTROLLER is not one of listeners"),
        ({**BROKER, "controller.listener.names": "PLAINTEXT"}, "take it out of listeners"),
        ({"controller.listener.names": "PLAINTEXT"}, "no client could connect to this broker"),
        ({**TWO_LISTENERS, "process.roles": "controller"}, "a controller has no other listeners"),
        (
            {
                **TWO_LISTENERS,
                "listener.security.protocol.map": "CONTROLLER:SSL,INSIDE:PLAINTEXT",
            },
            "CONTROLLER asks for SSL",
        ),
        (
            {
                **BROKER,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            },
            "controller.listener.names: CONTROLLER has no security protocol",
        ),
        ({"inter.broker.listener.name": "INSIDE"}, "INSIDE is not one of this broker's listeners"),
        (
            {**TWO_LISTENERS, "inter.broker.listener.name": "CONTROLLER"},
            "CONTROLLER is not one of this broker's listeners (INSIDE, OUTSIDE)",
        ),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "set one of them",
        ),
        ({"broker.heartbeat.interval.ms": "5000"}, "more than half of broker.session.timeout.ms"),
        ({"controller.quorum.voters.max": "0"}, "controller.quorum.voters.max"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert message in str(raised.value)
