"""What is known of a pipeline that runs, for other processes to read."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class QueryStatus:
    name: str
    kind: str
    reads: str
    state: str
    batch_id: int | None = None
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    batch_ms: int | None = None
    lag: dict[str, int] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    watermark: str | None = None
    restarts: int = 0
    last_error: str | None = None
    last_batch_at: str | None = None

    @property
    def lag_total(self) -> int | None:
        """Records that wait in all topics; None if no topic is read, or none was yet."""
        return sum(self.lag.values()) if self.lag else None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    name: str
    file: str
    pid: int
    phase: str
    started_at: str  # ISO 8601
    updated_at: str
    queries: list[QueryStatus]
    reason: str | None = None
    master: str | None = None
    metrics_url: str | None = None


def encode_status(status: PipelineStatus) -> bytes:
    return msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n"
