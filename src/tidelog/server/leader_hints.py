"""Who leads a partition instead (KIP-951), so that a client need not ask for the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.produce import NodeEndpoint

if TYPE_CHECKING:
    from tidelog.protocol.produce import TopicKey
    from tidelog.server.node import Node
    from tidelog.server.request import Request

_WITH_HINTS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """The leaders that an answer names, and where its client reaches them."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self._listener = request.connection.listener.name
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(self._endpoints.values())

    def leader(self, topic: TopicKey, index: int, code: int) -> tuple[int, int] | None:
        """The leader and its epoch, for an error that they help with; None where they do not."""
        if code not in _WITH_HINTS:
            return None
        node = self._node
        if isinstance(topic, bytes):
            partition = node.partitions.get_by_id(topic, index)
            image = node.image.topics_by_id.get(topic)
        else:
            partition = node.partitions.get(topic, index)
            image = node.image.topics_by_name.get(topic)
        if partition is not None:
            leader, leader_epoch = partition.leader, partition.leader_epoch
        elif image is not None and 0 <= index < len(image.partitions):
            found = image.partitions[index]
            leader, leader_epoch = found.leader, found.leader_epoch
        else:
            return None
        broker = node.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(self._listener)
        if broker is not None and endpoint is not None:
            self._endpoints[leader] = NodeEndpoint(
                leader, endpoint.host, endpoint.port, broker.rack
            )
        return leader, leader_epoch
