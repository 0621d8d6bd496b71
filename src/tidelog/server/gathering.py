"""One request whose answer is put together from several, which may come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tidelog.protocol.schema import Message

if TYPE_CHECKING:
    from tidelog.server.request import Deferred, Request

Part = TypeVar("Part")
Result = TypeVar("Result")
Response = TypeVar("Response", bound=Message)


def gather(
    request: Request,
    parts: Sequence[Part],
    ask: Callable[[Part, Callable[[Result], None]], None],
    respond: Callable[[list[Result]], Response],
) -> Response | Deferred:
    """Calls `ask(part, done)` for each part and answers with `respond(results)`, in the order of
    the parts, once every `done` was called."""
    results: dict[int, Result] = {}
    deferred: Deferred | None = None

    def done_for(place: int) -> Callable[[Result], None]:
        def done(result: Result) -> None:
            results[place] = result
            if deferred is not None and len(results) == len(parts):
                deferred.answer(finish())

        return done

    def finish() -> Response:
        return respond([results[place] for place in range(len(parts))])

    for place, part in enumerate(parts):
        ask(part, done_for(place))
    if len(results) == len(parts):
        return finish()
    deferred = request.defer()
    return deferred
