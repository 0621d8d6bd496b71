"""The settings of topics: Kafka's, `durability` and `record.validation.enable`.

A topic's value of a setting is the one made for the topic, else the broker's setting of another
name that stands in for it (its synonyms, in order), else the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from tidelog.cluster.settings.config_schema import (
    LONG_MAX,
    ConfigType,
    Schema,
    Setting,
    Synonym,
    Verdict,
    at_least,
    between,
    each_of,
    one_of,
    parse_list,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.log_config import LogConfig

_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_NO_REMOTE_STORAGE = "this node has no remote storage"
_BY_DURABILITY = "durability decides when a log is synced"

CLEANUP_POLICIES = ("compact", "delete")
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
DURABILITIES = ("fsync", "page-cache")

NOT_KAFKAS = frozenset({"durability", "record.validation.enable"})
"""Settings of topics that Kafka does not have."""


def _log(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.{name}"),)


def _cleaner(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.cleaner.{name}"),)


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _gzip_level(level: int) -> str | None:
    return (
        None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"
    )


_ALL_REPLICAS = ["*"]
_REPLICA = re.compile("[0-9]+:[0-9]+")


def _throttled_replicas(values: list[str]) -> str | None:
    if values == _ALL_REPLICAS or all(_REPLICA.fullmatch(value) for value in values):
        return None
    return "It is the literal '*' or a list of partition:broker pairs, such as 0:1,1:2"


TOPIC_SETTINGS = Schema(
    "topic",
    (
        Setting(
            "cleanup.policy",
            LIST,
            "delete",
            "What happens to old segments: 'delete' drops them when the retention limits say so, "
            "'compact' keeps the latest value of each key, both together do both.",
            each_of(*CLEANUP_POLICIES),
            synonyms=_log("cleanup.policy"),
        ),
        Setting(
            "compression.gzip.level",
            INT,
            "-1",
            "The level at which compression.type=gzip rewrites batches of another codec, 1 "
            "(fast) to 9 (small); -1 is the codec's own default.",
            _gzip_level,
            synonyms=_same("compression.gzip.level"),
        ),
        Setting(
            "compression.lz4.level",
            INT,
            "9",
            "The level at which compression.type=lz4 rewrites batches of another codec, 1 to 17; "
            "the default stands for the fast way of lz4.",
            between(1, 17),
            synonyms=_same("compression.lz4.level"),
        ),
        Setting(
            "compression.type",
            STRING,
            "producer",
            "How batches are compressed in the log: 'producer' leaves them as they came, "
            "'uncompressed' and the codec names rewrite batches that differ.",
            one_of(*COMPRESSION_TYPES),
            synonyms=_same("compression.type"),
        ),
        Setting(
            "compression.zstd.level",
            INT,
            "3",
            "The level at which compression.type=zstd rewrites batches of another codec, -131072 "
            "(fast) to 22 (small).",
            between(-131072, 22),
            synonyms=_same("compression.zstd.level"),
        ),
        Setting(
            "delete.retention.ms",
            LONG,
            str(_DAY_MS),
            "How long tombstones of compacted topics stay readable, and so how long a reader from "
            "the beginning may take without missing a deletion.",
            at_least(0),
            synonyms=_cleaner("delete.retention.ms"),
        ),
        Setting(
            "durability",
            STRING,
            "fsync",
            "When a write counts as durable: 'fsync' when it has been synced to disk, "
            "'page-cache' when the operating system has it (Kafka's way).",
            one_of(*DURABILITIES),
            synonyms=_same("durability"),
        ),
        Setting(
            "file.delete.delay.ms",
            LONG,
            "60000",
            "How long a file stays on disk after its segment was deleted.",
            at_least(0),
            synonyms=_log("segment.delete.delay.ms"),
        ),
        Setting(
            "flush.messages",
            LONG,
            str(LONG_MAX),
            "After how many messages a log is synced.",
            at_least(1),
            synonyms=_log("flush.interval.messages"),
            verdict=Verdict.MEANINGLESS,
            reason=_BY_DURABILITY,
        ),
        Setting(
            "flush.ms",
            LONG,
            str(LONG_MAX),
            "After which time a log is synced.",
            at_least(0),
            synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
            verdict=Verdict.MEANINGLESS,
            reason=_BY_DURABILITY,
        ),
        Setting(
            "follower.replication.throttled.replicas",
            LIST,
            "",
            "Followers that follower.replication.throttled.rate of their brokers holds for: "
            "partition:broker pairs, or '*' for all.",
            _throttled_replicas,
        ),
        Setting(
            "index.interval.bytes",
            INT,
            "4096",
            "After how many bytes of batches the offset index gets its next entry.",
            at_least(0),
            synonyms=_log("index.interval.bytes"),
        ),
        Setting(
            "leader.replication.throttled.replicas",
            LIST,
            "",
            "Leaders that leader.replication.throttled.rate of their brokers holds for: "
            "partition:broker pairs, or '*' for all.",
            _throttled_replicas,
        ),
        Setting(
            "local.retention.bytes",
            LONG,
            "-2",
            "How much of a partition stays local with remote storage; -2 means retention.bytes.",
            at_least(-2),
            synonyms=_log("local.retention.bytes"),
            verdict=Verdict.MEANINGLESS,
            reason=_NO_REMOTE_STORAGE,
        ),
        Setting(
            "local.retention.ms",
            LONG,
            "-2",
            "How long records stay local with remote storage; -2 means retention.ms.",
            at_least(-2),
            synonyms=_log("local.retention.ms"),
            verdict=Verdict.MEANINGLESS,
            reason=_NO_REMOTE_STORAGE,
        ),
        Setting(
            "max.compaction.lag.ms",
            LONG,
            str(LONG_MAX),
            "The longest time that a record of a compacted topic may stay uncompacted.",
            at_least(1),
            synonyms=_cleaner("max.compaction.lag.ms"),
        ),
        Setting(
            "max.message.bytes",
            INT,
            str(1024 * 1024 + 12),
            "The largest record batch that the topic takes, after compression.",
            at_least(0),
            synonyms=_same("message.max.bytes"),
        ),
        Setting(
            "message.timestamp.after.max.ms",
            LONG,
            str(_HOUR_MS),
            "How far ahead of the broker's clock a record's create time may be.",
            at_least(0),
            synonyms=_log("message.timestamp.after.max.ms"),
        ),
        Setting(
            "message.timestamp.before.max.ms",
            LONG,
            str(LONG_MAX),
            "How far behind the broker's clock a record's create time may be.",
            at_least(0),
            synonyms=_log("message.timestamp.before.max.ms"),
        ),
        Setting(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whose clock stamps the records: the producer's (CreateTime) or the broker's "
            "(LogAppendTime).",
            one_of("CreateTime", "LogAppendTime"),
            synonyms=_log("message.timestamp.type"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            "0.5",
            "The share of a compacted log that must be uncompacted before it is cleaned.",
            between(0, 1),
            synonyms=_cleaner("min.cleanable.ratio"),
        ),
        Setting(
            "min.compaction.lag.ms",
            LONG,
            "0",
            "How long a record of a compacted topic stays uncompacted at least.",
            at_least(0),
            synonyms=_cleaner("min.compaction.lag.ms"),
        ),
        Setting(
            "min.insync.replicas",
            INT,
            "1",
            "How many replicas must be in sync for a write with acks=all to be taken.",
            at_least(1),
            synonyms=_same("min.insync.replicas"),
        ),
        Setting(
            "preallocate",
            BOOLEAN,
            "false",
            "Whether the space of a new segment is reserved on disk at once.",
            synonyms=_log("preallocate"),
        ),
        Setting(
            "record.validation.enable",
            BOOLEAN,
            "false",
            "Whether the broker reads the records of each produced batch and refuses a batch that "
            "consumers could not read. It costs time for each record, and the decompression.",
            synonyms=_same("record.validation.enable"),
        ),
        Setting(
            "remote.log.copy.disable",
            BOOLEAN,
            "false",
            "Whether segments are no longer copied to remote storage.",
            verdict=Verdict.MEANINGLESS,
            reason=_NO_REMOTE_STORAGE,
        ),
        Setting(
            "remote.log.delete.on.disable",
            BOOLEAN,
            "false",
            "Whether remote segments go when remote storage is switched off.",
            verdict=Verdict.MEANINGLESS,
            reason=_NO_REMOTE_STORAGE,
        ),
        Setting(
            "remote.storage.enable",
            BOOLEAN,
            "false",
            "Tiered storage; this broker has none, so it can only be false.",
        ),
        Setting(
            "retention.bytes",
            LONG,
            "-1",
            "How large a partition may grow before its oldest segments go; -1 is no limit.",
            synonyms=_log("retention.bytes"),
        ),
        Setting(
            "retention.ms",
            LONG,
            str(7 * _DAY_MS),
            "How long records are kept; -1 is no limit.",
            at_least(-1),
            synonyms=(
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", 60 * 1000),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        Setting(
            "segment.bytes",
            INT,
            str(1 << 30),
            "At which size a segment is closed and a new one begun.",
            at_least(14),
            synonyms=_log("segment.bytes"),
        ),
        Setting(
            "segment.index.bytes",
            INT,
            str(10 << 20),
            "How large an offset index may grow; a full index closes its segment.",
            at_least(4),
            synonyms=_log("index.size.max.bytes"),
        ),
        Setting(
            "segment.jitter.ms",
            LONG,
            "0",
            "The most that is taken off segment.ms at random, so that segments roll apart.",
            at_least(0),
            synonyms=(
                Synonym("log.roll.jitter.ms"),
                Synonym("log.roll.jitter.hours", _HOUR_MS),
            ),
        ),
        Setting(
            "segment.ms",
            LONG,
            str(7 * _DAY_MS),
            "After which time a segment is closed even when it is not full.",
            at_least(1),
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        Setting(
            "unclean.leader.election.enable",
            BOOLEAN,
            "false",
            "Whether a replica that is not in sync may lead when no other can; it loses records.",
            synonyms=_same("unclean.leader.election.enable"),
        ),
    ),
)


def validate_topic_config(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Typed values of a topic's own settings; ApiError(INVALID_CONFIG) for a wrong one."""
    values = TOPIC_SETTINGS.parse(overrides)
    if values.get("remote.storage.enable"):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Tiered storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    shortest = values.get("min.compaction.lag.ms", 0)
    longest = values.get("max.compaction.lag.ms", LONG_MAX)
    if shortest > longest:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})",
        )
    return values


def throttled_partitions(text: str | None, broker_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a broker is among `*.replication.throttled.replicas`; None
    for all of them."""
    values = parse_list(text or "")
    if values == _ALL_REPLICAS:
        return None
    pairs = (value.split(":") for value in values)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


def effective_value(
    setting: Setting, overrides: Mapping[str, str], broker_config: Mapping[str, str]
) -> str | None:
    """A setting's value in text form, for a resource with `overrides` on such a broker."""
    text = overrides.get(setting.name)
    if text is not None:
        return text
    for synonym in setting.synonyms:
        text = broker_config.get(synonym.name)
        if text is not None:
            return text if synonym.factor == 1 else str(int(text) * synonym.factor)
    return setting.default


def to_log_config(
    overrides: Mapping[str, str], broker_config: Mapping[str, str] | None = None
) -> LogConfig:
    """What a topic with these settings means for its logs, on a broker with these settings.

    `broker_config` holds what was set, by Kafka's broker names (log.retention.ms, ...). Equal
    arguments give the same object.
    """
    return _log_config(
        tuple(sorted(overrides.items())), tuple(sorted((broker_config or {}).items()))
    )


_LOG_CONFIG_FIELDS = frozenset(field.name for field in fields(LogConfig))


@lru_cache(maxsize=256)
def _log_config(
    overrides: tuple[tuple[str, str], ...], broker_config: tuple[tuple[str, str], ...]
) -> LogConfig:
    topic, broker = dict(overrides), dict(broker_config)
    values: dict[str, Any] = {}
    for setting in TOPIC_SETTINGS:
        field_name = setting.name.replace(".", "_")
        text = effective_value(setting, topic, broker)
        if field_name in _LOG_CONFIG_FIELDS and text is not None:
            values[field_name] = setting.parse(text)
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    if "producer.id.expiration.ms" in broker:
        values["producer_id_expiration_ms"] = int(broker["producer.id.expiration.ms"])
    return LogConfig(**values)
