"""Producer ids, which the controller gives out in blocks."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node

# With this many left the next block is asked for, so that nobody waits for it.
_LOW_WATER = 100


class ProducerIds:
    """The ids of this node's current block, and the way to the next."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._ids: deque[int] = deque()
        self._waiting: list[Promise[None]] = []
        self._is_asking = False

    def take(self) -> int:
        """An id that nobody has had. Raises ApiError while there is none: see `ensure`."""
        if not self._ids:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next producer ids are on their way"
            )
        producer_id = self._ids.popleft()
        if len(self._ids) < _LOW_WATER:
            self._node.reactor.call_soon(self._ask)
        return producer_id

    def ensure(self) -> Promise[None]:
        """Kept when there is an id to take, often at once; fails with why there is none."""
        if self._ids:
            return Promise.of(None)
        ready: Promise[None] = Promise()
        self._waiting.append(ready)
        self._ask()
        return ready

    def _ask(self) -> None:
        if self._is_asking or len(self._ids) >= _LOW_WATER:
            return
        self._is_asking = True
        node = self._node
        asked = AllocateProducerIdsRequest(
            broker_id=node.config.node_id, broker_epoch=node.broker_epoch
        )
        node.controller.ask(asked).when_done(self._answered)

    def _answered(self, answer: Promise[AllocateProducerIdsResponse]) -> None:
        self._is_asking = False
        error = answer.error
        if error is None:
            block = answer.result()
            first = block.producer_id_start
            self._ids.extend(range(first, first + block.producer_id_len))
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            if error is None:
                ready.resolve(None)
            else:
                ready.fail(error)
