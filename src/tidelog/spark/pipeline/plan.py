"""A pipeline as a graph to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.spark.pipeline.file.durations import format_duration_ms
from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import (
    ConsoleSink,
    DedupeStep,
    DeltaSink,
    DeltaSource,
    FileSource,
    IcebergSink,
    ParquetSink,
    PipelineSpec,
    PythonStep,
    RateSource,
    Sink,
    Source,
    SqlSource,
    SqlStep,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
    Trigger,
    TriggerKind,
    WatermarkStep,
)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A source, step or sink; `detail` is a line for people."""

    part: str
    name: str
    kind: str
    reads: tuple[str, ...]
    is_streaming: bool
    detail: str
    mode: str | None = None
    trigger: str | None = None
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All nodes, each after those that it reads."""

    pipeline: str
    nodes: tuple[PlanNode, ...]

    def node(self, name: str) -> PlanNode:
        """A source or step by its name."""
        return next(each for each in self.nodes if each.name == name and each.part != "sink")

    @property
    def sinks(self) -> tuple[PlanNode, ...]:
        return tuple(each for each in self.nodes if each.part == "sink")

    def as_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "nodes": [
                {
                    "part": each.part,
                    "name": each.name,
                    "kind": each.kind,
                    "reads": list(each.reads),
                    "streaming": each.is_streaming,
                    "detail": each.detail,
                    **(
                        {
                            "mode": each.mode,
                            "trigger": each.trigger,
                            "checkpoint": each.checkpoint,
                        }
                        if each.part == "sink"
                        else {}
                    ),
                }
                for each in self.nodes
            ],
        }

    def as_dot(self) -> str:
        """For Graphviz; streams are solid, static data is dashed."""
        shapes = {"source": "cylinder", "step": "box", "sink": "house"}
        lines = [f"digraph {_quoted(self.pipeline)} {{", "  rankdir=LR;"]
        for each in self.nodes:
            # A backslash and n is Graphviz' own line break, so it is not escaped.
            label = f'"{_escaped(each.name)}\\n{_escaped(each.kind)}"'
            lines.append(f"  {_quoted(_key(each))} [label={label}, shape={shapes[each.part]}];")
        for each in self.nodes:
            for name in each.reads:
                read = self.node(name)
                style = "solid" if read.is_streaming else "dashed"
                lines.append(f"  {_quoted(_key(read))} -> {_quoted(_key(each))} [style={style}];")
        return "\n".join([*lines, "}"]) + "\n"


def make_plan(spec: PipelineSpec) -> Plan:
    """The plan of a file that has no errors."""
    graph = Graph(spec)
    nodes = []
    for name in graph.order():
        view = graph.views[name]
        part = "source" if name in spec.sources else "step"
        detail = _view_detail(view)
        nodes.append(
            PlanNode(part, name, view.kind, graph.reads(name), graph.is_streaming(name), detail)
        )
    for sink in spec.sinks.values():
        read = graph.view_of(sink)
        assert read is not None, "a file without errors names only views that exist"
        nodes.append(
            PlanNode(
                "sink",
                sink.name,
                sink.kind,
                (read,),
                True,
                _sink_detail(sink),
                sink.mode.value,
                trigger_text(sink.trigger),
                spec.checkpoint_of(sink.name),
            )
        )
    return Plan(spec.name, tuple(nodes))


def trigger_text(trigger: Trigger) -> str:
    if trigger.kind is not TriggerKind.PROCESSING_TIME:
        return trigger.kind.value
    if trigger.interval_ms == 0:
        return "as fast as possible"
    return f"every {format_duration_ms(trigger.interval_ms)}"


def _view_detail(view: Source | Step) -> str:
    match view:
        case TopicSource():
            names = ("subscribe", "subscribePattern", "assign")
            what = next((view.options[name] for name in names if name in view.options), "")
            parts = [what, f"at {view.options['kafka.bootstrap.servers']}"]
            if value_format := view.options.get("valueFormat"):
                parts.append(f"as {value_format}")
            if dead_letter := view.dead_letter_topic:
                parts.append(f"dead letters to {dead_letter}")
            detail = ", ".join(parts)
        case FileSource() | DeltaSource():
            detail = view.path
        case TableSource():
            detail = view.table
        case SqlSource() | SqlStep():
            detail = " ".join(view.sql.text.split())
        case RateSource():
            detail = f"{view.options['rowsPerSecond']} rows/s"
        case WatermarkStep():
            detail = ""
        case DedupeStep():
            scope = "within the watermark" if view.is_within_watermark else "for ever"
            detail = f"by {', '.join(view.keys)} {scope}"
        case PythonStep():
            detail = str(view.function)
    watermark = getattr(view, "watermark", None)
    if watermark is not None:
        late = f"watermark {watermark.column} - {format_duration_ms(watermark.delay_ms)}"
        detail = f"{detail}, {late}" if detail else late
    return detail


def _sink_detail(sink: Sink) -> str:
    match sink:
        case TopicSink():
            topic = sink.topic or "the topic of each row"
            return f"{topic} at {sink.options['kafka.bootstrap.servers']}"
        case ParquetSink() | DeltaSink():
            by = f" by {', '.join(sink.partition_by)}" if sink.partition_by else ""
            return f"{sink.path}{by}"
        case IcebergSink():
            return sink.table
        case ConsoleSink():
            return f"{sink.rows_max} rows of each batch"


def _key(node: PlanNode) -> str:
    # A sink may have the name of a view.
    return f"sink.{node.name}" if node.part == "sink" else node.name


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'
