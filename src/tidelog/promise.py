"""A value that may come later, or fail.

Whoever makes a promise settles it once: with a value (`resolve`) or with an error (`fail`). Whoever
holds it says what is to happen then; if it is settled already that happens at once, so nobody has
to tell an early value from a late one. Promises belong to one thread, and know no time: who wants a
deadline fails the promise from a timer.

A step (of `then`, `then_wait`, `recover`) that raises anything at all fails the promise that
follows, so that the one at the end of the chain is always settled: that is who tells an expected
error from a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from tidelog.errors import TidelogError

Value = TypeVar("Value")
Next = TypeVar("Next")
Error = TypeVar("Error", bound=TidelogError)


class Promise(Generic[Value]):
    """Made unsettled; `Promise.of` and `Promise.failed` make settled ones."""

    __slots__ = ("_callbacks", "_error", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: Value | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Promise[Value]], None]] | None = None

    @classmethod
    def of(cls, value: Value) -> Promise[Value]:
        """A promise that is kept already."""
        promise = cls()
        promise.resolve(value)
        return promise

    @classmethod
    def failed(cls, error: Exception) -> Promise[Value]:
        """A promise that has failed already."""
        promise = cls()
        promise.fail(error)
        return promise

    @property
    def error(self) -> Exception | None:
        """Why it failed, once it has."""
        return self._error

    def result(self) -> Value:
        """The value; raises the error of a promise that failed. Only once it is settled."""
        assert self.is_done, "the promise is not settled yet"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def resolve(self, value: Value) -> None:
        """Here is the value."""
        assert not self.is_done, "a promise is settled once"
        self._value = value
        self._settled()

    def fail(self, error: Exception) -> None:
        """There will be no value."""
        assert not self.is_done, "a promise is settled once"
        # The traceback of an expected error has the frames that have this promise: work for the
        # collector, each time. That of a bug is for people.
        self._error = error.with_traceback(None) if isinstance(error, TidelogError) else error
        self._settled()

    def settle_like(self, other: Promise[Value]) -> None:
        """Take over the value or the error of a settled promise."""
        assert other.is_done, "the promise is not settled yet"
        assert not self.is_done, "a promise is settled once"
        self._value, self._error = other._value, other._error
        self._settled()

    def when_done(self, callback: Callable[[Promise[Value]], None]) -> None:
        """Call `callback(self)` when the promise is settled, at once if it is.

        Callbacks run in the order in which they were added. One that raises keeps no other from
        running; the first exception then goes to whoever settled the promise.
        """
        if self.is_done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, make: Callable[[Value], Next]) -> Promise[Next]:
        """What `make` makes of the value. An error passes through, and one that `make` raises fails
        what is returned here."""
        made: Promise[Next] = Promise()

        def done(promise: Promise[Value]) -> None:
            if promise.error is not None:
                made.fail(promise.error)
                return
            try:
                value = make(promise.result())
            except Exception as error:  # noqa: BLE001 - the end of the chain tells it
                made.fail(error)
            else:
                made.resolve(value)

        self.when_done(done)
        return made

    def then_wait(self, go_on: Callable[[Value], Promise[Next]]) -> Promise[Next]:
        """Like `then`, for a next step that is itself a promise."""
        following: Promise[Next] = Promise()

        def done(promise: Promise[Value]) -> None:
            if promise.error is not None:
                following.fail(promise.error)
                return
            try:
                step = go_on(promise.result())
            except Exception as error:  # noqa: BLE001
                following.fail(error)
            else:
                step.when_done(following.settle_like)

        self.when_done(done)
        return following

    def recover(self, kind: type[Error], make: Callable[[Error], Value]) -> Promise[Value]:
        """The value, or what `make` makes of an error of this kind. Other errors pass through, and
        one that `make` raises takes the place of the first."""
        recovered: Promise[Value] = Promise()

        def done(promise: Promise[Value]) -> None:
            error = promise.error
            if not isinstance(error, kind):
                recovered.settle_like(promise)
                return
            try:
                value = make(error)
            except Exception as other:  # noqa: BLE001
                recovered.fail(other)
            else:
                recovered.resolve(value)

        self.when_done(done)
        return recovered

    def _settled(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is None:
            return
        first_failure: Exception | None = None
        for callback in callbacks:
            try:
                callback(self)
            except Exception as failure:  # noqa: BLE001 - raised below, after all have run
                first_failure = first_failure or failure
        if first_failure is not None:
            raise first_failure


def settle_all(settlements: Iterable[Callable[[], None]]) -> None:
    """Settle several promises, each by a call. One that raises, for a callback of its promise did,
    keeps no other from being settled; the first exception is raised then."""
    first_failure: Exception | None = None
    for settle in settlements:
        try:
            settle()
        except Exception as failure:  # noqa: BLE001 - raised below, after all are settled
            first_failure = first_failure or failure
    if first_failure is not None:
        raise first_failure


def gather(promises: Sequence[Promise[Value]]) -> Promise[list[Value]]:
    """All values, in the order of the promises; fails with the first of their errors in that order
    once all are settled."""
    gathered: Promise[list[Value]] = Promise()
    left = len(promises)

    def done(_: Promise[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            finish()

    def finish() -> None:
        error = next((each.error for each in promises if each.error is not None), None)
        if error is not None:
            gathered.fail(error)
        else:
            gathered.resolve([each.result() for each in promises])

    if not promises:
        finish()
    for promise in promises:
        promise.when_done(done)
    return gathered
