"""What the controller decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

Rows = TypeVar("Rows")

# A decision is one batch of the metadata log, and a batch has to stay small enough to replicate.
RECORDS_PER_DECISION_MAX = 10_000


@dataclass(slots=True, frozen=True)
class Decision(Generic[Rows]):
    """Records that make the change when they are committed, and the rows to answer with then.

    Nothing has happened yet: hand it to `MetadataLog.propose`. There are no records when everything
    failed, or only validation was asked for. `kraft_version` is the quorum's own level, 0 to leave
    it alone.
    """

    records: list[Message]
    rows: Rows
    kraft_version: int = 0


def check_record_limit(records: list[Message]) -> None:
    """Refuses a request whose decision would not fit into one batch."""
    if len(records) > RECORDS_PER_DECISION_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The request makes {len(records)} metadata changes; "
            f"one request may make {RECORDS_PER_DECISION_MAX}. Split it.",
        )


def check_partition_limit(partition_count: int) -> None:
    """Refuses more new partitions than a decision can hold, before they are placed."""
    if partition_count > RECORDS_PER_DECISION_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition_count} partitions are too many for one request; "
            f"it may make {RECORDS_PER_DECISION_MAX}.",
        )
