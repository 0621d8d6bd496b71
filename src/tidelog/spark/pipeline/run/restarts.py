"""Whether and when a failed query is started again. Times are handed in; nothing here waits."""

from collections import deque
from dataclasses import dataclass

from tidelog.spark.pipeline.file.durations import format_duration_ms
from tidelog.spark.pipeline.file.model import RestartPolicy


@dataclass(frozen=True, slots=True)
class RestartAt:
    at_ms: int
    attempt: int  # how many failures in a row this one is


@dataclass(frozen=True, slots=True)
class GiveUp:
    why: str


class Restarts:
    """The failures of one query, and what follows from them."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._failures_ms: deque[int] = deque()
        self._in_a_row = 0
        self.count = 0

    def progressed(self) -> None:
        """A batch was finished: the next failure is the first in a row again.

        Failures stay counted for the window: a query that fails after every other batch has to end
        too.
        """
        self._in_a_row = 0

    def failed(self, now_ms: int, reason: str) -> RestartAt | GiveUp:
        policy = self._policy
        self._failures_ms.append(now_ms)
        while self._failures_ms[0] <= now_ms - policy.window_ms:
            self._failures_ms.popleft()
        failures = len(self._failures_ms)
        if failures > policy.restarts_max:
            if policy.restarts_max == 0:
                return GiveUp(reason)
            window = format_duration_ms(policy.window_ms)
            return GiveUp(f"failed {failures} times within {window}; the last time: {reason}")
        # The exponent is bounded by the cap, so that it cannot overflow a float or take for ever.
        doublings = min(self._in_a_row, 40)
        self._in_a_row += 1
        self.count += 1
        delay_ms = min(policy.backoff_ms << doublings, policy.backoff_ms_max)
        return RestartAt(now_ms + delay_ms, self._in_a_row)
