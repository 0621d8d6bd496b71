"""What a node is in its cluster: its roles, and which listeners other nodes use.

Kafka asks for a listener of the controllers' own (`controller.listener.names`), and so can one do
here. Without it every listener serves the controller too, and nodes of the quorum talk over the
listener that brokers use among themselves: one address is all that a node needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.cluster.settings.config_schema import parse_list
from tidelog.server.configuration.config_file import ConfigError
from tidelog.server.configuration.quorum_addresses import BOOTSTRAP_SERVERS, VOTERS, StaticVoter
from tidelog.server.network.listener import (
    PLAINTEXT,
    Listener,
    ListenerError,
    check_protocol,
    parse_listeners,
    parse_protocols,
)
from tidelog.world.network import ANY_HOST

if TYPE_CHECKING:
    from tidelog.server.configuration.node_config import NodeConfig

BROKER, CONTROLLER = "broker", "controller"

_AUTO_JOIN = "controller.quorum.auto.join.enable"
_CONTROLLER_LISTENERS = "controller.listener.names"
_INTER_BROKER_LISTENER = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read_listeners(explicit: Mapping[str, str], roles: Collection[str]) -> list[Listener]:
    """The listeners that settings ask for: those of the broker first, then the controller's."""
    listeners, advertised, protocol_map, controller_names = (
        parse_list(explicit.get(name, ""))
        for name in (
            "listeners",
            "advertised.listeners",
            "listener.security.protocol.map",
            _CONTROLLER_LISTENERS,
        )
    )
    try:
        protocols = parse_protocols(protocol_map) if protocol_map else None
        for name in controller_names:
            check_protocol(name, protocols, _CONTROLLER_LISTENERS)
        parsed = parse_listeners(listeners, advertised, protocols, controller_names)
    except ListenerError as error:
        raise ConfigError(str(error)) from None
    _check_controller_listeners(parsed, controller_names, roles)
    return parsed


def _check_controller_listeners(
    listeners: Sequence[Listener], controller_names: Sequence[str], roles: Collection[str]
) -> None:
    opened = {listener.name.upper() for listener in listeners}
    for name in controller_names:
        if CONTROLLER in roles and name.upper() not in opened:
            raise ConfigError(
                f"{_CONTROLLER_LISTENERS}: {name} is not one of listeners "
                f"({', '.join(listener.name for listener in listeners)})"
            )
        if CONTROLLER not in roles and name.upper() in opened:
            raise ConfigError(
                f"{_CONTROLLER_LISTENERS}: {name} is one of listeners, but process.roles is "
                "broker, and a broker has no listener of a controller; take it out of listeners"
            )
    others = [listener.name for listener in listeners if not listener.is_controller]
    if BROKER in roles and not others:
        raise ConfigError(
            f"listeners: all of them are in {_CONTROLLER_LISTENERS}, so no client could connect "
            "to this broker; add one such as PLAINTEXT://127.0.0.1:9092"
        )
    if BROKER not in roles and controller_names and others:
        raise ConfigError(
            f"listeners: {others[0]} is not in {_CONTROLLER_LISTENERS}, but process.roles is "
            "controller, and a controller has no other listeners"
        )


def inter_broker_listener_name(listeners: Sequence[Listener], explicit: Mapping[str, str]) -> str:
    """The name of the listener over which brokers talk to each other."""
    candidates = [listener.name for listener in listeners if not listener.is_controller]
    wanted = explicit.get(_INTER_BROKER_LISTENER, "").strip()
    protocol = explicit.get(_INTER_BROKER_PROTOCOL, "").strip()
    if wanted and protocol:
        raise ConfigError(f"{_INTER_BROKER_LISTENER} and {_INTER_BROKER_PROTOCOL}: set one of them")
    if not candidates:
        # A controller has no such listener; its brokers do, and it only has to know the name.
        return wanted or PLAINTEXT
    if not wanted and not protocol:
        return candidates[0]
    setting = _INTER_BROKER_LISTENER if wanted else _INTER_BROKER_PROTOCOL
    sought = (wanted or protocol).upper()
    for name in candidates:
        if name.upper() == sought:
            return name
    raise ConfigError(
        f"{setting}: {wanted or protocol} is not one of this broker's listeners "
        f"({', '.join(candidates)})"
    )


def check_quorum(config: NodeConfig) -> None:
    """Refuse roles and addresses of the quorum that contradict each other."""
    voter_ids = [voter.node_id for voter in config.controller_quorum_voters]
    listed = ", ".join(map(str, voter_ids))
    if not config.is_controller:
        if not voter_ids and not config.controller_quorum_bootstrap_servers:
            raise ConfigError(
                "process.roles: a node that is only a broker has to know where controllers are; "
                f"set {BOOTSTRAP_SERVERS} or {VOTERS}"
            )
        if config.node_id in voter_ids:
            raise ConfigError(
                f"{VOTERS}: node {config.node_id} is this node, which is no controller by "
                "process.roles; make it one, or give it another node.id"
            )
        if config.controller_quorum_auto_join_enable:
            raise ConfigError(f"{_AUTO_JOIN}: only a controller can join the voters")
    elif voter_ids and config.node_id not in voter_ids:
        raise ConfigError(
            f"{VOTERS}: this node, {config.node_id}, is a controller by process.roles and not "
            f"among the voters ({listed}); add it, or set {BOOTSTRAP_SERVERS} instead"
        )
    if voter_ids and config.controller_quorum_auto_join_enable:
        raise ConfigError(
            f"{_AUTO_JOIN}: nobody can join voters that are fixed by {VOTERS}; "
            f"set {BOOTSTRAP_SERVERS} instead"
        )
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        raise ConfigError(
            f"broker.heartbeat.interval.ms: {config.broker_heartbeat_interval_ms} is more than "
            f"half of broker.session.timeout.ms ({config.broker_session_timeout_ms}); one late "
            "heartbeat would fence a broker"
        )


def with_address_among_voters(
    listeners: Sequence[Listener], quorum_listener: str, own: StaticVoter | None
) -> list[Listener]:
    """The quorum's listener is advertised as the voters have it, where nothing else is said."""
    return [
        replace(listener, advertised_host=own.host, advertised_port=own.port)
        if own is not None
        and listener.is_controller
        and listener.name == quorum_listener
        and not listener.advertised_host
        and listener.host in ANY_HOST
        else listener
        for listener in listeners
    ]


def names_itself(address: tuple[str, int], listeners: Sequence[Listener]) -> bool:
    """Whether an address is one of a node's own listeners, as far as its settings tell."""
    host, port = address
    for listener in listeners:
        listens = port == listener.port and (
            host == listener.host
            or (host in _LOOPBACK and listener.host in (*ANY_HOST, *_LOOPBACK))
        )
        if listens or address == (listener.advertised_host, listener.advertised_port):
            return True
    return False
