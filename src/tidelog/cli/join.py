"""Before a node joins a cluster: ask it who it is, and whether this node fits in.

The cluster tells its id, the ids of its nodes, and the levels of its features; from them a new
node gets its place. What does not fit is a JoinError that says what to do, and nothing was started
or written then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.cluster import Cluster, ClusterClient
from tidelog.client.cluster.cluster_state import ClusterMembers, Quorum, cluster_members
from tidelog.client.errors import ClientError, ConnectError, NotServedError
from tidelog.cluster.features import METADATA_VERSION, METADATA_VERSIONS
from tidelog.errors import TidelogError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.registry import messages_of

if TYPE_CHECKING:
    from tidelog.cluster.features import LevelRange
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.storage.directories.meta_properties import MetaProperties

_ANSWER_S_MAX = 5.0
_WAIT_S_MAX = 30.0

# What nodes ask of each other, where the address serves it: controllers have a listener of their
# own in some clusters.
_BETWEEN_NODES = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
)


class JoinError(TidelogError):
    """This node cannot join the cluster; the text says why and what to do."""


class Place(NamedTuple):
    """What a node needs to know to be part of a cluster."""

    cluster_id: str
    node_id: int
    bootstrap_servers: tuple[str, ...]


def find_place(
    addresses: str,
    config: NodeConfig,
    *,
    identity: MetaProperties | None,
    wanted_id: int | None,
    refused_ids: Collection[int] = (),
    tell: Callable[[str], None],
) -> Place | None:
    """The place of a node in the cluster at `addresses`.

    `identity` is what the node's directory knows; without one, the node gets the id that is wanted
    or a free one, none of `refused_ids`. Nobody has to answer a node that has been there before:
    the whole cluster may be starting. None then.
    """
    try:
        with Cluster(addresses, client_id="tidelog-join", timeout_s=_ANSWER_S_MAX) as cluster:
            if identity is not None:
                return _known_place(cluster, addresses, config, identity, tell)
            _await_answer(cluster, addresses, tell)
            _check_versions(cluster, addresses, config.supported_features)
            members = cluster_members(ClusterClient(cluster, _WAIT_S_MAX))
    except NotServedError as error:
        raise JoinError(
            f"the cluster at {addresses} is of a version that does not fit: {error}"
        ) from error
    except ClientError as error:
        raise JoinError(f"cannot join the cluster at {addresses}: {error}") from error
    _check_listener(members, config)
    if wanted_id is None:
        wanted_id = free_node_id({*members.node_ids, *refused_ids})
    else:
        _check_free(wanted_id, members)
    servers = _bootstrap_servers(addresses, members.quorum, config)
    return Place(members.cluster_id, wanted_id, servers)


def _known_place(
    cluster: Cluster,
    addresses: str,
    config: NodeConfig,
    identity: MetaProperties,
    tell: Callable[[str], None],
) -> Place | None:
    """Nothing is waited for: the quorum may need this very node to have a leader."""
    try:
        answer = cluster.metadata([])
    except ConnectError:
        tell(f"no node answers at {addresses} yet; this one starts with what it knows")
        return None
    if answer.cluster_id != identity.cluster_id:
        raise JoinError(
            f"{config.log_dirs[0]} belongs to node {identity.node_id} of cluster "
            f"{identity.cluster_id}, and {addresses} is cluster {answer.cluster_id}. Data does "
            "not move between clusters: join with an empty --data directory, or leave --join out "
            "to go on with this one"
        )
    _check_versions(cluster, addresses, config.supported_features)
    return Place(identity.cluster_id, identity.node_id, tuple(_given_addresses(addresses)))


def free_node_id(taken: Collection[int]) -> int:
    """The smallest id from 1 on that no node has."""
    return next(node_id for node_id in range(1, len(taken) + 2) if node_id not in taken)


def _await_answer(cluster: Cluster, addresses: str, tell: Callable[[str], None]) -> None:
    try:
        cluster.metadata([])
    except ConnectError as error:
        tell(f"no node answers at {addresses} yet; waiting up to {_WAIT_S_MAX:g} s")
        try:
            ClusterClient(cluster, _WAIT_S_MAX).metadata([])
        except ClientError:
            raise JoinError(
                f"no node of a cluster answers at {addresses} ({error}). Start the cluster's first "
                "node with `tidelog up`, or check the address"
            ) from None


def _check_versions(cluster: Cluster, addresses: str, supported: Mapping[str, LevelRange]) -> None:
    request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
    answer = cluster.ask_any(request, ApiVersionsResponse)
    for feature in answer.finalized_features:
        level = feature.max_version_level
        known = supported.get(feature.name)
        if level and (known is None or level not in known):
            raise JoinError(
                f"the cluster at {addresses} has {feature.name} at level "
                f"{_level_name(feature.name, level)}, and this Tidelog supports "
                f"{'none of its levels' if known is None else known}; "
                + (
                    "raise the level of the cluster first (kafka-features upgrade)"
                    if known is not None and level < known.minimum
                    else "install the Tidelog that the other nodes run"
                )
            )
    for row in answer.api_keys:
        if row.api_key not in _BETWEEN_NODES:
            continue
        api = ApiKey(row.api_key)
        ours = messages_of(api).request
        if row.max_version < ours.MIN_VERSION or row.min_version > ours.MAX_VERSION:
            raise JoinError(
                f"the cluster at {addresses} serves {api.name} in the versions {row.min_version} "
                f"to {row.max_version}, and this Tidelog knows {ours.MIN_VERSION} to "
                f"{ours.MAX_VERSION}; install the Tidelog that the other nodes run"
            )


def _level_name(feature: str, level: int) -> str:
    if feature == METADATA_VERSION and level in METADATA_VERSIONS:
        return f"{level} ({METADATA_VERSIONS[level][0]})"
    return str(level)


def _check_listener(members: ClusterMembers, config: NodeConfig) -> None:
    """Voters are found by the name of the listener that they have for the quorum."""
    names = {name for listeners in members.quorum.addresses.values() for name in listeners}
    if names and config.quorum_listener_name not in names:
        listed = ", ".join(sorted(names))
        raise JoinError(
            f"the controllers of the cluster are reached over the listener {listed}, and this node "
            f"looks for {config.quorum_listener_name}; give it a listener of that name with --set "
            f"listeners=...,{sorted(names)[0]}://HOST:PORT and --set "
            f"controller.listener.names={sorted(names)[0]}"
        )


def _check_free(node_id: int, members: ClusterMembers) -> None:
    broker, replica = members.broker(node_id), members.quorum_replica(node_id)
    if broker is not None and broker.is_fenced:
        return  # A node that is gone: this one takes its place.
    if broker is not None or replica is not None:
        where = f" at {broker.host}:{broker.port}" if broker is not None else ""
        free = free_node_id(members.node_ids)
        raise JoinError(
            f"node id {node_id} is in use by a node of the cluster{where}; take another one "
            f"(--node-id {free} is free), or leave --node-id out to get one"
        )


def _bootstrap_servers(addresses: str, quorum: Quorum, config: NodeConfig) -> tuple[str, ...]:
    """The addresses that were given, and those of the voters: the first may be gone one day."""
    voters = [
        listeners[config.quorum_listener_name]
        for listeners in quorum.addresses.values()
        if config.quorum_listener_name in listeners
    ]
    formatted = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in voters]
    return tuple(dict.fromkeys([*_given_addresses(addresses), *formatted]))


def _given_addresses(addresses: str) -> list[str]:
    return [address.strip() for address in addresses.split(",")]
