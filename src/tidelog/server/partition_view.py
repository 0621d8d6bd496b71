"""A partition as a client on one listener sees it."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from tidelog.cluster.directory_ids import is_online
from tidelog.cluster.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from tidelog.protocol.errors import ErrorCode


class PartitionView(NamedTuple):
    """The leader is one that can be reached on the listener, or NO_LEADER with the reason."""

    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


def partition_view(
    image: MetadataImage,
    partition: PartitionImage,
    listener: str,
    lost_brokers: Container[int] = (),
) -> PartitionView:
    """What Metadata and DescribeTopicPartitions tell of `partition`. `lost_brokers` are gone,
    though the image does not know it yet."""
    leader = image.brokers.get(partition.leader)
    error = ErrorCode.NONE
    if leader is None or leader.fenced or partition.leader in lost_brokers:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(listener) is None:
        error = ErrorCode.LISTENER_NOT_FOUND
    return PartitionView(
        error,
        NO_LEADER if error else partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        [
            replica
            for place, replica in enumerate(partition.replicas)
            if _is_offline(image.brokers.get(replica), partition, place, listener)
        ],
    )


def _is_offline(
    broker: BrokerImage | None, partition: PartitionImage, place: int, listener: str
) -> bool:
    if broker is None or broker.fenced or broker.endpoint(listener) is None:
        return True
    if place >= len(partition.directories):
        return False
    return not is_online(partition.directories[place], broker.log_dirs)
