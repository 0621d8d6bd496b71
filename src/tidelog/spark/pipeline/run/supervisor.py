"""The life of a pipeline's queries as a state machine without I/O.

Each tick the runner tells what it sees of every running query; the supervisor answers with what to
do. Its states:

    query      waiting --start--> running --ends--> finished
                  ^                  | fails
                  +----back-off------+--too often--> failed

    pipeline   running --stop requested, or a query failed--> draining --all stopped--> ended

While it drains, nothing is started. A query that is in a micro-batch is asked to end after it. It
is stopped when it is idle, when a batch was finished since draining began and it goes on all the
same, or when the time for it is over. A second request stops everything at once. A batch that is
stopped half-way is run again from the checkpoint at the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidelog.spark.pipeline.file.model import RestartPolicy
from tidelog.spark.pipeline.run.restarts import GiveUp, RestartAt, Restarts


class QueryState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class Phase(StrEnum):
    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self not in (Phase.RUNNING, Phase.DRAINING)


@dataclass(frozen=True, slots=True)
class Observed:
    """One query as it is now. `batches` counts its finished micro-batches in this run."""

    is_active: bool
    is_idle: bool = False
    batches: int = 0
    error: str | None = None
    is_hopeless: bool = False  # the same start would fail again, as for a mistake in the query


@dataclass(frozen=True, slots=True)
class Start:
    query: str


@dataclass(frozen=True, slots=True)
class Stop:
    query: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Let the query end after its batch, if it can; else nothing."""

    query: str


Action = Start | Finish | Stop


@dataclass(slots=True)
class Query:
    """What the supervisor knows of one query."""

    restarts: Restarts
    state: QueryState = QueryState.WAITING
    start_at_ms: int = 0
    batches: int = 0
    last_error: str | None = None
    batches_at_drain: int | None = None

    @property
    def is_over(self) -> bool:
        return self.state in (QueryState.STOPPED, QueryState.FINISHED, QueryState.FAILED)


@dataclass(slots=True)
class Supervisor:
    """Decides for all queries of one pipeline."""

    names: Iterable[str]
    policy: RestartPolicy
    drain_timeout_ms: int
    phase: Phase = Phase.RUNNING
    reason: str | None = None  # why it failed
    queries: dict[str, Query] = field(init=False)
    _drain_until_ms: int = 0

    def __post_init__(self) -> None:
        self.queries = {name: Query(Restarts(self.policy)) for name in self.names}

    def request_stop(self, now_ms: int) -> None:
        """Asked once it drains; asked again it stops at once."""
        if self.phase is Phase.RUNNING:
            self._drain(now_ms)
        elif self.phase is Phase.DRAINING:
            self._drain_until_ms = now_ms

    def tick(self, now_ms: int, observed: Mapping[str, Observed]) -> list[Action]:
        """What to do now. `observed` has every query that was started and not yet seen to end."""
        for name, seen in observed.items():
            self._observe(name, self.queries[name], seen, now_ms)
        actions: list[Action] = []
        for name, query in self.queries.items():
            if self.phase is Phase.DRAINING:
                actions += self._drain_query(name, query, observed.get(name), now_ms)
            elif query.state is QueryState.WAITING and query.start_at_ms <= now_ms:
                query.state = QueryState.RUNNING
                actions.append(Start(name))
        if all(query.is_over for query in self.queries.values()):
            self._end()
        return actions

    def _observe(self, name: str, query: Query, seen: Observed, now_ms: int) -> None:
        if seen.batches > query.batches:
            query.restarts.progressed()
        query.batches = seen.batches
        if seen.is_active:
            return
        if seen.error is None or query.state is QueryState.STOPPING:
            is_stopped = self.phase is Phase.DRAINING
            query.state = QueryState.STOPPED if is_stopped else QueryState.FINISHED
            return
        self._failed(name, query, seen, now_ms)

    def _failed(self, name: str, query: Query, seen: Observed, now_ms: int) -> None:
        assert seen.error is not None
        query.last_error = seen.error
        # A query that is started again counts its batches from the beginning.
        query.batches = 0
        decision: RestartAt | GiveUp = GiveUp(seen.error)
        if not seen.is_hopeless:
            decision = query.restarts.failed(now_ms, seen.error)
        if isinstance(decision, GiveUp):
            query.state = QueryState.FAILED
            self.reason = self.reason or f"{name}: {decision.why}"
            if self.phase is Phase.RUNNING:
                self._drain(now_ms)
        else:
            query.state = QueryState.WAITING
            query.start_at_ms = decision.at_ms

    def _drain(self, now_ms: int) -> None:
        self.phase = Phase.DRAINING
        self._drain_until_ms = now_ms + self.drain_timeout_ms

    def _drain_query(
        self, name: str, query: Query, seen: Observed | None, now_ms: int
    ) -> list[Action]:
        if query.state is QueryState.WAITING:
            query.state = QueryState.STOPPED
            return []
        if query.state is not QueryState.RUNNING or seen is None:
            return []
        if query.batches_at_drain is None:
            # What was finished before this look is not the batch that runs now.
            query.batches_at_drain = seen.batches
            if not seen.is_idle and now_ms < self._drain_until_ms:
                return [Finish(name)]
        if seen.is_idle or seen.batches > query.batches_at_drain or now_ms >= self._drain_until_ms:
            query.state = QueryState.STOPPING
            return [Stop(name)]
        return []

    def _end(self) -> None:
        if self.reason is not None:
            self.phase = Phase.FAILED
        else:
            self.phase = Phase.STOPPED if self.phase is Phase.DRAINING else Phase.FINISHED
