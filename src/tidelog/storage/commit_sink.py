"""Where a log hands its appends so that they become durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.protocol.errors import ApiError
    from tidelog.storage.log import Log


class CommitSink(Protocol):
    """Makes appended batches durable and says so with `log.mark_durable(offset)`.

    All calls come on the loop thread, and `mark_durable` must be called on it too. Only logs with
    `durability="fsync"` use their sink.
    """

    def submit(
        self, log: Log, batches: memoryview, base_offset: int, next_offset: int, leader_epoch: int
    ) -> None:
        """Takes batches that the segment file (page cache) already holds.

        `batches` are the stamped bytes as they stand in the log; the sink may keep the view until
        it has written it, so nobody may change that buffer any more.
        """
        ...

    def note_truncation(
        self, log: Log, offset: int, noted: Callable[[ApiError | None], None]
    ) -> None:
        """The log is about to drop everything from `offset` on, which must not come back.

        Calls `noted`, on the loop thread and at once or later, when that is on disk together with
        all appends before it; with an error when it cannot be. Nothing is appended until then.
        Raises OSError when it does not begin.
        """
        ...
