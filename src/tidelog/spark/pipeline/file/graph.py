"""Who reads whom. Names of views are compared as Spark does it, without regard to case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.spark.pipeline.file.model import (
    PipelineSpec,
    PythonStep,
    Sink,
    Source,
    SqlSource,
    SqlStep,
    Step,
    WatermarkStep,
)


@dataclass(frozen=True, slots=True)
class Edge:
    """A view, or a sink, names a view that it reads."""

    reader: str
    name: str  # as it is written
    sql_line: int | None  # the line of the SQL text, if it is read by SQL


class Graph:
    """The views of a pipeline. References to names that do not exist are left out."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.views: dict[str, Source | Step] = {**spec.sources, **spec.steps}
        self._by_lower = {name.lower(): name for name in self.views}
        self._reads = {
            name: tuple(
                dict.fromkeys(
                    found for edge in edges_of(node) if (found := self.find(edge.name)) is not None
                )
            )
            for name, node in self.views.items()
        }

    def find(self, name: str) -> str | None:
        """The view of this name as the file writes it."""
        return self._by_lower.get(name.lower())

    def reads(self, view: str) -> tuple[str, ...]:
        return self._reads[view]

    def view_of(self, sink: Sink) -> str | None:
        return self.find(sink.reads)

    def upstream(self, view: str) -> tuple[str, ...]:
        """The view and all that it reads, itself first; safe on cycles."""
        seen: dict[str, None] = {}
        waiting = [view]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen[name] = None
                waiting += reversed(self._reads[name])
        return tuple(seen)

    def owned(self, sink: Sink) -> frozenset[str]:
        """The sources that the sink's query is the first in the file to read.

        Each query reads its sources by itself. What is done once for a record however many queries
        read it, such as writing a dead letter, is done by the owner.
        """
        taken: set[str] = set()
        for each in self.spec.sinks.values():
            view = self.view_of(each)
            read = set(self.upstream(view)) & set(self.spec.sources) if view is not None else set()
            if each.name == sink.name:
                return frozenset(read - taken)
            taken |= read
        return frozenset()

    def used(self) -> set[str]:
        """The views that reach a sink."""
        found: set[str] = set()
        for sink in self.spec.sinks.values():
            view = self.view_of(sink)
            if view is not None:
                found.update(self.upstream(view))
        return found

    def cycle(self) -> tuple[str, ...] | None:
        """Views that read each other in a circle, the first one again at the end."""
        done: set[str] = set()

        def search(view: str, way: list[str]) -> tuple[str, ...] | None:
            if view in way:
                return (*way[way.index(view) :], view)
            if view in done:
                return None
            for name in self._reads[view]:
                found = search(name, [*way, view])
                if found:
                    return found
            done.add(view)
            return None

        return next((found for view in self.views if (found := search(view, []))), None)

    def order(self, *wanted: str) -> tuple[str, ...]:
        """The wanted views (or all) and what they need, each after what it reads."""
        made: dict[str, None] = {}

        def add(view: str) -> None:
            if view not in made:
                for name in self._reads[view]:
                    add(name)
                made[view] = None

        for view in wanted or self.views:
            add(view)
        return tuple(made)

    def is_streaming(self, view: str) -> bool:
        return any(
            self.spec.sources[name].is_streaming
            for name in self.upstream(view)
            if name in self.spec.sources
        )

    def has_watermark(self, view: str) -> bool:
        """Whether the file gives the view, or something that it reads, a watermark."""
        return any(_gives_watermark(self.views[name]) for name in self.upstream(view))

    def has_python(self, view: str) -> bool:
        """Whether a function takes part, whose doings cannot be seen from outside."""
        return any(isinstance(self.views[name], PythonStep) for name in self.upstream(view))


def edges_of(node: Source | Step) -> Iterator[Edge]:
    """What a node reads, by the names that the file uses."""
    if isinstance(node, SqlStep | SqlSource):
        if node.sql.query is not None:
            for reference in node.sql.query.references:
                yield Edge(node.name, reference.name, reference.line)
    elif isinstance(node, PythonStep):
        for name in node.reads:
            yield Edge(node.name, name, None)
    elif hasattr(node, "reads"):
        yield Edge(node.name, node.reads, None)


def _gives_watermark(node: Source | Step) -> bool:
    if isinstance(node, SqlStep):
        return node.sql.query is not None and node.sql.query.has_watermark
    if isinstance(node, WatermarkStep):
        return True
    return getattr(node, "watermark", None) is not None
