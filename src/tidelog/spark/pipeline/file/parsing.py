"""From the TOML of a pipeline file to its model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tidelog.spark.pipeline.file.document import Document, Section
from tidelog.spark.pipeline.file.model import (
    PipelineSpec,
    RestartPolicy,
    Sink,
    Source,
    SparkSettings,
    Step,
    Trigger,
)
from tidelog.spark.pipeline.file.parse_sinks import parse_sink, parse_trigger
from tidelog.spark.pipeline.file.parse_sources import parse_brokers, parse_source
from tidelog.spark.pipeline.file.parse_steps import parse_step
from tidelog.spark.pipeline.file.sql_query import RESERVED_NAMES
from tidelog.spark.pipeline.file.variables import Unknown

_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_DRAIN_TIMEOUT_MS = 60_000

Node = TypeVar("Node")
_Named = tuple[dict[str, Node], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The model as far as the file could be read, and the names of views that could not."""

    spec: PipelineSpec
    unreadable: frozenset[str]


def parse(document: Document) -> Parsed:
    """Read the whole file; what is wrong goes to the document's problems."""
    root = document.section()
    pipeline = root.section("pipeline")
    name = checkpoint = ""
    if "pipeline" in root:
        name = _pipeline_name(pipeline)
        checkpoint = pipeline.path_text("checkpoint")
    else:
        root.error("the file needs [pipeline] with 'name' and 'checkpoint'")
    trigger = parse_trigger(pipeline, Trigger())
    restart = _restart(pipeline.section("restart"))
    drain_timeout_ms = pipeline.duration_ms("drain_timeout", _DRAIN_TIMEOUT_MS)
    state_dir = Path(pipeline.path_text("state_dir")) if "state_dir" in pipeline else None
    pipeline.raw("state_dir")
    pipeline.finish()

    spark = _spark(root.section("spark"))
    brokers = parse_brokers(root.section("brokers"))

    def read_source(section: Section) -> Source | None:
        return parse_source(section, brokers)

    def read_sink(section: Section) -> Sink | None:
        return parse_sink(section, brokers, trigger)

    sources: _Named[Source] = _named(root.section("sources"), _VIEW_NAME, read_source)
    steps: _Named[Step] = _named(root.section("steps"), _VIEW_NAME, parse_step)
    sinks: _Named[Sink] = _named(root.section("sinks"), _SINK_NAME, read_sink)
    root.finish()
    spec = PipelineSpec(
        name=name,
        file=document.file,
        checkpoint=checkpoint,
        restart=restart,
        drain_timeout_ms=drain_timeout_ms,
        spark=spark,
        sources=sources[0],
        steps=steps[0],
        sinks=sinks[0],
        state_dir=state_dir,
    )
    return Parsed(spec, sources[1] | steps[1])


def _pipeline_name(section: Section) -> str:
    name = section.required_text("name")
    if name and not isinstance(name, Unknown) and not _PIPELINE_NAME.fullmatch(name):
        section.error(f"the name '{name}' may have letters, digits, '.', '_' and '-' only", "name")
    return name


def _restart(section: Section) -> RestartPolicy:
    usual = RestartPolicy()
    policy = RestartPolicy(
        restarts_max=section.integer("max", usual.restarts_max),
        window_ms=section.duration_ms("window", usual.window_ms),
        backoff_ms=section.duration_ms("backoff", usual.backoff_ms),
        backoff_ms_max=section.duration_ms("backoff_max", usual.backoff_ms_max),
    )
    if policy.backoff_ms > policy.backoff_ms_max:
        section.error("'backoff' is longer than 'backoff_max'", "backoff")
    section.finish()
    return policy


def _spark(section: Section) -> SparkSettings:
    master = section.text("master")
    conf = section.options("conf")
    for name in conf:
        if not name.startswith("spark."):
            document = section.document
            line = document.lines.dotted_line((*section.path, "conf"), name)
            message = f"'{name}' is not a setting of Spark: they begin with 'spark.'"
            document.problems.error(document.file, line, message)
    section.finish()
    return SparkSettings(master, conf)


def _named(
    section: Section, pattern: re.Pattern[str], read: Callable[[Section], Node | None]
) -> _Named[Node]:
    """The nodes of [sources], [steps] or [sinks], and the names of those without a model."""
    found: dict[str, Node] = {}
    unreadable = set()
    for name in section.names():
        inner = section.section(name)
        if not section.has_table(name):
            unreadable.add(name)
            continue
        if not pattern.fullmatch(name):
            inner.error(f"'{name}' cannot be a name here: use letters, digits and '_'")
        elif name.upper() in RESERVED_NAMES and pattern is _VIEW_NAME:
            inner.error(f"'{name}' cannot be the name of a view: it is a word of SQL")
        node = read(inner)
        if node is None:
            unreadable.add(name)
        else:
            found[name] = node
    return found, frozenset(unreadable)
