"""The loop: posts from threads, timers, end of turn."""

import io
import os
import threading

from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import Level, StructuredLog
from tidelog.world.network import READABLE
from tidelog.world.operating_system import OperatingSystem

WORLD = OperatingSystem()


def _reactor(stream: io.StringIO | None = None) -> Reactor:
    return Reactor(
        WORLD,
        StructuredLog(now_ms=WORLD.wall_ms, level=Level.INFO, stream=stream or io.StringIO()),
    )


def test_what_threads_post_runs_on_the_loop_in_order() -> None:
    reactor = _reactor()
    ran: list[int] = []
    loop_threads: set[int] = set()

    def note(number: int) -> None:
        ran.append(number)
        loop_threads.add(threading.get_ident())

    def post_all() -> None:
        for number in range(500):
            reactor.post(lambda number=number: note(number))  # type: ignore[misc]
        reactor.stop()

    poster = threading.Thread(target=post_all)
    poster.start()
    reactor.run()
    poster.join()
    reactor.close()
    assert ran == list(range(500))
    assert loop_threads == {threading.get_ident()}


def test_timers_run_in_order_of_their_deadline_and_cancelled_ones_not() -> None:
    reactor = _reactor()
    ran: list[str] = []
    reactor.call_later(0.02, lambda: ran.append("second"))
    reactor.call_later(0.001, lambda: ran.append("first"))
    reactor.call_later(0.01, lambda: ran.append("never")).cancel()
    reactor.call_later(0.03, reactor.stop)
    reactor.run()
    reactor.close()
    assert ran == ["first", "second"]


def test_cancelled_timers_leave_the_heap() -> None:
    reactor = _reactor()
    reactor.call_later(3600, lambda: None)
    for _ in range(10_000):
        reactor.call_later(3600, lambda: None).cancel()
    assert len(reactor._timers) < 2_500
    reactor.close()


def test_the_end_of_a_turn_comes_once_after_all_that_was_ready() -> None:
    reactor = _reactor()
    seen: list[str] = []
    pipes = [os.pipe() for _ in range(3)]
    for read_fd, write_fd in pipes:

        def ready(_events: int, fd: int = read_fd) -> None:
            os.read(fd, 1)
            seen.append("ready")

        reactor.register(read_fd, ready, READABLE)
        os.write(write_fd, b"x")
    reactor.turn_end_hooks.append(lambda: seen.append("end"))
    reactor.turn(1.0)
    assert seen == ["ready", "ready", "ready", "end"]
    reactor.close()
    for read_fd, write_fd in pipes:
        os.close(read_fd)
        os.close(write_fd)


def test_a_callback_may_close_one_that_is_next_in_the_same_turn() -> None:
    reactor = _reactor()
    pipes = [os.pipe() for _ in range(2)]
    seen: list[int] = []

    def ready(fd: int) -> None:
        seen.append(fd)
        other = pipes[1][0] if fd == pipes[0][0] else pipes[0][0]
        reactor.unregister(other)

    for read_fd, write_fd in pipes:
        reactor.register(read_fd, lambda _events, fd=read_fd: ready(fd), READABLE)  # type: ignore[misc]
        os.write(write_fd, b"x")
    reactor.turn(1.0)
    assert len(seen) == 1
    reactor.close()
    for read_fd, write_fd in pipes:
        os.close(read_fd)
        os.close(write_fd)


def test_a_failing_callback_is_logged_and_the_loop_goes_on() -> None:
    stream = io.StringIO()
    reactor = _reactor(stream)
    ran: list[str] = []
    reactor.post(lambda: 1 / 0)  # type: ignore[arg-type]
    reactor.call_later(0, lambda: 1 / 0)  # type: ignore[arg-type]
    reactor.call_later(0.01, lambda: ran.append("went on"))
    reactor.call_later(0.02, reactor.stop)
    reactor.run()
    reactor.close()
    assert ran == ["went on"]
    assert "posted_callback_failed" in stream.getvalue()
    assert "timer_failed" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()


def test_what_posts_itself_does_not_starve_timers() -> None:
    reactor = _reactor()
    turns = 0

    def again() -> None:
        nonlocal turns
        turns += 1
        reactor.call_soon(again)

    reactor.call_soon(again)
    reactor.call_later(0.01, reactor.stop)
    reactor.run()
    reactor.close()
    assert turns > 1
