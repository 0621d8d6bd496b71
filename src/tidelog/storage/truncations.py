"""The truncations of one log: noted on disk first, carried out then, one after the other.

loop       truncate: the sink gets a mark; the log stays as it is and takes no appends
journal    the mark is written and synced
loop       cut: the segments change; the next truncation begins; the caller is told
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError

if TYPE_CHECKING:
    from tidelog.storage.log import Log

Failure = ApiError | OSError | None
Truncated = Callable[[Failure], None]
"""Hears that a truncation is carried out, or why it is not."""


def raise_failure(failure: Failure) -> None:
    """For a truncation that nobody waits for: what went wrong is raised where it is found out."""
    if failure is not None:
        raise failure


class Truncations:
    """Runs the truncations of a log; loop thread. `changed` is called when one begins or ends."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.are_under_way = False
        self._changed = changed
        self._waiting: deque[tuple[Callable[[], None], Truncated]] = deque()

    def wait(self, begin: Callable[[], None], done: Truncated) -> None:
        """Begins another one when the one under way has ended; `done` is told if it cannot."""
        self._waiting.append((begin, done))

    def run(self, log: Log, end_offset: int, cut: Callable[[], None], done: Truncated) -> None:
        """Calls `cut` when the log's sink has noted the truncation, at once without a sink.

        Raises OSError when the sink cannot even begin.
        """

        def noted(error: ApiError | None) -> None:
            self._set_under_way(False)
            failure: Failure = error
            if error is None:
                try:
                    cut()
                except OSError as refusal:
                    failure = refusal
                # What was appended before the truncation was noted is on disk with it.
                log.mark_durable(end_offset)
            try:
                done(failure)
            finally:
                self._go_on()

        if log.sink is None:
            noted(None)
            return
        self._set_under_way(True)
        try:
            log.sink.note_truncation(log, end_offset, noted)
        except BaseException:
            self._set_under_way(False)
            raise

    def _go_on(self) -> None:
        while self._waiting and not self.are_under_way:
            begin, done = self._waiting.popleft()
            try:
                begin()
            except (ApiError, OSError) as error:
                done(error)

    def _set_under_way(self, are_under_way: bool) -> None:
        self.are_under_way = are_under_way
        self._changed()
