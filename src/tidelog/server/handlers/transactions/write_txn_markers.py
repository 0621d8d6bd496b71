"""WriteTxnMarkers: another coordinator, or an operator, ends transactions in our partitions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.transaction_markers import write_marker
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

# Markers for other partitions wait behind those that do not commit, and are asked for again.
_COMMIT_TIMEOUT_S = 5.0

API = ApiKey.WRITE_TXN_MARKERS
VERSIONS = (1, 2)
REQUEST = WriteTxnMarkersRequest
NEEDS = (
    Need(
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        cluster,
        unless=Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),
    ),
)


def handle(
    node: Node, request: Request, body: WriteTxnMarkersRequest
) -> Promise[WriteTxnMarkersResponse]:
    written = [
        write_marker(
            node,
            TopicPartition(topic.name, index),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            # Before version 2 the flow is not told; the old one has the weaker check.
            transaction_version=max(marker.transaction_version, 1),
            timeout_s=_COMMIT_TIMEOUT_S,
        )
        for marker in body.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    return gather(written).then(lambda codes: _response(body, codes))


def error_response(body: WriteTxnMarkersRequest, error: ApiError) -> WriteTxnMarkersResponse:
    return _response(body, repeat(error.code))


def _response(body: WriteTxnMarkersRequest, codes: Iterable[ErrorCode]) -> WriteTxnMarkersResponse:
    """The rows of the request with their codes, in the same order."""
    code_of_next = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=next(code_of_next)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )
