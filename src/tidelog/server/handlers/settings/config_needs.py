"""What requests about settings need: it depends on whose settings they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, cluster

_OF_CLUSTER = frozenset(
    {
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
    }
)


def _cluster(body: Any, version: int) -> Iterable[str]:
    is_asked = any(resource.resource_type in _OF_CLUSTER for resource in body.resources)
    return cluster(body, version) if is_asked else ()


def _topics(body: Any, version: int) -> Iterable[str]:
    return _names(body, ConfigResourceType.TOPIC)


def _groups(body: Any, version: int) -> Iterable[str]:
    return _names(body, ConfigResourceType.GROUP)


def _names(body: Any, resource_type: ConfigResourceType) -> list[str]:
    return [
        resource.resource_name
        for resource in body.resources
        if resource.resource_type == resource_type
    ]


def config_needs(operation: AclOperation) -> tuple[Need, ...]:
    """The needs of a request with rows of `resource_type` and `resource_name`."""
    return (
        Need(operation, ResourceType.CLUSTER, _cluster, Refusal.ROW),
        Need(operation, ResourceType.TOPIC, _topics, Refusal.ROW),
        Need(operation, ResourceType.GROUP, _groups, Refusal.ROW),
    )
