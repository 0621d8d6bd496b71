"""Metadata: which brokers there are, and who leads which partition.

Topics that do not exist are created when the client and the node allow it. The answer waits for
that, so that a client has the leaders after one round trip and not after a few retries.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import MetadataImage, TopicImage
from tidelog.cluster.topic_names import invalid_topic_name, is_internal
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
)
from tidelog.server.needs import Need, Refusal, Unnamed, cluster
from tidelog.server.partition_view import partition_view
from tidelog.server.topic_creation import create_missing_topics

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.METADATA
VERSIONS = (0, 13)
REQUEST = MetadataRequest

_LISTENER_NOT_FOUND_FROM = 6
_TOPIC_IDS_FROM = 12


def _topics(body: MetadataRequest, version: int) -> Iterable[str | bytes]:
    """Names do not count in a request that has ids."""
    asked = body.topics or []
    ids = [topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID]
    return ids or [topic.name or "" for topic in asked]


def _topics_to_create(body: MetadataRequest, version: int) -> Iterable[str]:
    """Those of them that do not exist."""
    if not body.allow_auto_topic_creation:
        return ()
    return [topic.name for topic in body.topics or () if topic.name]


def _cluster_if_asked(body: MetadataRequest, version: int) -> Iterable[str]:
    return cluster(body, version) if body.include_cluster_authorized_operations else ()


NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, _topics, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.OMISSION),
    Need(
        AclOperation.CREATE,
        ResourceType.TOPIC,
        _topics_to_create,
        Refusal.ROW,
        unless=Need(AclOperation.CREATE, ResourceType.CLUSTER, cluster),
    ),
    Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, _cluster_if_asked, Refusal.OMISSION),
)


def handle(
    node: Node, request: Request, body: MetadataRequest
) -> MetadataResponse | Promise[MetadataResponse]:
    topics = body.topics
    if topics is None or (request.version == 0 and not topics):
        return _respond(node, request, body, None, {})
    _check_topics(topics, request.version)
    missing = [
        topic.name
        for topic in topics
        if topic.name
        and topic.topic_id == ZERO_UUID
        and topic.name not in node.image.topics_by_name
        and invalid_topic_name(topic.name) is None
    ]
    may_create = body.allow_auto_topic_creation and node.config.auto_create_topics_enable
    if not missing or not may_create:
        return _respond(node, request, body, topics, {})
    return create_missing_topics(node, request, missing).then(
        lambda errors: _respond(node, request, body, topics, errors)
    )


def error_response(body: MetadataRequest, error: ApiError) -> MetadataResponse:
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in body.topics or []
        ],
    )


def _check_topics(topics: list[MetadataRequestTopic], version: int) -> None:
    """Ids in requests came two versions after ids in the schema."""
    if version >= _TOPIC_IDS_FROM:
        return
    for topic in topics:
        if topic.name is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Topic name can not be null in version {version}"
            )
        if topic.topic_id != ZERO_UUID:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Topic ids can not be asked for in version {version}"
            )


def _respond(
    node: Node,
    request: Request,
    body: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    errors: dict[str, ErrorCode],
) -> MetadataResponse:
    image = node.image
    listener = request.connection.listener.name
    operations = TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED_FOR

    def row_of(topic: TopicImage) -> MetadataResponseTopic:
        lost = node.reachability.lost
        return _topic_row(image, topic, listener, lost, request.version, operations)

    if asked is None:
        rows = [row_of(topic) for topic in image.topics_by_name.values()]
    else:
        rows = _asked_rows(image, asked, errors, row_of, operations)
    return MetadataResponse(
        brokers=_broker_rows(image, listener),
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
        topics=rows,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _broker_rows(image: MetadataImage, listener: str) -> list[MetadataResponseBroker]:
    rows = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None and not broker.fenced:
            rows.append(
                MetadataResponseBroker(
                    node_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                )
            )
    return rows


def _asked_rows(
    image: MetadataImage,
    asked: list[MetadataRequestTopic],
    errors: dict[str, ErrorCode],
    row_of: Callable[[TopicImage], MetadataResponseTopic],
    operations: int,
) -> list[MetadataResponseTopic]:
    """One row for each topic that was asked for, however often. As Kafka does it, names do not
    count in a request that has ids."""
    rows: dict[bytes | str, MetadataResponseTopic] = {}
    by_id = any(each.topic_id != ZERO_UUID for each in asked)
    for each in asked:
        key: bytes | str = each.topic_id if by_id else (each.name or "")
        if key in rows or (by_id and each.topic_id == ZERO_UUID):
            continue
        if by_id:
            topic = image.topics_by_id.get(each.topic_id)
        else:
            topic = image.topics_by_name.get(each.name or "")
        if topic is not None:
            rows[key] = row_of(topic)
        elif by_id:
            rows[key] = MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None,
                topic_id=each.topic_id,
                topic_authorized_operations=operations,
            )
        else:
            rows[key] = _missing_row(each.name or "", errors, operations)
    return list(rows.values())


def _missing_row(name: str, errors: dict[str, ErrorCode], operations: int) -> MetadataResponseTopic:
    if invalid_topic_name(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        error = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations,
    )


def _topic_row(
    image: MetadataImage,
    topic: TopicImage,
    listener: str,
    lost_brokers: Container[int],
    version: int,
    operations: int,
) -> MetadataResponseTopic:
    partitions = []
    for partition in topic.partitions:
        view = partition_view(image, partition, listener, lost_brokers)
        error = view.error
        if error is ErrorCode.LISTENER_NOT_FOUND and version < _LISTENER_NOT_FOUND_FROM:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=partition.partition,
                leader_id=view.leader,
                leader_epoch=view.leader_epoch,
                replica_nodes=view.replicas,
                isr_nodes=view.isr,
                offline_replicas=view.offline_replicas,
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
