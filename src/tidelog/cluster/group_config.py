"""The settings of groups, which stand over the coordinator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.cluster.config_schema import (
    ConfigType,
    Schema,
    Setting,
    Synonym,
    at_least,
    between,
    one_of,
)
from tidelog.protocol.errors import ApiError, ErrorCode

INT, STRING = ConfigType.INT, ConfigType.STRING

GROUP_SETTINGS = Schema(
    "group",
    (
        Setting(
            "consumer.assignment.interval.ms",
            INT,
            "1000",
            "How long a consumer group (KIP-848) keeps its assignment before it gets the next.",
            at_least(0),
            synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
        ),
        Setting(
            "consumer.heartbeat.interval.ms",
            INT,
            "5000",
            "How often members of a consumer group (KIP-848) send heartbeats.",
            at_least(1),
            synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
        ),
        Setting(
            "consumer.session.timeout.ms",
            INT,
            "45000",
            "After how long without a heartbeat a member of a consumer group (KIP-848) is removed.",
            at_least(1),
            synonyms=(Synonym("group.consumer.session.timeout.ms"),),
        ),
        Setting(
            "share.auto.offset.reset",
            STRING,
            "latest",
            "For share groups, which this broker does not have.",
            one_of("latest", "earliest"),
        ),
        Setting(
            "share.heartbeat.interval.ms",
            INT,
            "5000",
            "For share groups, which this broker does not have.",
            at_least(1),
            synonyms=(Synonym("group.share.heartbeat.interval.ms"),),
        ),
        Setting(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            "For share groups, which this broker does not have.",
            one_of("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.record.lock.duration.ms",
            INT,
            "30000",
            "For share groups, which this broker does not have.",
            between(1000, 3600000),
            synonyms=(Synonym("group.share.record.lock.duration.ms"),),
        ),
        Setting(
            "share.session.timeout.ms",
            INT,
            "45000",
            "For share groups, which this broker does not have.",
            at_least(1),
            synonyms=(Synonym("group.share.session.timeout.ms"),),
        ),
        Setting(
            "streams.heartbeat.interval.ms",
            INT,
            "5000",
            "For streams groups, which this broker does not have.",
            at_least(1),
            synonyms=(Synonym("group.streams.heartbeat.interval.ms"),),
        ),
        Setting(
            "streams.num.standby.replicas",
            INT,
            "0",
            "For streams groups, which this broker does not have.",
            at_least(0),
            synonyms=(Synonym("group.streams.num.standby.replicas"),),
        ),
        Setting(
            "streams.session.timeout.ms",
            INT,
            "45000",
            "For streams groups, which this broker does not have.",
            at_least(1),
            synonyms=(Synonym("group.streams.session.timeout.ms"),),
        ),
    ),
)

# Per kind of group: its times, and their limits when the broker sets no others
# (group.<kind>.min.session.timeout.ms and the like).
_LIMITS = {
    "assignment.interval.ms": (0, 15_000),
    "heartbeat.interval.ms": (5_000, 15_000),
    "session.timeout.ms": (45_000, 60_000),
}


def validate_group_config(
    overrides: Mapping[str, str], broker_config: Mapping[str, str]
) -> dict[str, Any]:
    """Typed values of a group's own settings; ApiError(INVALID_CONFIG) for a wrong one."""
    values = GROUP_SETTINGS.parse(overrides)
    for kind in ("consumer", "share", "streams"):
        effective: dict[str, int] = {}
        for name, (lowest, highest) in _LIMITS.items():
            full_name = f"{kind}.{name}"
            if full_name not in GROUP_SETTINGS:
                continue
            low = _limit(broker_config, f"group.{kind}.min.{name}", lowest)
            high = _limit(broker_config, f"group.{kind}.max.{name}", highest)
            value = values.get(full_name)
            if value is None:
                value = _limit(broker_config, f"group.{full_name}", _default(full_name))
            elif value < low:
                raise _invalid(f"{full_name} must be greater than or equal to {low}")
            elif value > high:
                raise _invalid(f"{full_name} must be less than or equal to {high}")
            effective[name] = value
        if effective["session.timeout.ms"] <= effective["heartbeat.interval.ms"]:
            raise _invalid(
                f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            )
    return values


def _default(name: str) -> int:
    return int(GROUP_SETTINGS[name].default or 0)


def _limit(broker_config: Mapping[str, str], name: str, default: int) -> int:
    return int(broker_config.get(name, default))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
