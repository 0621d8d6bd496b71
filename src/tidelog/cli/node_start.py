"""A node's start: the operator's settings, what its directory remembers, a cluster to join.

A directory that no node has used becomes a cluster of its own, or gets a place in the cluster that
--join names. One that a node has used keeps its node id, and its node finds back to its cluster by
what `joined_cluster` remembers; --join then only adds addresses.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.joined_cluster import Remembered, recall, remember
from tidelog.cluster.settings.config_schema import parse_list
from tidelog.protocol.errors import ErrorCode
from tidelog.server.broker_lifecycle import RegistrationError
from tidelog.server.configuration.node_config import NODE_DEFAULTS, NodeConfig
from tidelog.server.configuration.node_roles import CONTROLLER
from tidelog.server.configuration.quorum_addresses import BOOTSTRAP_SERVERS
from tidelog.server.process import run_node
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.storage.directories.partition_directory import METADATA_LOG

if TYPE_CHECKING:
    from tidelog.server.node import Node

_AUTO_JOIN = "controller.quorum.auto.join.enable"
_VOTERS_MAX = "controller.quorum.voters.max"
_REFUSED_IDS_MAX = 10


def run(settings: Mapping[str, str], *, join: str, on_ready: Callable[[Node], None] | None) -> None:
    """Start the node and serve until it is told to stop.

    Two nodes that join at the same moment may have been given the same id. The cluster registers
    one of them; the other takes another id, as long as its directory holds nothing yet.
    """
    refused_ids: set[int] = set()
    while True:
        config, has_new_id = configure(settings, join=join, refused_ids=refused_ids)
        try:
            run_node(config, on_ready=on_ready)
        except RegistrationError as error:
            is_taken = error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if not (has_new_id and is_taken and len(refused_ids) < _REFUSED_IDS_MAX):
                raise
            _tell(f"node id {config.node_id} has just been taken by another node; asking again")
            refused_ids.add(config.node_id)
            _forget_identity(config)
        else:
            return


def configure(
    settings: Mapping[str, str], *, join: str = "", refused_ids: Collection[int] = ()
) -> tuple[NodeConfig, bool]:
    """The configuration of the node, and whether this very start has chosen its id."""
    directories = parse_list(settings.get("log.dirs", NODE_DEFAULTS["log.dirs"]))
    remembered = recall(directories)
    cluster = _cluster_settings(settings, join) if join else remembered.cluster
    known = {**cluster, **Remembered(remembered.identity, {}).settings}
    if not cluster or not (join or remembered.identity is None):
        return NodeConfig({**known, **settings}), False
    return _join(settings, known, cluster, remembered, refused_ids)


def _join(
    settings: Mapping[str, str],
    known: Mapping[str, str],
    cluster: Mapping[str, str],
    remembered: Remembered,
    refused_ids: Collection[int],
) -> tuple[NodeConfig, bool]:
    from tidelog.cli.join import find_place

    provisional = NodeConfig({**known, **settings})
    wanted_id = int(settings["node.id"]) if "node.id" in settings else None
    place = find_place(
        cluster[BOOTSTRAP_SERVERS],
        provisional,
        identity=remembered.identity,
        wanted_id=wanted_id,
        refused_ids=refused_ids,
        tell=_tell,
    )
    if place is None:
        return provisional, False
    cluster = {**cluster, BOOTSTRAP_SERVERS: ",".join(place.bootstrap_servers)}
    remember(provisional.log_dirs[0], cluster)
    identity = {"cluster.id": place.cluster_id, "node.id": str(place.node_id)}
    has_new_id = remembered.identity is None and wanted_id is None
    return NodeConfig({**cluster, **identity, **settings}), has_new_id


def _cluster_settings(settings: Mapping[str, str], join: str) -> dict[str, str]:
    cluster = {BOOTSTRAP_SERVERS: join}
    roles = parse_list(settings.get("process.roles", CONTROLLER))
    if CONTROLLER in roles:
        cluster[_AUTO_JOIN] = "true"
    if _VOTERS_MAX in settings:
        cluster[_VOTERS_MAX] = settings[_VOTERS_MAX]
    return cluster


def _forget_identity(config: NodeConfig) -> None:
    """Take back what a node that was never registered has written of its id."""
    for directory in map(Path, config.log_dirs):
        shutil.rmtree(directory / METADATA_LOG, ignore_errors=True)
        (directory / META_PROPERTIES).unlink(missing_ok=True)


def _tell(text: str) -> None:
    click.echo(text, err=True)
