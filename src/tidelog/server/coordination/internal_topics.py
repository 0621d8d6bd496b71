"""The topics that coordinators keep their state in: made when they are first needed."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.topic_creation import new_topic

if TYPE_CHECKING:
    from tidelog.server.node import Node

_TIMEOUT_MS = 5000
_LOOK_AGAIN_S = 0.02


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


class InternalTopics:
    """`node.internal_topics`: asks the controller for an internal topic, once however many want
    it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._asked: dict[str, Promise[None]] = {}

    def ensure(self, topic: str) -> Promise[None]:
        """Kept once the topic is there and its coordinators can be asked; fails with the reason why
        it could not be made."""
        node = self._node
        if topic in node.image.topics_by_name:
            return Promise.of(None)
        ensured = self._asked.get(topic)
        if ensured is not None:
            return ensured
        ensured = self._asked[topic] = Promise()
        # The first of its callbacks, so that one that waits may ask again.
        ensured.when_done(partial(self._settled, topic))
        asked = CreateTopicsRequest(topics=[new_topic(node, topic)], timeout_ms=_TIMEOUT_MS)
        node.controller.ask(asked).when_done(partial(self._answered, topic, ensured))
        return ensured

    def _settled(self, topic: str, _: Promise[None]) -> None:
        del self._asked[topic]

    def _answered(
        self, topic: str, ensured: Promise[None], answer: Promise[CreateTopicsResponse]
    ) -> None:
        if topic in self._node.image.topics_by_name:  # whoever made it
            ensured.resolve(None)
            return
        if answer.error is not None:
            self._failed(topic, ensured, str(answer.error))
            return
        (row,) = answer.result().topics
        if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            # It is made, and the metadata that says so is on its way to this node.
            give_up_at = self._node.world.monotonic() + _TIMEOUT_MS / 1000
            self._wait_for_metadata(topic, ensured, give_up_at)
        else:
            self._failed(topic, ensured, row.error_message or ErrorCode(row.error_code).name)

    def _wait_for_metadata(self, topic: str, ensured: Promise[None], give_up_at: float) -> None:
        if topic in self._node.image.topics_by_name:
            ensured.resolve(None)
        elif self._node.world.monotonic() >= give_up_at:
            self._failed(topic, ensured, "the metadata of this node does not have it yet")
        else:
            self._node.reactor.call_later(
                _LOOK_AGAIN_S, partial(self._wait_for_metadata, topic, ensured, give_up_at)
            )

    def _failed(self, topic: str, ensured: Promise[None], reason: str) -> None:
        self._node.log.error("internal_topic_not_created", topic=topic, error=reason)
        ensured.fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))


def ensure_internal_topic(node: Node, topic: str) -> Promise[None]:
    """See `InternalTopics.ensure`."""
    return node.internal_topics.ensure(topic)
