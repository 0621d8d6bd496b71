"""The settings of this node as DescribeConfigs tells them.

The table of broker settings is the cluster's; a node has a few settings besides that no other
node needs to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.settings.config_description import (
    BrokerConfigLayers,
    ConfigEntry,
    ConfigSource,
    describe_broker_config,
)
from tidelog.cluster.settings.config_schema import ConfigType
from tidelog.protocol.file_reference import LOCAL_READS_SOCKET
from tidelog.server.configuration.node_config import SETTINGS

if TYPE_CHECKING:
    from tidelog.server.node import Node


def broker_config_layers(node: Node) -> BrokerConfigLayers:
    """What was set for this node: in the metadata, for all brokers, and in its own configuration.

    Who the node is and what clients are told to connect to counts as set, whether or not somebody
    did.
    """
    image, config = node.image, node.config
    static = dict(node.controller_settings.broker_config)
    static["node.id"] = static["broker.id"] = str(config.node_id)
    static["log.dirs"] = ",".join(config.log_dirs)
    registered = image.brokers.get(config.node_id)
    if registered is not None:
        static["advertised.listeners"] = ",".join(
            f"{endpoint.name}://{endpoint.host}:{endpoint.port}"
            for endpoint in registered.endpoints
        )
    return BrokerConfigLayers.of(image, config.node_id, static, SETTINGS)


def describe_node_config(node: Node) -> list[ConfigEntry]:
    """Every setting of this node."""
    entries = describe_broker_config(broker_config_layers(node))
    if node.local_address is not None:
        entries.append(_local_socket_entry(node.local_address))
    return entries


def _local_socket_entry(address: str) -> ConfigEntry:
    """Nobody sets it: it is how readers on this machine find the socket that hands out files."""
    return ConfigEntry(
        name=LOCAL_READS_SOCKET,
        value=address,
        source=ConfigSource.STATIC_BROKER_CONFIG,
        type=ConfigType.STRING,
        documentation="Where readers on this machine get files in place of records.",
        read_only=True,
        sensitive=False,
    )
