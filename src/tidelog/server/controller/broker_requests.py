"""What brokers ask of the controller: to be registered, to serve, to get producer ids.

No client asks for these; between nodes they are APIs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_lifecycle import Heartbeat, heartbeat
from tidelog.cluster.controller.broker_registrations import BrokerRegistration, register_broker
from tidelog.cluster.controller.controller_registrations import register_controller
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.directory_changes import (
    AssignmentRow,
    DirectoryAssignment,
    assign_replicas_to_dirs,
)
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.cluster.controller.producer_ids import allocate_producer_ids
from tidelog.cluster.metadata.image import ControllerImage, Endpoint
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
from tidelog.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectory,
    AssignReplicasToDirsResponsePartition,
    AssignReplicasToDirsResponseTopic,
)
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tidelog.protocol.apis.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
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
    if body.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller does not support registering ZK brokers.",
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
    decision = register_broker(
        registration,
        controller.latest,
        controller.settings,
        controller.heartbeats,
        now_ms=controller.now_ms(),
        next_offset=controller.next_offset,
    )
    return decision.answering(BrokerRegistrationResponse(broker_epoch=decision.rows))


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
            cordoned_log_dirs=(
                None if body.cordoned_log_dirs is None else tuple(body.cordoned_log_dirs)
            ),
            full_log_dirs=tuple(body.full_log_dirs),
        ),
        controller.latest,
        controller.settings,
        controller.heartbeats,
        now_ms=controller.now_ms(),
        next_offset=controller.next_offset,
    )
    state = decision.rows
    return decision.answering(
        BrokerHeartbeatResponse(
            is_caught_up=state.is_caught_up,
            is_fenced=state.is_fenced,
            should_shut_down=state.should_shut_down,
        )
    )


def _allocate_producer_ids(
    controller: Controller, context: RequestContext | None, body: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    decision = allocate_producer_ids(body.broker_id, body.broker_epoch, controller.latest)
    block = decision.rows
    return decision.answering(
        AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.count)
    )


def _alter_partition(
    controller: Controller, context: RequestContext | None, body: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    proposed = [
        _isr_change(topic.topic_id, each) for topic in body.topics for each in topic.partitions
    ]
    decision = alter_partitions(
        proposed, body.broker_id, body.broker_epoch, controller.latest, controller.settings
    )
    by_topic: dict[bytes, list[AlterPartitionResponsePartition]] = {}
    for change, error, after in decision.rows:
        row = AlterPartitionResponsePartition(partition_index=change.partition)
        if error is not None:
            row.error_code = error.code
        elif after is not None:
            row.leader_id = after.leader
            row.leader_epoch = after.leader_epoch
            row.isr = list(after.isr)
            row.leader_recovery_state = after.leader_recovery_state
            row.partition_epoch = after.partition_epoch
        by_topic.setdefault(change.topic_id, []).append(row)
    return decision.answering(
        AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopic(topic_id=topic_id, partitions=rows)
                for topic_id, rows in by_topic.items()
            ]
        )
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


def _assign_replicas_to_dirs(
    controller: Controller, context: RequestContext | None, body: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    decision = assign_replicas_to_dirs(
        [
            DirectoryAssignment(directory.id, topic.topic_id, each.partition_index)
            for directory in body.directories
            for topic in directory.topics
            for each in topic.partitions
        ],
        body.broker_id,
        body.broker_epoch,
        controller.latest,
        controller.settings,
    )
    rows = iter(decision.rows)
    return decision.answering(
        AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponseDirectory(
                    id=directory.id,
                    topics=[
                        AssignReplicasToDirsResponseTopic(
                            topic_id=topic.topic_id,
                            partitions=[_assigned(next(rows)) for _ in topic.partitions],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in body.directories
            ]
        )
    )


def _assigned(row: AssignmentRow) -> AssignReplicasToDirsResponsePartition:
    return AssignReplicasToDirsResponsePartition(
        partition_index=row.assignment.partition,
        error_code=ErrorCode.NONE if row.error is None else row.error.code,
    )


def _register_controller(
    controller: Controller, context: RequestContext | None, body: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    registered = ControllerImage(
        body.controller_id,
        body.incarnation_id,
        tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in body.listeners
        ),
        tuple(
            (each.name, each.min_supported_version, each.max_supported_version)
            for each in body.features
        ),
    )
    decision = register_controller(registered, controller.latest)
    return decision.answering(ControllerRegistrationResponse())


DECIDE: dict[type[Message], Callable[[Controller, RequestContext | None, Any], Decision[Any]]] = {
    AllocateProducerIdsRequest: _allocate_producer_ids,
    AlterPartitionRequest: _alter_partition,
    AssignReplicasToDirsRequest: _assign_replicas_to_dirs,
    BrokerHeartbeatRequest: _heartbeat,
    BrokerRegistrationRequest: _register,
    ControllerRegistrationRequest: _register_controller,
}
