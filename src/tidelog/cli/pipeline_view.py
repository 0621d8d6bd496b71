"""How `tidelog pipeline` shows plans, and what happens while one runs."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import click

from tidelog.cli.output import console, table
from tidelog.spark.pipeline.file.durations import format_duration_ms
from tidelog.spark.pipeline.plan import Plan, PlanNode
from tidelog.spark.pipeline.run.events import (
    BatchDone,
    BrokerAway,
    Draining,
    Event,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    RowsShown,
    StatusNotWritten,
)
from tidelog.spark.pipeline.run.status import PipelineStatus, QueryStatus

_PLAIN_INTERVAL_S = 5.0
_DETAIL_LENGTH = 90  # on a terminal

_COLUMNS = ("query", "state", "batch", "rows", "rows/s", "lag", "batch ms")


def plan_tree(plan: Plan, *, is_whole: bool = False) -> Any:
    """A rich tree: each sink with what it reads below it. Unless it is whole, details are cut."""
    from rich.text import Text
    from rich.tree import Tree

    def label(node: PlanNode) -> Text:
        colour = {"source": "cyan", "step": "white", "sink": "green"}[node.part]
        kind = node.kind if node.is_streaming or node.part != "source" else f"{node.kind}, static"
        text = Text.assemble((node.name, f"bold {colour}"), (f" [{kind}] ", "dim"))
        detail = node.detail
        is_short = is_whole or len(detail) <= _DETAIL_LENGTH
        text.append(detail if is_short else f"{detail[:_DETAIL_LENGTH]}…")
        if node.part == "sink":
            text.append(f"  ({node.mode}, {node.trigger})", style="dim")
        return text

    def add(branch: Tree, name: str) -> None:
        node = plan.node(name)
        below = branch.add(label(node))
        for read in node.reads:
            add(below, read)

    root = Tree(Text(plan.pipeline, style="bold"))
    for sink in plan.sinks:
        branch = root.add(label(sink))
        for name in sink.reads:
            add(branch, name)
    return root


def status_table(status: PipelineStatus, *, title: str | None = None) -> Any:
    """A rich table with one row for each query, and below it what only some have to tell.

    So it fits a terminal of 80 characters, and no number is cut.
    """
    from rich.console import Group
    from rich.text import Text

    made = table([_query_row(query) for query in status.queries], _COLUMNS, title=title)
    for column in made.columns[1:]:
        column.no_wrap = True
    notes = [f"{query.name}: {note}" for query in status.queries if (note := _query_note(query))]
    return Group(made, *(Text(note, no_wrap=False, overflow="fold") for note in notes))


def _query_row(query: QueryStatus) -> dict[str, Any]:
    return {
        "query": query.name,
        "state": query.state,
        "batch": query.batch_id,
        "rows": query.rows,
        "rows/s": query.rows_per_s,
        "lag": query.lag_total,
        "batch ms": query.batch_ms,
    }


def _query_note(query: QueryStatus) -> str:
    """State, late rows and failures, of a query that has any."""
    parts = []
    if query.state_rows:
        parts.append(f"state {query.state_rows} rows {_size(query.state_bytes)}")
    if query.late_rows:
        parts.append(f"{query.late_rows} late")
    if query.restarts:
        parts.append(f"{query.restarts} restart{'s' if query.restarts > 1 else ''}")
    if query.last_error is not None and (query.restarts or query.state == "failed"):
        parts.append(f"last error: {query.last_error}")
    return ", ".join(parts)


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _words(event: Event) -> str | None:
    """One line about an event; None for what a table shows better."""
    match event:
        case BrokerAway():
            return f"{event.reason}; queries that need it wait"
        case QueryStarted():
            return f"{event.query}: started"
        case QueryFailed():
            if event.restart_in_ms is None:
                return f"{event.query}: failed: {event.reason}"
            delay = format_duration_ms(event.restart_in_ms)
            return f"{event.query}: failed, starts again in {delay}: {event.reason}"
        case QueryEnded():
            return f"{event.query}: {event.state}"
        case Draining():
            return "draining: running micro-batches may finish"
        case StatusNotWritten():
            return f"the status cannot be written: {event.reason}"
        case BatchDone() | RowsShown():
            return None


def _rows_table(event: RowsShown) -> Any:
    rows = [dict(zip(event.columns, row, strict=True)) for row in event.rows]
    return table(rows, event.columns, title=f"{event.query}, batch {event.batch_id}")


def _query_words(query: QueryStatus) -> str:
    parts = [f"batch {query.batch_id}", f"{query.rows} rows", f"{query.rows_per_s:.0f} rows/s"]
    if query.lag_total is not None:
        parts.append(f"lag {query.lag_total}")
    parts.append(f"batch {query.batch_ms} ms")
    if query.state_rows:
        parts.append(f"state {query.state_rows} rows {_size(query.state_bytes)}")
    if query.late_rows:
        parts.append(f"{query.late_rows} late")
    return f"{query.name}: {', '.join(parts)}"


class PlainLines:
    """For logs: what happens, and every some seconds where each query stands."""

    def __init__(self) -> None:
        self._told_s = 0.0
        self._batches: dict[str, int] = {}
        self._is_end_told = False

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def say(self, words: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {words}")

    def event(self, event: Event) -> None:
        words = _words(event)
        if words is not None:
            self.say(words)
        elif isinstance(event, RowsShown):
            console().print(_rows_table(event))

    def status(self, status: PipelineStatus) -> None:
        is_over = status.phase not in ("running", "draining")
        if not is_over and time.monotonic() - self._told_s < _PLAIN_INTERVAL_S:
            return
        self._told_s = time.monotonic()
        for query in status.queries:
            if query.batches != self._batches.get(query.name, 0):
                self._batches[query.name] = query.batches
                self.say(_query_words(query))
        # The status is published at the end whatever was told before.
        if is_over and not self._is_end_told:
            self._is_end_told = True
            self.say(f"{status.name}: {status.phase}")


class JsonLines:
    """For programs: a line of JSON for each event, and for the status when it changes."""

    def __init__(self) -> None:
        self._phase: str | None = None

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def say(self, words: str) -> None:
        self._print("note", {"message": words})

    def event(self, event: Event) -> None:
        names = {
            BrokerAway: "broker-away",
            QueryStarted: "started",
            BatchDone: "batch",
            QueryFailed: "failed",
            QueryEnded: "ended",
            Draining: "draining",
            RowsShown: "rows",
            StatusNotWritten: "status-not-written",
        }
        fields = asdict(event)
        progress = fields.pop("progress", {})
        progress.pop("has_batch", None)
        self._print(names[type(event)], {**fields, **progress})

    def status(self, status: PipelineStatus) -> None:
        if status.phase != self._phase:
            self._phase = status.phase
            self._print("status", asdict(status))

    def _print(self, event: str, fields: dict[str, Any]) -> None:
        click.echo(json.dumps({"event": event, **fields}, default=str))


class LiveTable:
    """For a terminal: a table that is kept up to date, with what happens above it."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(console=console(), refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def say(self, words: str) -> None:
        self._live.console.print(words, highlight=False, markup=False)

    def event(self, event: Event) -> None:
        words = _words(event)
        if words is not None:
            self.say(f"{time.strftime('%H:%M:%S')} {words}")
        elif isinstance(event, RowsShown):
            self._live.console.print(_rows_table(event))

    def status(self, status: PipelineStatus) -> None:
        self._live.update(status_table(status, title=f"{status.name}: {status.phase}"))
