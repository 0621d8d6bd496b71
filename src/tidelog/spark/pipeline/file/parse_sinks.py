"""`[sinks.NAME]`: where rows go, how, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from tidelog.spark.pipeline.file.document import Section
from tidelog.spark.pipeline.file.durations import DurationError, parse_duration_ms
from tidelog.spark.pipeline.file.model import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    OutputMode,
    ParquetSink,
    Sink,
    TopicSink,
    Trigger,
    TriggerKind,
)
from tidelog.spark.pipeline.file.parse_sources import BrokerSettings, broker_options
from tidelog.spark.pipeline.file.variables import Unknown

_COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4")
_NOT_OFFERED = {
    "continuous": "Spark offers continuous processing to its own sources only",
    "real-time": "Spark offers real-time mode to its own Kafka source only",
}


def parse_trigger(section: Section, default: Trigger) -> Trigger:
    """`trigger = "5 seconds"`, `"available-now"` or `"once"`."""
    text = section.text("trigger")
    if text is None or isinstance(text, Unknown):
        return default
    if text in (TriggerKind.AVAILABLE_NOW, TriggerKind.ONCE):
        return Trigger(TriggerKind(text))
    if text in _NOT_OFFERED:
        section.error(f"trigger = '{text}' is not possible: {_NOT_OFFERED[text]}", "trigger")
        return default
    try:
        return Trigger(TriggerKind.PROCESSING_TIME, parse_duration_ms(text))
    except DurationError:
        section.error(
            f"'trigger' cannot be '{text}': give the time between micro-batches, such as "
            f"'5 seconds' or '0 seconds', or 'available-now' or 'once'",
            "trigger",
        )
        return default


def parse_sink(section: Section, brokers: BrokerSettings, trigger: Trigger) -> Sink | None:
    """The sink, or None after an error that leaves nothing to go on with."""
    name = str(section.path[-1])
    kind = section.kind(_KINDS, {"topic": "topic"})
    if kind is None:
        return None
    reads = section.required_text("from", ": the view whose rows it takes")
    made = _KINDS[kind](section, name, reads, parse_trigger(section, trigger), brokers)
    section.finish()
    return made


def _mode(section: Section) -> OutputMode:
    return OutputMode(section.choice("mode", tuple(OutputMode), OutputMode.APPEND))


def _append_only(section: Section, kind: str) -> None:
    if _mode(section) is not OutputMode.APPEND:
        section.error(f"a {kind} sink can only append: leave out 'mode', or change it", "mode")


def _topic(
    section: Section, name: str, reads: str, trigger: Trigger, brokers: BrokerSettings
) -> TopicSink:
    options = broker_options(section, brokers)
    topic = section.text("topic")
    if topic is not None:
        options["topic"] = topic
    is_json = section.choice("format", ("raw", "json"), "raw") == "json"
    value = section.text("value")
    if is_json and value is not None:
        section.error("'value' and format = 'json' both make the value: leave one out", "value")
    options |= section.options("options")
    mode = _mode(section)
    key = section.text("key")
    return TopicSink(name, reads, options, topic, key, value, is_json, mode, trigger)


def _parquet(
    section: Section, name: str, reads: str, trigger: Trigger, brokers: BrokerSettings
) -> ParquetSink:
    options = section.options("options")
    if compression := section.choice("compression", _COMPRESSIONS, ""):
        options["compression"] = compression
    _append_only(section, "parquet")
    return ParquetSink(
        name,
        reads,
        section.path_text("path"),
        section.texts("partition_by"),
        options,
        trigger,
    )


def _delta(
    section: Section, name: str, reads: str, trigger: Trigger, brokers: BrokerSettings
) -> DeltaSink:
    _needs_package(section, "deltalake", 'pip install "tidelog[spark]"')
    _append_only(section, "delta")
    return DeltaSink(name, reads, section.path_text("path"), section.texts("partition_by"), trigger)


def _iceberg(
    section: Section, name: str, reads: str, trigger: Trigger, brokers: BrokerSettings
) -> IcebergSink:
    _needs_package(section, "pyiceberg", 'pip install "tidelog[iceberg]"')
    _append_only(section, "iceberg")
    table = section.required_text("table", ": NAMESPACE.TABLE in the catalog")
    if table and "." not in table:
        section.error(f"'table' is '{table}', but must be NAMESPACE.TABLE", "table")
    return IcebergSink(
        name, reads, table, section.path_text("path"), section.options("catalog"), trigger
    )


def _console(
    section: Section, name: str, reads: str, trigger: Trigger, brokers: BrokerSettings
) -> ConsoleSink:
    rows_max = section.integer("rows", 20, least=1)
    return ConsoleSink(name, reads, rows_max, _mode(section), trigger)


def _needs_package(section: Section, package: str, remedy: str) -> None:
    if find_spec(package) is None:
        section.error(f"this sink needs the package {package}, which is missing: {remedy}", "kind")


_Parser = Callable[[Section, str, str, Trigger, BrokerSettings], Sink]
_KINDS: Mapping[str, _Parser] = {
    "topic": _topic,
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
    "console": _console,
}
