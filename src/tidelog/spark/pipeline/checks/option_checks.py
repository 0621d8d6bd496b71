"""The options of topic sources and sinks, checked by those who will read them.

That code is part of the `spark` extra; without it the checks are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.spark.errors import OptionError
from tidelog.spark.pipeline.file.document import Document
from tidelog.spark.pipeline.file.model import PipelineSpec, TopicSink, TopicSource

# Options whose keys have other names.
_KEYS = {
    "subscribe": ("topic",),
    "subscribePattern": ("pattern",),
    "kafka.bootstrap.servers": ("bootstrap",),
    "valueFormat": ("format",),
    "valueSchema": ("schema", "schemafile"),
    "valuePrefix": ("prefix",),
    "corruptRows": ("corrupt",),
    "deadLetterTopic": ("deadletter",),
    "protobufDescriptor": ("schemafile",),
    "protobufMessage": ("message",),
}


def check_options(document: Document, spec: PipelineSpec) -> None:
    """Report wrong options at the key that they come from."""
    for name, source in spec.sources.items():
        if isinstance(source, TopicSource):
            problem = _source_problem(source)
            if problem is not None:
                _report(document, ("sources", name), source.options, problem)
    for name, sink in spec.sinks.items():
        if isinstance(sink, TopicSink):
            problem = _sink_problem(sink)
            if problem is not None:
                _report(document, ("sinks", name), sink.options, problem)


def _source_problem(source: TopicSource) -> str | None:
    try:
        from tidelog.spark.formats import value_format
        from tidelog.spark.source.options import parse_batch_options, parse_stream_options
    except ImportError:
        return None
    parse = parse_stream_options if source.is_streaming else parse_batch_options
    try:
        parse(source.options)
        value_format(source.options)
    except OptionError as error:
        return str(error)
    return None


def _sink_problem(sink: TopicSink) -> str | None:
    try:
        from pyspark.sql.types import StringType, StructField, StructType

        from tidelog.spark.sink.options import parse_sink_options
    except ImportError:
        return None
    # Which columns there are is known only to Spark: here all that may be needed are.
    columns = [StructField(name, StringType()) for name in ("key", "value", "topic")]
    try:
        parse_sink_options(sink.options, StructType(columns), streaming=True)
    except OptionError as error:
        return str(error)
    return None


def _report(
    document: Document, section: tuple[str, str], options: Mapping[str, str], problem: str
) -> None:
    path = key_of(document, section, options, problem)
    document.problems.error(document.file, document.lines.line(path), problem)


def key_of(
    document: Document, section: tuple[str, str], options: Mapping[str, str], problem: str
) -> tuple[str | int, ...]:
    """The key whose option a text names, in the section or in [brokers]; else the section."""
    keys = {
        _plain("".join(str(part) for part in path[len(around) :] if part != "options")): path
        for around in (("brokers",), section)
        for path in document.lines.keys
        if path[: len(around)] == around and len(path) > len(around)
    }
    words = problem.lower()
    for name in sorted((name for name in options if name.lower() in words), key=len, reverse=True):
        for key in _KEYS.get(name) or (_plain(name),):
            if key in keys:
                return keys[key]
    return section


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "").removeprefix("kafka")
