"""A demo that ends: one limit for everything, and waits that know it."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):
    """Something did not happen in its time; the text says what."""


class Deadline:
    """The end of the time that a whole run has."""

    def __init__(self, limit_s: float) -> None:
        self.began = time.monotonic()
        self.limit_s = limit_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - self.elapsed_s)

    def wait(
        self,
        condition: Callable[[], bool],
        what: str,
        timeout_s: float,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Until it holds; OutOfTime after `timeout_s`, or at the end of the whole run."""
        until = time.monotonic() + min(timeout_s, self.left_s)
        while not condition():
            if time.monotonic() >= until:
                raise OutOfTime(f"{what}: not within {timeout_s:.0f} s")
            on_tick()
            time.sleep(0.1)


@contextmanager
def alarm(limit_s: float, give_up: Callable[[], None], grace_s: float = 8.0) -> Iterator[None]:
    """Raise OutOfTime in the main thread after `limit_s`, wherever it is then.

    If cleaning up does not end in `grace_s` either, `give_up` is called: it must not return.
    """

    def too_late(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, lambda *_: give_up())
        signal.setitimer(signal.ITIMER_REAL, grace_s)
        raise OutOfTime(f"the demo did not end within {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
