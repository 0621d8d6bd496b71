"""What brokers ask of the controller: to be registered, to serve, to get producer ids.

No client asks for these; between nodes they are APIs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_lifecycle import (
    BrokerRegistration,
    Heartbeat,
    heartbeat,
    register_broker,
)
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.partition_changes import IsrChange, alter_partitions
from tidelog.cluster.controller.producer_ids import allocate_producer_ids
from tidelog.cluster.metadata.image import Endpoint
from tidelog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidelog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext


def _register(
    controller: Controller, context: RequestContext | None, body: BrokerRegistrationRequest
) -> Decision[BrokerRegistrationResponse]:
    cluster_id = controller.settings.cluster_id
    if body.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {body.cluster_id}",
        )
    registration = BrokerRegistration(
        body.broker_id,
        body.incarnation_id,
        tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in body.listeners
        ),
        rack=body.rack,
        log_dirs=tuple(body.log_dirs),
        features=tuple(
            (each.name, each.min_supported_version, each.max_supported_version)
            for each in body.features
        ),
        previous_epoch=body.previous_broker_epoch,
    )
    decision = register_broker(registration, controller.latest, controller.next_offset)
    return Decision(decision.records, BrokerRegistrationResponse(broker_epoch=decision.rows))


def _heartbeat(
    controller: Controller, context: RequestContext | None, body: BrokerHeartbeatRequest
) -> Decision[BrokerHeartbeatResponse]:
    decision = heartbeat(
        Heartbeat(
            body.broker_id,
            body.broker_epoch,
            body.current_metadata_offset,
            wants_fence=body.want_fence,
            wants_shut_down=body.want_shut_down,
            offline_log_dirs=tuple(body.offline_log_dirs),
        ),
        controller.latest,
        controller.settings,
    )
    state = decision.rows
    return Decision(
        decision.records,
        BrokerHeartbeatResponse(
            is_caught_up=state.is_caught_up,
            is_fenced=state.is_fenced,
            should_shut_down=state.should_shut_down,
        ),
    )


def _allocate_producer_ids(
    controller: Controller, context: RequestContext | None, body: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    decision = allocate_producer_ids(body.broker_id, body.broker_epoch, controller.latest)
    block = decision.rows
    return Decision(
        decision.records,
        AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.count),
    )


def _alter_partition(
    controller: Controller, context: RequestContext | None, body: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    image = controller.latest
    changes = [
        _isr_change(topic.topic_id, each) for topic in body.topics for each in topic.partitions
    ]
    decision = alter_partitions(changes, body.broker_id, body.broker_epoch, image)
    # The answer has each partition as it is with the change.
    after = image
    if decision.records:
        after, _ = image.apply(decision.records, image.offset, image.epoch, image.timestamp_ms)
    by_topic: dict[bytes, list[AlterPartitionResponsePartition]] = {}
    for change, error in decision.rows:
        row = AlterPartitionResponsePartition(partition_index=change.partition)
        if error is not None:
            row.error_code = error.code
        else:
            partition = after.topics_by_id[change.topic_id].partitions[change.partition]
            row.leader_id = partition.leader
            row.leader_epoch = partition.leader_epoch
            row.isr = list(partition.isr)
            row.leader_recovery_state = partition.leader_recovery_state
            row.partition_epoch = partition.partition_epoch
        by_topic.setdefault(change.topic_id, []).append(row)
    return Decision(
        decision.records,
        AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopic(topic_id=topic_id, partitions=rows)
                for topic_id, rows in by_topic.items()
            ]
        ),
    )


def _isr_change(topic_id: bytes, partition: AlterPartitionRequestPartition) -> IsrChange:
    """From version 3 on a request has the brokers' epochs too."""
    states = partition.new_isr_with_epochs
    return IsrChange(
        topic_id,
        partition.partition_index,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(each.broker_id for each in states) or tuple(partition.new_isr),
        partition.leader_recovery_state,
        tuple(each.broker_epoch for each in states),
    )


DECIDE: dict[type[Message], Callable[[Controller, RequestContext | None, Any], Decision[Any]]] = {
    AllocateProducerIdsRequest: _allocate_producer_ids,
    AlterPartitionRequest: _alter_partition,
    BrokerHeartbeatRequest: _heartbeat,
    BrokerRegistrationRequest: _register,
}
