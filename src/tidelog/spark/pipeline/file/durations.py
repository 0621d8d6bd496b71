"""Durations as people write them: `10 seconds`, `500ms`, `1 minute 30 seconds`."""

import re

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
    "week": 604_800_000,
    "weeks": 604_800_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_SHOWN = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


class DurationError(ValueError):
    """The text is not a duration; the message says what one looks like."""


def parse_duration_ms(text: str) -> int:
    """The duration in milliseconds."""
    total = 0.0
    at = 0
    while at < len(text) or at == 0:
        part = _PART.match(text, at)
        unit_ms = _UNITS_MS.get(part[2].lower()) if part else None
        if part is None or unit_ms is None:
            raise DurationError(
                f"{text!r} is not a duration: write a number and a unit, such as '10 seconds', "
                f"'5 minutes' or '500 ms'"
            )
        total += float(part[1]) * unit_ms
        at = part.end()
    return round(total)


def format_duration_ms(duration_ms: int) -> str:
    """The shortest exact way to write it, for people: `1 min 30 s`."""
    if duration_ms == 0:
        return "0 s"
    parts = []
    for unit, unit_ms in _SHOWN:
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def spark_interval(duration_ms: int) -> str:
    """As Spark's triggers and watermarks take it."""
    return f"{duration_ms} milliseconds"
