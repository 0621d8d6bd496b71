"""The node's one way to the controller: ask, and get the answer later.

Where this node leads the quorum its own controller answers; otherwise the request goes to the node
that does, over a connection of its own for what the node itself asks and one for what its clients
ask. While nobody is known to lead, and when the one who was asked leads no more, it is tried again
until its time is up. As in Kafka, a request whose connection broke is sent again, though it may
have been carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.promise import Promise
from tidelog.protocol.apis.envelope import EnvelopeResponse
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.server.controller.envelope import unwrap_response, wrap
from tidelog.server.controller.request_context import RequestContext
from tidelog.server.network.peers import Purpose

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.controller.controller import Controller
    from tidelog.server.local_partitions import LocalPartitions
    from tidelog.server.network.peer_connection import PeerConnection, PeerError
    from tidelog.server.node import Node
    from tidelog.server.request import Request

ASK_TIMEOUT_S = 30.0
_RETRY_S = 0.05
_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class ControllerChannel:
    """What is asked is a message and its context, so that it can be forwarded."""

    def __init__(
        self, node: Node, controller: Controller, local_partitions: LocalPartitions
    ) -> None:
        self._node = node
        self._controller = controller
        self._local_partitions = local_partitions

    def ask(
        self,
        body: Message,
        context: RequestContext | None = None,
        *,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> Promise[Any]:
        """The controller's response; without a context it is the node itself that asks.

        If the controller is this node's, the image has the change by then and the partitions have
        followed it. Fails with an ApiError, retriable unless the request itself is wrong.
        """
        if self._node.metadata.is_active:
            answer = self.ask_here(body, context)
            if answer.is_done and not _asks_again(answer.error):
                return answer
        else:
            answer = self._ask_leader(body, context, timeout_s)
        asking = _Asking(self, body, context, self._node.world.monotonic() + timeout_s)
        asking.wait_for(answer)
        return asking.answer

    def ask_here(self, body: Message, context: RequestContext | None = None) -> Promise[Any]:
        """The response of this node's controller; fails with NOT_CONTROLLER if another node's is
        the one that counts."""
        return self._controller.ask(body, context).then_wait(self._carried_out)

    def attempt(
        self, body: Message, context: RequestContext | None, timeout_s: float
    ) -> Promise[Any]:
        """Ask once, whoever leads now."""
        if self._node.metadata.is_active:
            return self.ask_here(body, context)
        return self._ask_leader(body, context, timeout_s)

    def forward(self, request: Request, body: Message) -> Promise[Any]:
        """Asks for a client, and holds the client off for as long as the answer says."""

        def throttle(response: Any) -> Any:
            if response.throttle_time_ms:
                request.connection.throttle(response.throttle_time_ms)
            return response

        return self.ask(body, RequestContext.of(request)).then(throttle)

    def ask_quorum(self, body: Message, *, timeout_s: float = ASK_TIMEOUT_S) -> Promise[Any]:
        """The response of the quorum's leader to a request about the quorum itself."""
        quorum = self._node.metadata.quorum
        if quorum.is_leader:
            return quorum.ask(body)
        connection = self._leader_connection(Purpose.FORWARDING)
        if connection is None:
            return Promise.failed(_nobody_leads())
        return _called(connection, body, timeout_s)

    def _carried_out(self, response: Any) -> Promise[Any]:
        carried_out: Promise[Any] = Promise()
        self._local_partitions.when_carried_out(lambda: carried_out.resolve(response))
        return carried_out

    def _leader_connection(self, purpose: Purpose) -> PeerConnection | None:
        quorum = self._node.metadata.quorum.replica.quorum
        leader_id, address = quorum.leader_id, quorum.address(quorum.leader_endpoints)
        if leader_id is None or address is None or leader_id == quorum.key.id:
            return None
        return self._node.peers.at(leader_id, (address.host, address.port), purpose)

    def _ask_leader(
        self, body: Message, context: RequestContext | None, timeout_s: float
    ) -> Promise[Any]:
        refusal = self._node.metadata.quorum.refusal
        if refusal is not None:
            return Promise.failed(refusal)
        purpose = Purpose.CONTROLLER if context is None else Purpose.FORWARDING
        connection = self._leader_connection(purpose)
        if connection is None:
            return Promise.failed(_nobody_leads())
        if context is None:
            return _called(connection, body, timeout_s).then(_without_error)
        return _called(connection, wrap(body, context), timeout_s).then(
            lambda envelope: _opened(envelope, body, context)
        )


class _Asking:
    """One request, until it is answered or its time is up."""

    def __init__(
        self,
        channel: ControllerChannel,
        body: Message,
        context: RequestContext | None,
        deadline: float,
    ) -> None:
        self._channel = channel
        self._node = channel._node
        self._body = body
        self._context = context
        self._deadline = deadline
        self.answer: Promise[Any] = Promise()

    def wait_for(self, attempt: Promise[Any]) -> None:
        attempt.when_done(self._ended)

    def _ended(self, attempt: Promise[Any]) -> None:
        error = attempt.error
        left_s = self._deadline - self._node.world.monotonic()
        if not _asks_again(error) or left_s <= _RETRY_S or self._node.is_stopping:
            self.answer.settle_like(attempt)
        else:
            self._node.reactor.call_later(_RETRY_S, self._again)

    def _again(self) -> None:
        left_s = max(_RETRY_S, self._deadline - self._node.world.monotonic())
        self.wait_for(self._channel.attempt(self._body, self._context, left_s))


def _asks_again(error: Exception | None) -> bool:
    return isinstance(error, ApiError) and error.code in _AGAIN


def _nobody_leads() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "no leader of the quorum is known")


def _called(connection: PeerConnection, body: Message, timeout_s: float) -> Promise[Any]:
    answer: Promise[Any] = Promise()

    def done(response: Message | None, error: PeerError | None) -> None:
        if error is not None:
            answer.fail(ApiError(ErrorCode.NOT_CONTROLLER, f"the controller: {error}"))
        else:
            answer.resolve(response)

    connection.call(body, done, timeout_s=timeout_s)
    return answer


def _without_error(response: Any) -> Any:
    """Where a response has one error for all of it, that is how the request has failed."""
    code = ErrorCode(getattr(response, "error_code", 0))
    if code:
        raise ApiError(code, getattr(response, "error_message", None) or "")
    return response


def _opened(envelope: EnvelopeResponse, body: Message, context: RequestContext) -> Any:
    code = ErrorCode(envelope.error_code)
    if code:
        raise ApiError(code)
    try:
        return unwrap_response(envelope, body, context)
    except ProtocolError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
