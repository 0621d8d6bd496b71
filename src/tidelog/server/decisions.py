"""From a decision of the controller to the answer of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tidelog.protocol.schema import Message

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

Response = TypeVar("Response", bound=Message)


def answer_when_committed(
    node: Node, request: Request, records: Sequence[Message], respond: Callable[[], Response]
) -> Response | Deferred:
    """Write the records of a decision and answer with `respond()` once they are committed.

    By then the node's image has the change and its partitions have followed it. Without records
    the answer comes at once.
    """
    if not records:
        return respond()
    # A quorum of one may commit before `submit` returns, a bigger one never does. And a change that
    # brings many partitions takes some turns of the loop.
    early: list[Response] = []
    deferred: Deferred | None = None

    def on_carried_out() -> None:
        if deferred is None:
            early.append(respond())
        else:
            deferred.answer(respond())

    node.metadata.submit(records, lambda: node.local_partitions.when_carried_out(on_carried_out))
    if early:
        return early[0]
    deferred = request.defer()
    return deferred
