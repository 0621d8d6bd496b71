"""The settings of client metrics subscriptions: which clients push which metrics how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelog.cluster.settings.config_schema import ConfigType, Schema, Setting
from tidelog.protocol.errors import ApiError, ErrorCode

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

MATCH_PARAMETERS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_SETTINGS = Schema(
    "client metrics",
    (
        Setting(
            "interval.ms",
            ConfigType.INT,
            "300000",
            "How often clients push their metrics.",
        ),
        Setting(
            "match",
            ConfigType.LIST,
            "",
            "Which clients push: name=pattern pairs that must all match; none means all clients.",
        ),
        Setting(
            "metrics",
            ConfigType.LIST,
            "",
            "The prefixes of the metrics that clients push; '*' is all of them.",
        ),
    ),
)


def validate_client_metrics_config(name: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Typed values of a subscription's own settings."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in overrides:
        if key not in CLIENT_METRICS_SETTINGS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
            )
    values = CLIENT_METRICS_SETTINGS.parse(overrides)
    interval_ms = values.get("interval.ms", INTERVAL_MS_MIN)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, "
            f"interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
        )
    parse_match(values.get("match", []))
    return values


def parse_match(pairs: list[str]) -> dict[str, re.Pattern[str]]:
    """The patterns of a `match` setting by client property."""
    patterns = {}
    for pair in pairs:
        parameter, _, pattern = pair.partition("=")
        problem = ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pair}")
        if parameter.strip() not in MATCH_PARAMETERS or not pattern:
            raise problem
        try:
            patterns[parameter.strip()] = re.compile(pattern.strip())
        except re.error:
            raise problem from None
    return patterns
