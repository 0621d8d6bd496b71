"""What simulated clients do, written as coroutines: one step after the other, events between.

    async def work(client):
        response = await client.call(request)
        await client.sleep(0.1)

There is no event loop but the simulation's: a coroutine goes on when what it awaits is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Settled(Generic[Value]):
    """A value, or an error, that comes later; awaited by one task."""

    def __init__(self) -> None:
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._is_settled = False
        self._resume: Callable[[], None] | None = None

    def set(self, value: Value) -> None:
        self._value = value
        self._settle()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._settle()

    def _settle(self) -> None:
        assert not self._is_settled, "a value is set once"
        self._is_settled = True
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def when_settled(self, resume: Callable[[], None]) -> None:
        self._resume = resume

    def __await__(self) -> Generator[Settled[Value], None, Value]:
        if not self._is_settled:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Task:
    """A coroutine on its way. What it raises is kept in `error`, and told to `on_end`."""

    def __init__(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, object],
        on_end: Callable[[Task], None] = lambda task: None,
    ) -> None:
        self.name = name
        self.is_done = False
        self.error: BaseException | None = None
        self._coroutine = coroutine
        self._on_end = on_end

    def step(self) -> None:
        """Go on until something has to be waited for."""
        if self.is_done:
            return
        while True:
            try:
                awaited: Settled[Any] = self._coroutine.send(None)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  the simulation decides what it means
                self.error = error
                break
            awaited.when_settled(self.step)
            return
        self.is_done = True
        self._on_end(self)

    def cancel(self) -> None:
        """The machine it runs on is gone."""
        if not self.is_done:
            self.is_done = True
            self._coroutine.close()
