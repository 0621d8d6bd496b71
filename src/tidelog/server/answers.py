"""Answers that may be ready at once or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.protocol.schema import Message

if TYPE_CHECKING:
    from tidelog.server.request import Deferred, Request

Response = TypeVar("Response", bound=Message)


def answer_when_done(
    request: Request, begin: Callable[[Callable[[Response], None]], None]
) -> Response | Deferred:
    """Calls `begin(done)`, where `done(response)` is to be called exactly once. Returns what the
    handler returns: the response if it is there already, else the promise of it."""
    early: list[Response] = []
    deferred: Deferred | None = None

    def done(response: Response) -> None:
        if deferred is None:
            early.append(response)
        else:
            deferred.answer(response)

    begin(done)
    if early:
        return early[0]
    deferred = request.defer()
    return deferred
