"""Requests of one connection: what may start when, and answers in order, whatever happens."""

from __future__ import annotations

import struct
from collections import Counter, deque
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tidelog.protocol.api_keys import ApiKey
from tidelog.server.metrics import Metrics
from tidelog.server.network import pipeline as pipeline_module
from tidelog.server.network.frame_reader import FrameReader, Frames
from tidelog.server.network.pipeline import Hold, Pipeline
from tidelog.server.network.receive_buffer import ReceiveMemory
from tidelog.server.network.request_budget import RequestBudget
from tidelog.server.request import Deferred, Part, RawResponse, Request

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)

AT_ONCE, IN_PARTS, SILENT, LATER, READY, EXCLUSIVE, CLOSING = range(7)
"""What comes of a request; it stands in its frame, behind the header."""

_FRAME = struct.Struct(">ihhihb")


def frame(api_key: int, number: int, kind: int, padding: int = 0) -> bytes:
    size = _FRAME.size - 4 + padding
    return _FRAME.pack(size, api_key, 0, number, -1, kind) + bytes(padding)


def answer(number: int) -> bytes:
    return b"%d;" % number


class Outgoing:
    """What is to be sent, and what the client has read of it."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.unread: deque[bytes] = deque()
        self.read: list[bytes] = []

    def append(self, data: bytes) -> None:
        self.unread.append(data)
        self.size_bytes += len(data)

    def extend(self, parts: list[Part]) -> None:
        self.append(b"".join(cast(list[bytes], parts)))

    def take(self, count: int) -> None:
        for _ in range(min(count, len(self.unread))):
            data = self.unread.popleft()
            self.size_bytes -= len(data)
            self.read.append(data)


class Served:
    """A pipeline, with what was started on it."""

    def __init__(self, budget_bytes: float = 10**9) -> None:
        self.metrics = Metrics()
        self.budget = RequestBudget(budget_bytes, self.metrics)
        self.outgoing = Outgoing()
        self.pipeline = Pipeline(self._start, self.outgoing, self.budget, self._announced)
        self.frames = FrameReader(ReceiveMemory(), 1 << 20, frame_bytes_min=8)
        self.started: list[int] = []
        self.promised: dict[int, Deferred] = {}
        self.given_up: Counter[int] = Counter()
        self.hold: Hold | None = None
        self.announced = 0

    # What a deferred knows of a connection.
    def answer_deferred(self, deferred: Deferred, parts: bytes | list[Part] | None) -> None:
        self.pipeline.answer_deferred(deferred, parts)

    def receive(self, data: bytes) -> None:
        room = self.frames.room()
        assert len(data) <= len(room)
        room[: len(data)] = data
        self._process(self.frames.received(len(data)))

    def go_on(self) -> None:
        self._process(self.frames.held())

    def _process(self, frames: Frames) -> None:
        self.hold = self.pipeline.process(frames)
        assert (self.hold is not None) == self.frames.is_holding

    def flush(self) -> None:
        self.pipeline.is_announced = False
        self.pipeline.put_out()

    def answer(self, number: int) -> None:
        """Or try to: a promise that was given up drops its answer."""
        deferred = self.promised[number]
        if not deferred.closed:
            del self.promised[number]
        deferred.answer(answer(number))

    def _announced(self) -> None:
        assert self.pipeline.is_announced
        self.announced += 1

    def _start(self, view: memoryview) -> None:
        api_key, version, number, _, kind = struct.unpack_from(">hhihb", view)
        self.started.append(number)
        request = Request(
            api_key, version, number, None, memoryview(b""), cast(Any, self), 0, len(view)
        )
        if kind == AT_ONCE:
            self.pipeline.respond(request, answer(number))
        elif kind == IN_PARTS:
            text = answer(number)
            self.pipeline.respond_in_parts(request, RawResponse([text[:1], text[1:]]))
        elif kind == CLOSING:
            self.frames.close()
            self.pipeline.close()
        elif kind != SILENT:
            deferred = Deferred(request, is_exclusive=kind == EXCLUSIVE)
            deferred.on_close = lambda: self.given_up.update((number,))
            if kind == READY:
                deferred.ready = True
                deferred.parts = answer(number)
            else:
                self.promised[number] = deferred
            self.pipeline.wait_for(deferred)


def test_produces_follow_produces_that_wait_and_nothing_else_does() -> None:
    served = Served()
    served.receive(
        frame(PRODUCE, 1, LATER)
        + frame(PRODUCE, 2, LATER)
        + frame(PRODUCE, 3, AT_ONCE)
        + frame(FETCH, 4, AT_ONCE)
        + frame(PRODUCE, 5, LATER)
    )
    assert served.started == [1, 2, 3]
    assert served.hold is Hold.ORDER
    served.answer(2)
    served.flush()
    assert not served.outgoing.unread
    served.answer(1)
    served.flush()
    assert list(served.outgoing.unread) == [b"1;", b"2;", b"3;"]
    served.go_on()
    assert served.started == [1, 2, 3, 4, 5]
    assert served.hold is None
    assert served.outgoing.unread[-1] == b"4;"


def test_nothing_follows_a_request_that_is_exclusive() -> None:
    served = Served()
    served.receive(frame(PRODUCE, 1, EXCLUSIVE) + frame(PRODUCE, 2, AT_ONCE))
    assert served.started == [1]
    assert served.hold is Hold.ORDER
    served.go_on()
    assert served.started == [1]
    served.answer(1)
    served.flush()
    served.go_on()
    assert served.started == [1, 2]


def test_the_limits_of_a_connection_hold() -> None:
    served = Served()
    many = pipeline_module.PENDING_REQUESTS_MAX + 1
    for number in range(many):
        served.receive(frame(PRODUCE, number, LATER))
    assert len(served.started) == many - 1
    assert served.hold is Hold.PENDING
    served.answer(0)
    served.flush()
    served.go_on()
    assert served.hold is None

    served = Served()
    half_bytes = pipeline_module.PENDING_BYTES_MAX // 2
    large = frame(PRODUCE, 0, LATER, padding=half_bytes)
    served.frames = FrameReader(ReceiveMemory(), half_bytes * 2, frame_bytes_min=8)
    for _ in range(3):
        data = large
        while data:
            size = len(served.frames.room())
            served.receive(data[:size])
            data = data[size:]
    assert served.started == [0, 0]
    assert served.hold is Hold.PENDING


def test_a_client_that_does_not_read_is_not_served() -> None:
    served = Served()
    served.outgoing.append(bytes(pipeline_module.OUTGOING_BYTES_MAX + 1))
    served.receive(frame(FETCH, 1, AT_ONCE))
    assert served.hold is Hold.OUTGOING
    served.outgoing.take(1)
    served.go_on()
    assert served.started == [1]


def test_a_throttled_client_is_not_served() -> None:
    served = Served()
    served.pipeline.is_throttled = True
    served.receive(frame(FETCH, 1, AT_ONCE))
    assert served.hold is Hold.THROTTLE
    served.pipeline.is_throttled = False
    served.go_on()
    assert served.started == [1]


class _Other:
    resumed = 0

    def resume(self) -> None:
        self.resumed += 1


def test_all_connections_together_have_a_budget() -> None:
    served, other = Served(budget_bytes=20), _Other()
    served.receive(frame(PRODUCE, 1, LATER) + frame(PRODUCE, 2, LATER) + frame(PRODUCE, 3, LATER))
    assert served.started == [1, 2]
    assert served.hold is Hold.BUDGET
    served.budget.wait(other)
    served.budget.set_congested(True)
    served.answer(1)
    served.answer(2)
    served.flush()
    assert served.metrics.in_flight_bytes == other.resumed == 0
    served.budget.set_congested(False)
    assert other.resumed == 1
    served.go_on()
    assert served.started == [1, 2, 3]
    served.pipeline.close()
    assert served.metrics.in_flight_bytes == served.metrics.requests_in_flight == 0


def test_a_request_is_answered_once() -> None:
    served = Served()
    served.receive(frame(PRODUCE, 1, LATER))
    deferred = served.promised[1]
    deferred.answer(b"first")
    with pytest.raises(AssertionError, match="once"):
        deferred.answer(b"second")


def test_what_is_promised_on_an_abandoned_pipeline_is_given_up_at_once() -> None:
    served = Served()
    served.receive(
        frame(PRODUCE, 1, LATER) + frame(FETCH, 2, EXCLUSIVE) + frame(PRODUCE, 3, SILENT)
    )
    served.pipeline.abandon()
    assert served.pipeline.is_announced
    served.flush()
    served.go_on()
    assert served.hold is Hold.ORDER  # the second was given up, and is put out with the next turn
    served.flush()
    served.go_on()
    assert served.started == [1, 2, 3]
    assert served.given_up == {1: 1, 2: 1}
    served.promised[2].answer(b"dropped")
    served.flush()
    assert not served.outgoing.unread
    assert served.metrics.requests_in_flight == 0


def test_nothing_starts_behind_a_request_that_ends_the_connection() -> None:
    served = Served()
    served.receive(
        frame(PRODUCE, 1, LATER) + frame(PRODUCE, 2, CLOSING) + frame(PRODUCE, 3, AT_ONCE)
    )
    assert served.started == [1, 2]
    assert served.hold is None
    assert served.given_up == {1: 1}
    served.promised[1].answer(b"dropped")
    served.pipeline.close()
    assert served.given_up == {1: 1}
    assert not served.outgoing.unread
    assert served.metrics.requests_in_flight == served.metrics.in_flight_bytes == 0


class Lifetime(RuleBasedStateMachine):
    """Any cut of the stream, any order of answers, holds that come and go, ends at any time."""

    LIMITS = {"PENDING_REQUESTS_MAX": 4, "PENDING_BYTES_MAX": 80, "OUTGOING_BYTES_MAX": 12}

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, limit in self.LIMITS.items():
            self.patch.setattr(pipeline_module, name, limit)
        self.served = Served(budget_bytes=150)
        self.stream = b""
        self.expected: list[bytes] = []
        self.kinds: dict[int, tuple[int, int]] = {}

    def teardown(self) -> None:
        try:
            if not self.served.pipeline.is_closed:
                self._finish()
        finally:
            self.patch.undo()

    @initialize(
        requests=st.lists(
            st.tuples(
                st.sampled_from((PRODUCE, PRODUCE, FETCH)),
                st.sampled_from(range(6)),
                st.sampled_from((0, 0, 0, 5, 30)),
            ),
            min_size=5,
            max_size=40,
        )
    )
    def send(self, requests: list[tuple[int, int, int]]) -> None:
        for number, (api_key, kind, padding) in enumerate(requests):
            self.stream += frame(api_key, number, kind, padding)
            self.kinds[number] = (api_key, kind)
            if kind != SILENT:
                self.expected.append(answer(number))

    @precondition(
        lambda self: (
            self.stream and not self.served.frames.is_holding and not self.served.pipeline.is_closed
        )
    )
    @rule(size=st.sampled_from((1, 10, 50, 200)))
    def receive(self, size: int) -> None:
        piece = self.stream[: min(size, len(self.served.frames.room()))]
        self.stream = self.stream[len(piece) :]
        self._with_checked_starts(lambda: self.served.receive(piece))

    @rule()
    def go_on(self) -> None:
        if self.served.frames.is_holding:
            self._with_checked_starts(self.served.go_on)

    @precondition(lambda self: self.served.promised)
    @rule(data=st.data())
    def answer_one(self, data: st.DataObject) -> None:
        self.served.answer(data.draw(st.sampled_from(sorted(self.served.promised))))

    @rule()
    def end_turn(self) -> None:
        self.served.flush()

    @rule(count=st.integers(1, 10))
    def read(self, count: int) -> None:
        self.served.outgoing.take(count)

    @rule(is_throttled=st.booleans())
    def throttle(self, is_throttled: bool) -> None:
        self.served.pipeline.is_throttled = is_throttled

    @rule(is_congested=st.booleans())
    def congest(self, is_congested: bool) -> None:
        self.served.budget.set_congested(is_congested)

    @rule(how=st.integers(0, 9))
    def end(self, how: int) -> None:
        served = self.served
        if how == 0:
            served.frames.close()
            served.pipeline.close()
        elif how == 1:
            served.pipeline.abandon()

    def _with_checked_starts(self, act: Any) -> None:
        """What starts is checked against a model of what may be pending then."""
        served = self.served
        pending = [each.request.correlation_id for each in served.pipeline.pending]
        outgoing_bytes = served.outgoing.size_bytes
        is_held = served.pipeline.is_throttled or served.budget.is_over
        before = len(served.started)
        act()
        for number in served.started[before:]:
            api_key, kind = self.kinds[number]
            assert not is_held
            assert outgoing_bytes <= self.LIMITS["OUTGOING_BYTES_MAX"]
            assert len(pending) < self.LIMITS["PENDING_REQUESTS_MAX"]
            assert not any(self.kinds[each][1] == EXCLUSIVE for each in pending)
            assert not pending or api_key == PRODUCE
            if kind != SILENT and (pending or kind in (LATER, READY, EXCLUSIVE)):
                pending.append(number)
            elif kind != SILENT:
                outgoing_bytes += len(answer(number))

    @invariant()
    def requests_start_in_order(self) -> None:
        assert self.served.started == list(range(len(self.served.started)))

    @invariant()
    def answers_leave_in_order_and_once(self) -> None:
        left = [*self.served.outgoing.read, *self.served.outgoing.unread]
        if self.served.pipeline.is_abandoned:
            answers = iter(self.expected)
            assert all(each in answers for each in left)
        else:
            assert left == self.expected[: len(left)]

    @invariant()
    def what_is_pending_is_counted(self) -> None:
        pending = self.served.pipeline.pending
        assert self.served.metrics.requests_in_flight == len(pending)
        assert self.served.metrics.in_flight_bytes == sum(
            each.request.size_bytes for each in pending
        )

    @invariant()
    def promises_are_given_up_once_and_only_at_an_end(self) -> None:
        served = self.served
        assert all(count == 1 for count in served.given_up.values())
        if served.pipeline.is_closed or served.pipeline.is_abandoned:
            assert set(served.given_up) == set(served.promised)
        else:
            assert not served.given_up

    @invariant()
    def whatever_can_leave_was_announced(self) -> None:
        pipeline = self.served.pipeline
        if pipeline.pending and pipeline.pending[0].ready:
            assert pipeline.is_announced

    def _finish(self) -> None:
        """Without more faults all that was sent is served."""
        served = self.served
        served.budget.set_congested(False)
        served.pipeline.is_throttled = False
        while self.stream or served.frames.is_holding or served.pipeline.pending:
            if served.frames.is_holding:
                self.go_on()
            elif self.stream:
                self.receive(100)
            for number in sorted(served.promised):
                served.answer(number)
            served.flush()
            served.outgoing.take(100)
        served.outgoing.take(100)
        assert len(served.started) == len(self.kinds)
        if not served.pipeline.is_abandoned:
            assert served.outgoing.read == self.expected
            assert not served.given_up


def test_any_order_of_events_gives_the_answers_in_order() -> None:
    run_state_machine_as_test(
        Lifetime,
        settings=settings(
            settings.default,
            max_examples=4 * settings().max_examples,
            stateful_step_count=60,
        ),
    )
