"""How patient a replica of the quorum is; the names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class QuorumSettings:
    """`controller.quorum.*`, in milliseconds and bytes."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for so long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        """A voter that has not fetched for so long is told again who leads."""
        return self.fetch_timeout_ms // 2
