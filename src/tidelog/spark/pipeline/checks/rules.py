"""What must hold between the parts of a pipeline, checked without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.spark.pipeline.file.document import Document
from tidelog.spark.pipeline.file.graph import Graph, edges_of
from tidelog.spark.pipeline.file.model import (
    DedupeStep,
    DeltaSink,
    IcebergSink,
    OutputMode,
    ParquetSink,
    Sink,
    SqlSource,
    SqlStep,
    TopicSink,
    TopicSource,
    TriggerKind,
)
from tidelog.spark.pipeline.file.parsing import Parsed
from tidelog.spark.pipeline.file.problems import near
from tidelog.spark.pipeline.file.sql_query import Select
from tidelog.spark.pipeline.file.variables import Unknown


def check(document: Document, parsed: Parsed) -> None:
    """Report every broken rule to the document's problems."""
    _Checks(document, parsed).run()


class _Checks:
    def __init__(self, document: Document, parsed: Parsed) -> None:
        self._document = document
        self._spec = parsed.spec
        self._unreadable = {name.lower() for name in parsed.unreadable}
        self._graph = Graph(parsed.spec)

    def run(self) -> None:
        self._parts()
        if not self._names():
            return
        self._references()
        cycle = self._graph.cycle()
        if cycle is not None:
            self._error(
                self._view_path(cycle[0]),
                f"views read each other in a circle: {' -> '.join(cycle)}",
            )
            return
        for name, step in self._spec.steps.items():
            if isinstance(step, SqlStep):
                self._windows(step)
                self._joins(step)
            elif isinstance(step, DedupeStep):
                self._dedupe(name, step)
        for sink in self._spec.sinks.values():
            self._sink(sink)
        self._places()
        self._topics()
        self._unused()

    def _error(self, path: tuple[str, ...], message: str) -> None:
        problems = self._document.problems
        problems.error(self._document.file, self._document.lines.line(path), message)

    def _warning(self, path: tuple[str, ...], message: str) -> None:
        problems = self._document.problems
        problems.warning(self._document.file, self._document.lines.line(path), message)

    def _view_path(self, view: str) -> tuple[str, ...]:
        return ("sources" if view in self._spec.sources else "steps", view)

    def _parts(self) -> None:
        for part in ("sources", "sinks"):
            if not self._document.tree.get(part):
                self._error((), f"the pipeline has no {part}: add [{part}.NAME]")

    def _names(self) -> bool:
        """Whether each view has a name of its own; else nothing more can be told."""
        is_unique = True
        seen: dict[str, str] = {}
        for part in ("sources", "steps"):
            table = self._document.tree.get(part)
            for name in table if isinstance(table, dict) else ():
                if name.lower() in seen:
                    is_unique = False
                    self._error((part, name), f"there is a view '{seen[name.lower()]}' already")
                seen.setdefault(name.lower(), name)
        return is_unique

    def _references(self) -> None:
        known = [*self._graph.views]
        for name, node in self._graph.views.items():
            for edge in edges_of(node):
                if isinstance(node, SqlSource):
                    line = node.sql.line(edge.sql_line or 0)
                    self._document.problems.error(
                        node.sql.file,
                        line,
                        f"a source reads no view, but this one reads '{edge.name}': make it a step",
                    )
                elif not self._exists(edge.name):
                    message = f"there is no view '{edge.name}'.{near(edge.name, known)}"
                    if isinstance(node, SqlStep):
                        line = node.sql.line(edge.sql_line or 0)
                        self._document.problems.error(node.sql.file, line, message)
                    else:
                        self._error((*self._view_path(name), "from"), message)
        for name, sink in self._spec.sinks.items():
            if sink.reads and not self._exists(sink.reads) and not isinstance(sink.reads, Unknown):
                message = f"there is no view '{sink.reads}'.{near(sink.reads, known)}"
                self._error(("sinks", name, "from"), message)

    def _exists(self, name: str) -> bool:
        return self._graph.find(name) is not None or name.lower() in self._unreadable

    def _streaming_names(self, select: Select) -> list[str]:
        found = [self._graph.find(name) for name in sorted(select.names)]
        return [name for name in found if name is not None and self._graph.is_streaming(name)]

    def _windows(self, step: SqlStep) -> None:
        for select in step.sql.query.selects if step.sql.query else ():
            if select.window_function_line is not None and self._streaming_names(select):
                self._document.problems.error(
                    step.sql.file,
                    step.sql.line(select.window_function_line),
                    "OVER (...) does not work on a stream: use GROUP BY window(...), or dedupe",
                )

    def _joins(self, step: SqlStep) -> None:
        if step.sql.query is None or step.sql.query.has_watermark:
            return
        for select in step.sql.query.selects:
            streams = self._streaming_names(select)
            bare = [
                name
                for name in streams
                if not self._graph.has_watermark(name) and not self._graph.has_python(name)
            ]
            if select.is_join and len(streams) > 1 and bare:
                self._document.problems.warning(
                    step.sql.file,
                    step.sql.line(select.line),
                    f"this joins streams, but {' and '.join(bare)} "
                    f"{'have' if len(bare) > 1 else 'has'} no watermark: state grows for ever",
                )

    def _dedupe(self, name: str, step: DedupeStep) -> None:
        view = self._graph.find(step.reads)
        if view is None or self._graph.has_watermark(view) or not self._graph.is_streaming(view):
            return
        if not step.is_within_watermark:
            self._warning(("steps", name), "without a watermark the state grows with the keys")
        elif not self._graph.has_python(view):
            self._error(
                ("steps", name),
                f"'{view}' has no watermark to dedupe within: give its source one, or set "
                f"within_watermark = false",
            )

    def _sink(self, sink: Sink) -> None:
        view = self._graph.view_of(sink)
        if view is None:
            return
        path = ("sinks", sink.name)
        if not self._graph.is_streaming(view) and not self._has_unreadable(view):
            self._error(
                (*path, "from"),
                f"'{view}' reads no stream: a sink needs one (for data that ends, use a stream "
                f"with trigger = 'available-now')",
            )
        elif sink.mode is OutputMode.COMPLETE:
            if not any(self._aggregations(view)) and not self._graph.has_python(view):
                self._error((*path, "mode"), "mode = 'complete' needs an aggregation (GROUP BY)")
        elif sink.mode is OutputMode.APPEND:
            self._append(sink, view)
        if sink.trigger.kind is TriggerKind.ONCE:
            self._warning(
                (*path, "trigger"), "'once' reads one batch only: 'available-now' reads them all"
            )

    def _append(self, sink: Sink, view: str) -> None:
        for step, select in self._aggregations(view):
            query = step.sql.query
            bare = [
                name
                for name in self._streaming_names(select)
                if not self._graph.has_watermark(name) and not self._graph.has_python(name)
            ]
            if not bare or (query is not None and query.has_watermark):
                continue
            self._document.problems.error(
                step.sql.file,
                step.sql.line(select.line),
                f"sink '{sink.name}' appends, so this aggregation needs a watermark to know when "
                f"a group is complete: give '{bare[0]}' one"
                + (", or set mode = 'update'" if isinstance(sink, TopicSink) else ""),
            )

    def _aggregations(self, view: str) -> Iterator[tuple[SqlStep, Select]]:
        for name in self._graph.upstream(view):
            step = self._graph.views[name]
            if isinstance(step, SqlStep) and step.sql.query is not None:
                for select in step.sql.query.selects:
                    if select.is_aggregate and self._streaming_names(select):
                        yield step, select

    def _has_unreadable(self, view: str) -> bool:
        """Whether something that the view reads has errors of its own."""
        for name in self._graph.upstream(view):
            node = self._graph.views[name]
            if isinstance(node, SqlStep) and node.sql.query is None:
                return True
            if any(self._graph.find(edge.name) is None for edge in edges_of(node)):
                return True
        return False

    def _places(self) -> None:
        seen: dict[str, str] = {}
        for name, sink in self._spec.sinks.items():
            if isinstance(sink, ParquetSink | DeltaSink | IcebergSink) and sink.path:
                other = seen.setdefault(sink.path.rstrip("/"), name)
                if other != name:
                    self._error(("sinks", name, "path"), f"sink '{other}' writes there already")

    def _topics(self) -> None:
        for name, sink in self._spec.sinks.items():
            view = self._graph.view_of(sink)
            if not isinstance(sink, TopicSink) or sink.topic is None or view is None:
                continue
            for source in self._topic_sources(view):
                if sink.topic in source.topics:
                    self._warning(
                        ("sinks", name, "topic"),
                        f"'{sink.topic}' is what source '{source.name}' reads: the pipeline feeds "
                        f"itself",
                    )
        for name, each in self._spec.sources.items():
            if isinstance(each, TopicSource):
                dead_letter = each.dead_letter_topic
                if dead_letter in each.topics:
                    self._error(
                        ("sources", name, "dead_letter"),
                        f"'{dead_letter}' is the topic that is read: choose another",
                    )

    def _topic_sources(self, view: str) -> Iterator[TopicSource]:
        for name in self._graph.upstream(view):
            source = self._graph.views[name]
            if isinstance(source, TopicSource):
                yield source

    def _unused(self) -> None:
        if self._unreadable or any(
            isinstance(node, SqlStep) and node.sql.query is None
            for node in self._graph.views.values()
        ):
            return  # what has errors may use it
        used = self._graph.used()
        for view in self._graph.views:
            if view not in used:
                self._warning(self._view_path(view), f"nothing uses '{view}'")
