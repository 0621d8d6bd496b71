"""The log level of the node as a setting of the broker-logger resource.

The node has one logger, `root`. Kafka's names for levels are used on the wire.
"""

from __future__ import annotations

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.structured_logs import Level, StructuredLog

ROOT_LOGGER = "root"

SET = 0
DELETE = 1

_NAMES = {
    Level.DEBUG: "DEBUG",
    Level.INFO: "INFO",
    Level.WARNING: "WARN",
    Level.ERROR: "ERROR",
    Level.CRITICAL: "FATAL",
}
_LEVELS = {name: level for level, name in _NAMES.items()} | {"TRACE": Level.DEBUG}
_NAMES[Level.OFF] = "FATAL"  # Kafka has no name for it


def logger_levels(log: StructuredLog) -> dict[str, str]:
    """The loggers and their levels."""
    return {ROOT_LOGGER: _NAMES[log.level]}


def check_level_change(name: str, operation: int, value: str | None) -> Level:
    """The level that a logger is to have; ApiError when the change makes no sense."""
    if name != ROOT_LOGGER:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == DELETE:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Removing the log level of the {ROOT_LOGGER} logger is not allowed",
        )
    if operation != SET:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Operation {operation} is not allowed for log levels"
        )
    level = _LEVELS.get(value or "")
    if level is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    return level
