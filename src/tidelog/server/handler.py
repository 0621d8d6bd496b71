"""A handler as dispatch sees it: one API with its versions, and the functions that answer it.

Most handlers are modules of `server/handlers/`, which declare this by constants and functions; what
they are is told there. A module may also have a table of them, as HANDLERS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import ApiError
from tidelog.server.handlers import HANDLERS

if TYPE_CHECKING:
    from tidelog.promise import Promise
    from tidelog.protocol.schema import Message
    from tidelog.server.needs import Need
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, RawResponse, Request

Answer: TypeAlias = "Message | Promise[Message] | bytes | RawResponse | Deferred | None"


def _always(_: Node) -> bool:
    return True


@dataclass(slots=True, frozen=True)
class Handler:
    """One API that the node serves.

    min_version, max_version: advertised by ApiVersions, if `is_offered(node)`.
    served_from: the lowest version that is really served.
    request_class: what dispatch decodes; None for a handler that reads `request.body` itself.
    flexible_from: the first version whose request header has tags.
    error_response: what a request is answered that failed; None ends the connection.
    needs: what its clients have to be allowed.
    serves_before_node: whether it is served while the node has not got to the end of its start, for
    the quorum stands on it.
    on_controller: whether a node without a broker serves it, too.
    """

    api: ApiKey
    min_version: int
    max_version: int
    served_from: int
    request_class: type[Message] | None
    flexible_from: int
    handle: Callable[[Node, Request, Any], Answer]
    error_response: Callable[[Any, ApiError], Message] | None
    needs: tuple[Need, ...]
    is_offered: Callable[[Node], bool] = _always
    serves_before_node: bool = False
    on_controller: bool = False

    @classmethod
    def of_module(cls, module: Any) -> Handler:
        """What a handler module declared."""
        request_class: type[Message] | None = module.REQUEST
        return cls(
            api=module.API,
            min_version=module.VERSIONS[0],
            max_version=module.VERSIONS[1],
            served_from=getattr(module, "SERVED_FROM", module.VERSIONS[0]),
            request_class=request_class,
            flexible_from=(
                module.FLEXIBLE_FROM if request_class is None else request_class.FLEXIBLE_FROM
            ),
            handle=module.handle,
            error_response=getattr(module, "error_response", None),
            needs=module.NEEDS,
            is_offered=getattr(module, "is_offered", _always),
            serves_before_node=getattr(module, "SERVES_BEFORE_NODE", False),
            on_controller=getattr(module, "ON_CONTROLLER", False),
        )

    @classmethod
    def between_nodes(
        cls,
        api: ApiKey,
        request_class: type[Message],
        handle: Callable[[Node, Request, Any], Answer],
        error_response: Callable[[Any, ApiError], Message],
        needs: tuple[Need, ...],
    ) -> Handler:
        """An API that the quorum stands on, in all versions that its messages have."""
        return cls(
            api=api,
            min_version=request_class.MIN_VERSION,
            max_version=request_class.MAX_VERSION,
            served_from=request_class.MIN_VERSION,
            request_class=request_class,
            flexible_from=request_class.FLEXIBLE_FROM,
            handle=handle,
            error_response=error_response,
            needs=needs,
            serves_before_node=True,
        )


def load_handlers(names: Iterable[str] = HANDLERS) -> dict[int, Handler]:
    """Import the named handler modules and index them by API key."""
    handlers: dict[int, Handler] = {}
    for name in names:
        module = import_module(f"tidelog.server.handlers.{name}")
        for handler in getattr(module, "HANDLERS", None) or [Handler.of_module(module)]:
            assert handler.api not in handlers, f"two handlers for {handler.api.name}"
            handlers[int(handler.api)] = handler
    return handlers
