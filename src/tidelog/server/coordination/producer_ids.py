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
        self._last_id = -1
        self._next_block: Promise[None] | None = None

    def take(self) -> int:
        """An id that nobody has had. Raises ApiError while there is none: see `ensure`."""
        if not self._ids:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next producer ids are on their way"
            )
        producer_id = self._ids.popleft()
        if len(self._ids) < _LOW_WATER:
            self._node.reactor.call_soon(self._refill)
        return producer_id

    def ensure(self) -> Promise[None]:
        """Kept when there is an id to take, often at once; fails with why there is none."""
        return Promise.of(None) if self._ids else self._ask()

    def _refill(self) -> None:
        if len(self._ids) < _LOW_WATER:
            self._ask()

    def _ask(self) -> Promise[None]:
        """The next block, asked for once however many wait for it."""
        if self._next_block is not None:
            return self._next_block
        node = self._node
        asked = AllocateProducerIdsRequest(
            broker_id=node.config.node_id, broker_epoch=node.broker_epoch
        )
        block = self._next_block = node.controller.ask(asked).then(self._add)
        # The first of its callbacks, so that one that waits may ask again.
        block.when_done(self._answered)
        return block

    def _add(self, block: AllocateProducerIdsResponse) -> None:
        if block.error_code:
            raise ApiError(ErrorCode(block.error_code), "the controller gives no producer ids")
        first = block.producer_id_start
        if first <= self._last_id or block.producer_id_len <= 0:
            # Ids that somebody has had already would mix up two producers.
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the controller gives {block.producer_id_len} producer ids from {first} on, "
                f"behind {self._last_id}",
            )
        self._last_id = first + block.producer_id_len - 1
        self._ids.extend(range(first, self._last_id + 1))

    def _answered(self, _: Promise[None]) -> None:
        self._next_block = None
