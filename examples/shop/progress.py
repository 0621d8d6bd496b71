"""What Spark tells of each micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that is done."""

    query: str
    started_ms: int
    duration_ms: int
    rows: int
    state_rows: int
    rows_too_late: int

    @property
    def ended_ms(self) -> int:
        return self.started_ms + self.duration_ms


class ProgressRecorder(StreamingQueryListener):
    """Keeps the progress of all queries of a session, while they run."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    @property
    def batches(self) -> Sequence[Batch]:
        return self._batches

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        progress = event.progress
        started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
        self._batches.append(
            Batch(
                query=progress.name or str(progress.id),
                started_ms=int(started.timestamp() * 1000),
                duration_ms=int(progress.durationMs.get("triggerExecution", 0)),
                rows=sum(source.numInputRows for source in progress.sources),
                state_rows=sum(each.numRowsTotal for each in progress.stateOperators),
                rows_too_late=sum(
                    each.numRowsDroppedByWatermark for each in progress.stateOperators
                ),
            )
        )

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        pass
