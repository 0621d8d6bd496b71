"""What happens while a pipeline runs, for whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.spark.pipeline.run.progress import Progress


@dataclass(frozen=True, slots=True)
class BrokerAway:
    """Nobody answered before the start; queries ask again until their time is over."""

    bootstrap: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueryStarted:
    query: str


@dataclass(frozen=True, slots=True)
class BatchDone:
    query: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """`restart_in_ms` is None when it is not started again."""

    query: str
    reason: str
    restart_in_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryEnded:
    query: str
    state: str


@dataclass(frozen=True, slots=True)
class Draining:
    pass


@dataclass(frozen=True, slots=True)
class RowsShown:
    """Rows of a console sink."""

    query: str
    batch_id: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class StatusNotWritten:
    """The state folder cannot be written; the queries go on."""

    reason: str


Event = (
    BrokerAway
    | QueryStarted
    | BatchDone
    | QueryFailed
    | QueryEnded
    | Draining
    | RowsShown
    | StatusNotWritten
)
