"""What the pipeline tells while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidelog.spark.pipeline.run.events import BatchDone, Event, QueryFailed, QueryStarted


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that is done."""

    query: str
    started_ms: int
    duration_ms: int
    rows: int
    state_rows: int
    late_rows: int

    @property
    def ended_ms(self) -> int:
        return self.started_ms + self.duration_ms


class Recorder:
    """Keeps the events of a pipeline; called in its thread, read by others."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._failures: list[str] = []
        self._started: set[str] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case QueryStarted():
                self._started.add(event.query)
            case QueryFailed():
                self._failures.append(f"{event.query}: {event.reason}")
            case BatchDone():
                progress = event.progress
                began = datetime.fromisoformat(progress.timestamp)
                self._batches.append(
                    Batch(
                        query=event.query,
                        started_ms=int(began.timestamp() * 1000),
                        duration_ms=progress.batch_ms,
                        rows=progress.rows,
                        state_rows=progress.state_rows,
                        late_rows=progress.late_rows,
                    )
                )

    @property
    def batches(self) -> Sequence[Batch]:
        return self._batches

    def rows(self, query: str) -> int:
        """How many rows a query has taken in."""
        return sum(each.rows for each in self._batches if each.query == query)

    @property
    def failures(self) -> Sequence[str]:
        return self._failures

    @property
    def started(self) -> frozenset[str]:
        return frozenset(self._started)

    @property
    def active(self) -> frozenset[str]:
        """The queries that have had rows."""
        return frozenset(each.query for each in self._batches if each.rows)
