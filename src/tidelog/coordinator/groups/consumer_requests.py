"""What a ConsumerGroupHeartbeat must say, whatever the state of the group."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.coordinator.groups.consumer_member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.errors import ApiError, ErrorCode


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """ApiError: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR if it asks for none of `assignors`."""

    def refuse(reason: str) -> None:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)

    epoch = request.member_epoch
    if (version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
        refuse("MemberId can't be empty.")
    if not request.group_id.strip():
        refuse("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        refuse("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        refuse("RackId can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            refuse("TopicPartitions must be empty when (re-)joining.")
        # Both may be empty: a member of a group need not be subscribed to anything yet.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            refuse(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                " (re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            refuse("InstanceId can't be null.")
    elif epoch < LEAVE_EPOCH:
        refuse("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        known = ", ".join(assignors)
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {known}.",
        )
