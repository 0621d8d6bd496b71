"""From a frame to its handler and from the handler's result to the answer.

The table of the handlers is what dispatch routes by and what ApiVersions advertises, so the two
cannot disagree.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - the exception is in the wrong case
from typing import TYPE_CHECKING, Any

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.headers import encode_response
from tidelog.protocol.varint import read_uvarint
from tidelog.server.request import Deferred, RawResponse, Request

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.handler import Answer, Handler
    from tidelog.server.network.connection import Connection
    from tidelog.server.node import Node

# API key, version, correlation id, length of the client id.
_HEADER = Struct(">hhih")
_NO_BODY = memoryview(b"")
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class Dispatcher:
    """Decodes request headers, calls handlers, hands their answers to the connection.

    Before `serve_all` only those APIs are served that the quorum stands on.
    """

    def __init__(self, node: Node, handlers: dict[int, Handler]) -> None:
        self._node = node
        self._all_handlers = handlers
        self._handlers = {
            key: handler for key, handler in handlers.items() if handler.serves_before_node
        }
        self._metrics = node.metrics
        self._requests = node.metrics.requests
        self._reactor = node.reactor
        self._busy_ns = node.world.busy_ns
        self.log = node.log

    def serve_all(self) -> None:
        """The node has got to the end of its start."""
        self._handlers = self._all_handlers

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        """Process one frame. Whatever goes wrong ends this connection at most."""
        try:
            api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
            at = 10
            if client_id_size >= 0:
                at += client_id_size
                if at > len(frame):
                    raise ProtocolError("the client id is longer than the request")
                # Nearly always the same as in the connection's request before.
                if frame[10:at] != connection.client_id_bytes or connection.client_id is None:
                    _take_client_id(connection, frame, at)
            else:
                connection.client_id = None
            request = Request(
                api_key,
                version,
                correlation_id,
                connection.client_id,
                frame,
                connection,
                self._reactor.now_ms,
                len(frame),
            )
            handler = self._handlers.get(api_key)
            if handler is None or not handler.served_from <= version <= handler.max_version:
                self._refuse(request, handler)
                return
            self._requests[api_key] += 1
            if version >= handler.flexible_from:
                at = at + 1 if not frame[at] else _skip_tags(frame, at)
            self._serve(handler, request, at)
        except (ProtocolError, StructError, UnicodeDecodeError, IndexError) as error:
            self._metrics.malformed_frames += 1
            self.log.warning("request_malformed", peer=connection.peer, error=error)
            connection.close("malformed request")

    def _serve(self, handler: Handler, request: Request, at: int) -> None:
        node = self._node
        connection = request.connection
        started_ns = self._busy_ns() if node.has_quotas else 0
        body: Any = None
        if handler.request_class is None:
            request.body = request.body[at:]
        else:
            # As Kafka, mind no bytes after the request: librdkafka appends some to Metadata v13.
            body, _ = handler.request_class.decode_prefix(request.body, request.version, at)
        try:
            answer = handler.handle(node, request, body)
        except ApiError as error:
            answer = self._failed(handler, request, body, error)
        except ProtocolError:
            raise
        except Exception:  # noqa: BLE001 - answered and logged below
            answer = self._failed_unexpectedly(handler, request, body)
        request.body = _NO_BODY
        if isinstance(answer, Promise):
            answer = self._await(handler, request, body, answer)
        if answer is None:
            return
        if connection.closed:
            if isinstance(answer, Deferred):
                answer.give_up()
            return
        if started_ns:
            self._throttle(request, answer, self._busy_ns() - started_ns)
        if type(answer) is bytes:
            connection.respond(request, answer)
        elif isinstance(answer, Deferred):
            connection.wait_for(answer)
        elif isinstance(answer, RawResponse):
            connection.respond_in_parts(request, answer)
        else:
            message: Message = answer  # type: ignore[assignment]
            connection.respond(
                request,
                encode_response(request.api_key, request.version, request.correlation_id, message),
            )

    def _await(
        self, handler: Handler, request: Request, body: Any, promise: Promise[Message]
    ) -> Answer:
        """What a promise has come to, or an answer that is deferred until it is settled."""
        if promise.is_done:
            return self._settled(handler, request, body, promise)
        deferred = request.defer()

        def answer(settled: Promise[Message]) -> None:
            try:
                deferred.answer(self._settled(handler, request, body, settled))
            except Exception:
                # Whoever settled the promise has done nothing wrong.
                self._metrics.handler_failures += 1
                self.log.exception(
                    "answer_failed", api=handler.api.name, peer=request.connection.peer
                )
                request.connection.close("a request failed")

        promise.when_done(answer)
        return deferred

    def _settled(
        self, handler: Handler, request: Request, body: Any, promise: Promise[Message]
    ) -> Message | None:
        # Expected errors are not raised again: that costs as much as a whole request.
        if isinstance(promise.error, ApiError):
            return self._failed(handler, request, body, promise.error)
        try:
            return promise.result()
        except Exception:  # noqa: BLE001 - answered and logged
            return self._failed_unexpectedly(handler, request, body)

    def _failed(
        self, handler: Handler, request: Request, body: Any, error: ApiError
    ) -> Message | None:
        """What a failed request is answered; a handler that has no words for it says nothing."""
        if handler.error_response is not None:
            return handler.error_response(body, error)
        request.connection.close(f"{handler.api.name} failed: {error}")
        return None

    def _failed_unexpectedly(self, handler: Handler, request: Request, body: Any) -> Message | None:
        """What is answered to a request on which the node has a bug; called while the exception is
        handled."""
        self._metrics.handler_failures += 1
        self.log.exception("handler_failed", api=handler.api.name, peer=request.connection.peer)
        unexpected = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the node's log has the details")
        return self._failed(handler, request, body, unexpected)

    def _throttle(self, request: Request, answer: Any, busy_ns: int) -> None:
        """Hold a client to its share of the node's time."""
        connection = request.connection
        throttle_ms = self._node.quotas.record_request(
            connection.principal, request.client_id, busy_ns, request.received_ms
        )
        if throttle_ms > 0:
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
            connection.throttle(throttle_ms)

    def _refuse(self, request: Request, handler: Handler | None) -> None:
        """An API or version that is not served ends the connection, as in Kafka.

        Only ApiVersions is answered in any version, for it is how a client finds out.
        """
        self._metrics.unsupported_requests += 1
        connection = request.connection
        if request.api_key == _API_VERSIONS and handler is not None:
            response: Any = handler.handle(self._node, request, None)
            connection.respond(
                request, encode_response(_API_VERSIONS, 0, request.correlation_id, response)
            )
            return
        if handler is None and request.api_key in self._all_handlers:
            # As if nobody listened yet; the client comes again.
            connection.close("the node does not serve yet")
            return
        self.log.warning(
            "request_refused",
            peer=connection.peer,
            api_key=request.api_key,
            version=request.version,
            client_id=request.client_id,
        )
        connection.close("unsupported API or version")


def _take_client_id(connection: Connection, frame: memoryview, end: int) -> None:
    raw = bytes(frame[10:end])
    connection.client_id = str(raw, "utf-8")
    connection.client_id_bytes = raw


def _skip_tags(view: memoryview, at: int) -> int:
    count, at = read_uvarint(view, at)
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at
