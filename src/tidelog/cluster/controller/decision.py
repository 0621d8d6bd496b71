"""What the controller decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

Rows = TypeVar("Rows")
OtherRows = TypeVar("OtherRows")

# A decision is one batch of the metadata log, and a batch has to stay small enough to replicate.
RECORDS_PER_DECISION_MAX = 10_000


class UncleanElection(NamedTuple):
    """A leader that may lack committed records: to be told loudly, for they are lost with it.

    `was_last_leader` says that it led the partition when it last had a leader, so that nobody is
    known to have more than it has.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr_before: tuple[int, ...]
    was_last_leader: bool


@dataclass(slots=True, frozen=True)
class Decision(Generic[Rows]):
    """Records that make the change when they are committed, and the rows to answer with then.

    Nothing has happened yet: hand it to `MetadataLog.propose`. There are no records when everything
    failed, or only validation was asked for. `kraft_version` is the quorum's own level, 0 to leave
    it alone. `unclean_elections` are for the node's log, once they are committed.
    """

    records: list[Message]
    rows: Rows
    kraft_version: int = 0
    unclean_elections: Sequence[UncleanElection] = ()

    def answering(self, rows: OtherRows) -> Decision[OtherRows]:
        """The same decision with its result in another form."""
        answered: Any = replace(self, rows=rows)  # type: ignore[arg-type]
        return answered  # type: ignore[no-any-return]


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
