"""The node's one way to the controller: ask, and get the answer later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.promise import Promise
from tidelog.server.controller.request_context import RequestContext

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.controller.controller import Controller
    from tidelog.server.local_partitions import LocalPartitions
    from tidelog.server.request import Request


class ControllerChannel:
    """What is asked is a message and its context, so that it can be forwarded to another node; as
    long as the quorum is this node alone, its own controller answers."""

    def __init__(self, controller: Controller, local_partitions: LocalPartitions) -> None:
        self._controller = controller
        self._local_partitions = local_partitions

    def ask(self, body: Message, context: RequestContext | None = None) -> Promise[Any]:
        """The controller's response; without a context it is the node itself that asks.

        By then the node's image has the change and its partitions have followed it. Fails with an
        ApiError, retriable unless the request itself is wrong.
        """
        return self._controller.ask(body, context).then_wait(self._carried_out)

    def forward(self, request: Request, body: Message) -> Promise[Any]:
        """Asks for a client, and holds the client off for as long as the answer says."""

        def throttle(response: Any) -> Any:
            if response.throttle_time_ms:
                request.connection.throttle(response.throttle_time_ms)
            return response

        return self.ask(body, RequestContext.of(request)).then(throttle)

    def _carried_out(self, response: Any) -> Promise[Any]:
        carried_out: Promise[Any] = Promise()
        self._local_partitions.when_carried_out(lambda: carried_out.resolve(response))
        return carried_out
