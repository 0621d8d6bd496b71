"""`[sources.NAME]`: what each kind of source takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.spark.pipeline.file.document import Section
from tidelog.spark.pipeline.file.model import (
    DeltaSource,
    FileSource,
    RateSource,
    Source,
    SqlSource,
    TableSource,
    TopicSource,
    Watermark,
)
from tidelog.spark.pipeline.file.parse_sql import parse_sql
from tidelog.spark.pipeline.file.value_format import parse_value_format

FILE_KINDS = ("parquet", "json", "csv", "orc", "text")

# Options of format("tidelog") that are keys of a topic source, beside those below.
_TOPIC_OPTIONS = {
    "starting_offsets": "startingOffsets",
    "ending_offsets": "endingOffsets",
    "starting_timestamp": "startingTimestamp",
    "ending_timestamp": "endingTimestamp",
    "starting_offsets_by_timestamp": "startingOffsetsByTimestamp",
    "ending_offsets_by_timestamp": "endingOffsetsByTimestamp",
    "starting_offsets_by_timestamp_strategy": "startingOffsetsByTimestampStrategy",
    "fail_on_data_loss": "failOnDataLoss",
    "min_partitions": "minPartitions",
    "max_records_per_partition": "maxRecordsPerPartition",
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
    "max_trigger_delay": "maxTriggerDelay",
    "include_headers": "includeHeaders",
    "group_id": "groupId",
    "group_id_prefix": "groupIdPrefix",
    "local_reads": "localReads",
}
_SUBSCRIPTIONS = ("topic", "pattern", "assign")
_KIND_BY_KEY = {
    **dict.fromkeys(_SUBSCRIPTIONS, "topic"),
    "table": "table",
    "sql": "sql",
    "sql_file": "sql",
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """`[brokers]`: what every topic source and sink uses unless it says otherwise."""

    bootstrap: str | None
    options: Mapping[str, str]


def parse_brokers(section: Section) -> BrokerSettings:
    bootstrap = section.text("bootstrap")
    given = section.options("options")
    section.finish()
    return BrokerSettings(bootstrap, {_client_option(key): text for key, text in given.items()})


def broker_options(section: Section, brokers: BrokerSettings) -> dict[str, str]:
    """The options that lead a topic source or sink to its broker."""
    bootstrap = section.text("bootstrap") or brokers.bootstrap
    if bootstrap is None:
        section.error(f"{section.label} needs a broker: give 'bootstrap' here or in [brokers]")
        return dict(brokers.options)
    return {**brokers.options, "kafka.bootstrap.servers": bootstrap}


def parse_source(section: Section, brokers: BrokerSettings) -> Source | None:
    """The source, or None after an error that leaves nothing to go on with."""
    name = str(section.path[-1])
    kind = section.kind(_KINDS, _KIND_BY_KEY)
    if kind is None:
        return None
    made = _KINDS[kind](section, name, kind, brokers)
    section.finish()
    return made


def _watermark(section: Section) -> Watermark | None:
    if "watermark" not in section:
        section.raw("watermark")
        return None
    inner = section.section("watermark")
    return parse_watermark(inner)


def parse_watermark(section: Section) -> Watermark:
    column = section.required_text("column")
    if "delay" not in section:
        section.missing("delay", ": how late rows may come, such as '10 minutes'")
    delay_ms = section.duration_ms("delay", 0)
    section.finish()
    return Watermark(column, delay_ms)


def _topic(section: Section, name: str, kind: str, brokers: BrokerSettings) -> TopicSource:
    options = broker_options(section, brokers)
    given = [key for key in _SUBSCRIPTIONS if key in section]
    if len(given) != 1:
        both = f", not {' and '.join(given)}" if given else ""
        section.error(f"{section.label} needs one of {', '.join(_SUBSCRIPTIONS)}{both}")
    topics = section.texts("topic")
    if topics:
        options["subscribe"] = ",".join(topics)
    if pattern := section.text("pattern"):
        options["subscribePattern"] = pattern
    if assign := section.option("assign"):
        options["assign"] = assign
    for key, option in _TOPIC_OPTIONS.items():
        if (value := section.option(key)) is not None:
            options[option] = value
    if "lake" in section:
        options["lake"] = section.path_text("lake")
    options |= parse_value_format(section)
    options |= section.options("options")
    is_streaming = not section.flag("batch", False)
    return TopicSource(name, options, topics, is_streaming, _watermark(section))


def _file(section: Section, name: str, kind: str, brokers: BrokerSettings) -> FileSource:
    schema = section.text("schema")
    is_streaming = section.flag("stream", False)
    if is_streaming and schema is None and kind != "text":
        section.missing("schema", ": a stream of files does not look into them")
    options = section.options("options")
    path = section.path_text("path")
    return FileSource(name, kind, path, schema, options, is_streaming, _watermark(section))


def _delta(section: Section, name: str, kind: str, brokers: BrokerSettings) -> DeltaSource:
    return DeltaSource(name, section.path_text("path"))


def _table(section: Section, name: str, kind: str, brokers: BrokerSettings) -> TableSource:
    table = section.required_text("table")
    return TableSource(name, table, section.flag("stream", False), _watermark(section))


def _sql(section: Section, name: str, kind: str, brokers: BrokerSettings) -> SqlSource | None:
    sql = parse_sql(section)
    return None if sql is None else SqlSource(name, sql)


def _rate(section: Section, name: str, kind: str, brokers: BrokerSettings) -> RateSource:
    options = {
        "rowsPerSecond": str(section.integer("rows_per_second", 1, least=1)),
        **section.options("options"),
    }
    return RateSource(name, options, _watermark(section))


def _client_option(key: str) -> str:
    return key if key.startswith("kafka.") else f"kafka.{key}"


_Parser = Callable[[Section, str, str, BrokerSettings], Source | None]
_KINDS: Mapping[str, _Parser] = {
    "topic": _topic,
    **dict.fromkeys(FILE_KINDS, _file),
    "delta": _delta,
    "table": _table,
    "sql": _sql,
    "rate": _rate,
}
