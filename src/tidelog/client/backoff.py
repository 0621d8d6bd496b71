"""Pauses between tries."""

import random
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Backoff:
    """Pauses between tries: the first, what each grows by, and the longest.

    With `jitter` they differ by up to that fraction, so that clients which failed together do not
    come back together.
    """

    first_s: float = 0.1
    factor: float = 2.0
    longest_s: float = 30.0
    jitter: float = 0.0

    def pause_s(self, failures: int) -> float:
        """The pause after the given number of failures, counted from 1."""
        exponent = min(failures - 1, 64)
        pause_s = min(self.first_s * self.factor**exponent, self.longest_s)
        if not self.jitter:
            return pause_s
        return pause_s * random.uniform(1 - self.jitter, 1 + self.jitter)
