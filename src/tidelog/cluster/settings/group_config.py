"""The settings of groups, which stand over the coordinator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.cluster.settings.broker_config import BROKER_SETTINGS
from tidelog.cluster.settings.config_schema import (
    ConfigType,
    Schema,
    Setting,
    Synonym,
    Validator,
    Verdict,
    at_least,
    between,
    one_of,
)
from tidelog.protocol.errors import ApiError, ErrorCode

INT, STRING = ConfigType.INT, ConfigType.STRING

_NO_SHARE_GROUPS = "this node has no share groups"
_NO_STREAMS_GROUPS = "this node has no streams groups"


def _of_broker(
    name: str,
    default: str,
    documentation: str,
    validator: Validator,
    *,
    verdict: Verdict = Verdict.USED,
    reason: str = "",
) -> Setting:
    """A number that stands over the broker's setting of the same name with `group.` in front."""
    return Setting(
        name,
        INT,
        default,
        documentation,
        validator,
        synonyms=(Synonym(f"group.{name}"),),
        verdict=verdict,
        reason=reason,
    )


def _of_kind(kind: str, title: str, verdict: Verdict, reason: str) -> tuple[Setting, ...]:
    return (
        _of_broker(
            f"{kind}.heartbeat.interval.ms",
            "5000",
            f"How often members of a {title} send heartbeats.",
            at_least(1),
            verdict=verdict,
            reason=reason,
        ),
        _of_broker(
            f"{kind}.session.timeout.ms",
            "45000",
            f"After how long without a heartbeat a member of a {title} is removed.",
            at_least(1),
            verdict=verdict,
            reason=reason,
        ),
    )


def _share(name: str, default: str, documentation: str, validator: Validator) -> Setting:
    return _of_broker(
        f"share.{name}",
        default,
        documentation,
        validator,
        verdict=Verdict.MEANINGLESS,
        reason=_NO_SHARE_GROUPS,
    )


def _streams(name: str, default: str, documentation: str) -> Setting:
    return _of_broker(
        f"streams.{name}",
        default,
        documentation,
        at_least(0),
        verdict=Verdict.MEANINGLESS,
        reason=_NO_STREAMS_GROUPS,
    )


def _of_share_groups(
    name: str, kind: ConfigType, default: str, documentation: str, validator: Validator | None
) -> Setting:
    return Setting(
        f"share.{name}",
        kind,
        default,
        documentation,
        validator,
        verdict=Verdict.MEANINGLESS,
        reason=_NO_SHARE_GROUPS,
    )


_ASSIGNMENT_INTERVAL = "How long a group waits between two assignments."

GROUP_SETTINGS = Schema(
    "group",
    sorted(
        (
            *_of_kind("consumer", "consumer group (KIP-848)", Verdict.USED, ""),
            *_of_kind("share", "share group", Verdict.MEANINGLESS, _NO_SHARE_GROUPS),
            *_of_kind("streams", "streams group", Verdict.MEANINGLESS, _NO_STREAMS_GROUPS),
            _of_broker(
                "consumer.assignment.interval.ms",
                "1000",
                "How long a consumer group (KIP-848) keeps its assignment before it gets the next.",
                at_least(0),
            ),
            _share("assignment.interval.ms", "1000", _ASSIGNMENT_INTERVAL, at_least(0)),
            _share(
                "delivery.count.limit",
                "5",
                "How often a record is delivered at most.",
                between(2, 10),
            ),
            _share(
                "partition.max.record.locks",
                "2000",
                "How many records of a partition are locked at once.",
                between(100, 10000),
            ),
            _share(
                "record.lock.duration.ms",
                "30000",
                "How long a record is locked for a consumer.",
                between(1000, 3600000),
            ),
            _of_share_groups(
                "auto.offset.reset",
                STRING,
                "latest",
                "Where a new group begins to read.",
                one_of("latest", "earliest"),
            ),
            _of_share_groups(
                "isolation.level",
                STRING,
                "read_uncommitted",
                "Whether records of open and aborted transactions are delivered.",
                one_of("read_committed", "read_uncommitted"),
            ),
            _of_share_groups(
                "renew.acknowledge.enable",
                ConfigType.BOOLEAN,
                "true",
                "Whether a consumer may prolong its lock on a record.",
                None,
            ),
            _streams("assignment.interval.ms", "1000", _ASSIGNMENT_INTERVAL),
            _streams(
                "initial.rebalance.delay.ms",
                "3000",
                "How long a new group waits for more members.",
            ),
            _streams("num.standby.replicas", "0", "Standby replicas of each task."),
        ),
        key=lambda setting: setting.name,
    ),
)

# Where the broker's settings of these names limit those of a group.
_LIMITED = {
    "heartbeat.interval.ms": ("consumer", "share", "streams"),
    "session.timeout.ms": ("consumer", "share", "streams"),
    "assignment.interval.ms": ("consumer", "share", "streams"),
    "record.lock.duration.ms": ("share",),
    "delivery.count.limit": ("share",),
    "partition.max.record.locks": ("share",),
}


def validate_group_config(
    overrides: Mapping[str, str], broker_config: Mapping[str, str]
) -> dict[str, Any]:
    """Typed values of a group's own settings; ApiError(INVALID_CONFIG) for a wrong one."""
    values = GROUP_SETTINGS.parse(overrides)
    for name, kinds in _LIMITED.items():
        for kind in kinds:
            _check_limits(f"{kind}.{name}", kind, name, values, broker_config)
    standby, most = "streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if values.get(standby, 0) > _of_the_broker(most, broker_config):
        raise _invalid(
            f"{standby} must be less than or equal to {_of_the_broker(most, broker_config)}"
        )
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _effective(session, values, broker_config) <= _effective(
            heartbeat, values, broker_config
        ):
            raise _invalid(f"{session} must be greater than {heartbeat}")
    return values


def _check_limits(
    full_name: str,
    kind: str,
    name: str,
    values: Mapping[str, Any],
    broker_config: Mapping[str, str],
) -> None:
    value = values.get(full_name)
    if value is None:
        return
    low = _of_the_broker(f"group.{kind}.min.{name}", broker_config)
    high = _of_the_broker(f"group.{kind}.max.{name}", broker_config)
    if value < low:
        raise _invalid(f"{full_name} must be greater than or equal to {low}")
    if value > high:
        raise _invalid(f"{full_name} must be less than or equal to {high}")


def _effective(name: str, values: Mapping[str, Any], broker_config: Mapping[str, str]) -> int:
    value = values.get(name)
    return int(value) if value is not None else _of_the_broker(f"group.{name}", broker_config)


def _of_the_broker(name: str, broker_config: Mapping[str, str]) -> int:
    return int(broker_config.get(name) or BROKER_SETTINGS[name].default or 0)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
