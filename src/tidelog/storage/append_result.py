"""What an append is asked to be, and what it answers."""

from __future__ import annotations

from enum import IntEnum

from tidelog.storage.producer_state.producer_state import BatchMetadata


class Origin(IntEnum):
    """Who appends: clients are checked most, coordinators may write control batches."""

    CLIENT = 0
    COORDINATOR = 1
    RAFT = 2


class AppendResult:
    """Where batches landed.

    For a `duplicate` (an idempotent producer's retry) these are the offsets and append time of
    the batch that is in the log already, and nothing was written.
    """

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp_ms",
        "next_offset",
        "size_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        max_timestamp_ms: int,
        size_bytes: int,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.next_offset = last_offset + 1
        self.log_append_time_ms = log_append_time_ms  # -1 unless the topic has LogAppendTime
        self.log_start_offset = log_start_offset
        self.max_timestamp_ms = max_timestamp_ms
        self.size_bytes = size_bytes
        self.duplicate = duplicate

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata, log_start_offset: int) -> AppendResult:
        """The answer to a retry of `batch`."""
        return cls(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms,
            log_start_offset,
            batch.timestamp_ms,
            0,
            duplicate=True,
        )

    def __repr__(self) -> str:
        duplicate = ", duplicate" if self.duplicate else ""
        return f"AppendResult({self.first_offset}..{self.last_offset}{duplicate})"
