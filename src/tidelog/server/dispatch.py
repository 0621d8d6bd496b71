"""From a frame to its handler: which APIs and versions the node serves.

The handler modules declare their API, versions and request type; the table made from them is what
dispatch routes by and what ApiVersions advertises, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.protocol.api_keys import ApiKey
from tidelog.server.handlers import HANDLERS
from tidelog.server.request import Deferred, RawResponse, Request

if TYPE_CHECKING:
    from tidelog.protocol.errors import ApiError
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node

Answer: TypeAlias = "Message | RawResponse | Deferred | None"


class Handler:
    """What one handler module declared."""

    __slots__ = (
        "api",
        "error_response",
        "flexible_from",
        "handle",
        "max_version",
        "min_version",
        "request_class",
        "served_from",
    )

    def __init__(self, module: Any) -> None:
        self.api: ApiKey = module.API
        self.min_version: int = module.VERSIONS[0]
        self.max_version: int = module.VERSIONS[1]
        self.served_from: int = getattr(module, "SERVED_FROM", self.min_version)
        self.request_class: type[Message] | None = module.REQUEST
        self.handle: Callable[[Node, Request, Any], Answer] = module.handle
        self.error_response: Callable[[Any, ApiError], Message] = module.error_response


def load_handlers(names: Iterable[str] = HANDLERS) -> dict[int, Handler]:
    """Import the named handler modules and index them by API key."""
    handlers: dict[int, Handler] = {}
    for name in names:
        handler = Handler(import_module(f"tidelog.server.handlers.{name}"))
        assert handler.api not in handlers, f"two handlers for {handler.api.name}"
        handlers[int(handler.api)] = handler
    return handlers
