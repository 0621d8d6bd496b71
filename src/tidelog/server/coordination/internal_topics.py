"""The topics that coordinators keep their state in: made when they are first needed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.topic_creation import new_topic

if TYPE_CHECKING:
    from tidelog.server.node import Node


@lru_cache(maxsize=16_384)
def partition_for(key: str, partition_count: int) -> int:
    """Which partition coordinates a group or transactional id: Java's hash of the string."""
    units = key.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = (0x100000000 - value) & 0x7FFFFFFF
    return value % partition_count


def ensure_internal_topic(node: Node, topic: str) -> Promise[None]:
    """Kept once the topic is there and its coordinators can be asked; fails with the reason why it
    could not be made."""
    if topic in node.image.topics_by_name:
        return Promise.of(None)
    ensured: Promise[None] = Promise()

    def answered(answer: Promise[CreateTopicsResponse]) -> None:
        if topic in node.image.topics_by_name:  # whoever made it
            ensured.resolve(None)
            return
        reason = str(answer.error or answer.result().topics[0].error_message)
        node.log.error("internal_topic_not_created", topic=topic, error=reason)
        ensured.fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))

    asked = CreateTopicsRequest(topics=[new_topic(node, topic)])
    node.controller.ask(asked).when_done(answered)
    return ensured
