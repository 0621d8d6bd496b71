"""Promises: settled once, early or late, and nobody is left out."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog.promise import Promise, gather, settle_all


def test_a_callback_hears_of_a_late_value() -> None:
    promise: Promise[int] = Promise()
    heard: list[int] = []
    promise.when_done(lambda done: heard.append(done.result()))
    assert heard == []
    promise.resolve(7)
    assert heard == [7]


def test_a_callback_hears_of_an_early_value_at_once() -> None:
    heard: list[int] = []
    Promise.of(7).when_done(lambda done: heard.append(done.result()))
    assert heard == [7]


def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    promise: Promise[int] = Promise.failed(TidelogError("no"))
    with pytest.raises(TidelogError, match="no"):
        promise.result()


def test_a_promise_is_settled_once() -> None:
    promise = Promise.of(1)
    with pytest.raises(AssertionError, match="once"):
        promise.resolve(2)
    with pytest.raises(AssertionError, match="once"):
        promise.fail(TidelogError("no"))


def test_a_callback_that_raises_keeps_no_other_from_running() -> None:
    promise: Promise[int] = Promise()
    heard: list[int] = []

    def break_off(_: Promise[int]) -> None:
        raise RuntimeError("a bug")

    promise.when_done(break_off)
    promise.when_done(lambda done: heard.append(done.result()))
    with pytest.raises(RuntimeError, match="a bug"):
        promise.resolve(7)
    assert heard == [7]


def test_a_promise_goes_on_with_values_and_with_promises() -> None:
    first: Promise[int] = Promise()
    second: Promise[str] = Promise()
    added = first.then(lambda value: value + 1)
    followed = added.then_wait(lambda value: second)
    first.resolve(1)
    assert added.result() == 2
    assert not followed.is_done
    second.resolve("later")
    assert followed.result() == "later"


def test_then_passes_errors_through() -> None:
    first: Promise[int] = Promise()
    followed = first.then(lambda value: value + 1)
    first.fail(TidelogError("no"))
    assert str(followed.error) == "no"


def _refuse(value: int) -> int:
    raise TidelogError(f"not {value}")


def test_an_error_raised_on_the_way_fails_what_follows() -> None:
    assert str(Promise.of(3).then(_refuse).error) == "not 3"


def _break_off(*_: object) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    "step",
    [
        lambda promise: promise.then(_break_off),
        lambda promise: promise.then_wait(_break_off),
        lambda promise: promise.then(_refuse).recover(TidelogError, _break_off),
    ],
)
def test_a_bug_in_a_step_fails_what_follows_and_not_who_settled(
    step: Callable[[Promise[int]], Promise[int]],
) -> None:
    promise: Promise[int] = Promise()
    following = step(promise)
    after = following.then(lambda value: value + 1)
    promise.resolve(1)
    assert isinstance(after.error, KeyError)
    with pytest.raises(KeyError, match="a bug") as raised:
        after.result()
    assert "_break_off" in [frame.name for frame in raised.traceback]


def test_settling_several_promises_leaves_none_out() -> None:
    promises: list[Promise[int]] = [Promise(), Promise(), Promise()]
    promises[0].when_done(_break_off)
    with pytest.raises(KeyError, match="a bug"):
        settle_all(partial(promise.resolve, 1) for promise in promises)
    assert all(promise.is_done for promise in promises)


def test_a_failed_promise_leaves_no_cycle_to_the_collector() -> None:
    def refuse(promise: Promise[int]) -> None:
        try:
            raise TidelogError("no")
        except TidelogError as error:
            promise.fail(error)

    gc.collect()
    gc.disable()
    try:
        promise: Promise[int] = Promise()
        followed = promise.then(lambda value: value + 1).recover(_Expected, lambda _: 0)
        refuse(promise)
        gone = weakref.ref(followed.error or ValueError())
        assert gone() is not None
        del promise, followed
        assert gone() is None
    finally:
        gc.enable()


class _Expected(TidelogError):
    pass


def test_recovering_makes_a_value_of_errors_of_one_kind() -> None:
    failed: Promise[str] = Promise.failed(_Expected("no"))
    other: Promise[str] = Promise.failed(TidelogError("other"))
    assert failed.recover(_Expected, str).result() == "no"
    assert str(other.recover(_Expected, str).error) == "other"
    assert Promise.of("value").recover(_Expected, str).result() == "value"


def test_an_error_raised_in_recovering_takes_the_place_of_the_first() -> None:
    failed: Promise[str] = Promise()

    def translate(error: _Expected) -> str:
        raise TidelogError(f"not {error}")

    recovered = failed.recover(_Expected, translate)
    failed.fail(_Expected("that"))
    assert str(recovered.error) == "not that"


def test_gathered_values_keep_the_order_of_their_promises() -> None:
    promises: list[Promise[int]] = [Promise(), Promise(), Promise.of(3)]
    gathered = gather(promises)
    promises[1].resolve(2)
    assert not gathered.is_done
    promises[0].resolve(1)
    assert gathered.result() == [1, 2, 3]


def test_gathering_nothing_is_done_at_once() -> None:
    nothing: list[Promise[int]] = []
    assert gather(nothing).result() == []


def test_gathering_fails_once_all_are_settled() -> None:
    promises: list[Promise[int]] = [Promise(), Promise()]
    gathered = gather(promises)
    promises[0].fail(TidelogError("first"))
    assert not gathered.is_done
    promises[1].fail(TidelogError("second"))
    assert str(gathered.error) == "first"
