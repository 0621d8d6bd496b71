"""Who asks the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.server.request import Request


class RequestContext(NamedTuple):
    """What the controller has to know of a client's request beside its body, and what is forwarded
    with it: whose quota it counts for, and which errors the client understands."""

    principal: str
    client_id: str | None
    client_host: str
    version: int
    received_ms: int

    @classmethod
    def of(cls, request: Request) -> RequestContext:
        connection = request.connection
        return cls(
            connection.principal,
            request.client_id,
            connection.peer_host,
            request.version,
            request.received_ms,
        )
