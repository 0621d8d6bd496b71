"""What an operator sees of a recovery that takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.server.structured_logs import StructuredLog
    from tidelog.storage.recovery import RecoveryProgress

_PROGRESS_INTERVAL_S = 2.0


class RecoveryLines:
    """Says how far recovery is when it takes long."""

    def __init__(self, log: StructuredLog, monotonic: Callable[[], float]) -> None:
        self.log = log
        self._monotonic = monotonic
        self._next_line = monotonic() + _PROGRESS_INTERVAL_S

    def tell(self, progress: RecoveryProgress) -> None:
        """Recovery has done one more log."""
        now = self._monotonic()
        if now >= self._next_line:
            self._next_line = now + _PROGRESS_INTERVAL_S
            self.log.info(
                "recovering",
                directory=progress.directory,
                logs=f"{progress.recovered}/{progress.total}",
            )
