"""Where to start or end in a topic: words, offsets and times on the command line."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click

_AGO = re.compile(r"^-(\d+)(ms|s|m|h|d)$")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(slots=True, frozen=True)
class Position:
    """One of: the beginning, the end, `tail` records before the end, an offset, a time."""

    word: str | None = None
    tail: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_position(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Position | None:
    """A click callback: beginning, end, an offset, ~N before the end, or a time.

    A time is an ISO date (2026-01-31T12:00:00Z; without a zone it is local), @ and milliseconds,
    or how long ago (-15m, -2h, -1d).
    """
    if value is None:
        return None
    text = value.strip()
    if text in ("beginning", "earliest"):
        return Position(word="beginning")
    if text in ("end", "latest"):
        return Position(word="end")
    if text.isdigit():
        return Position(offset=int(text))
    if text.startswith("~") and text[1:].isdigit():
        return Position(tail=int(text[1:]))
    if text.startswith("@") and text[1:].isdigit():
        return Position(timestamp_ms=int(text[1:]))
    if ago := _AGO.match(text):
        span = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return Position(timestamp_ms=_to_ms(datetime.now(UTC) - span))
    try:
        return Position(timestamp_ms=_to_ms(datetime.fromisoformat(text).astimezone()))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no position: use beginning, end, an offset, ~N (N before the end), "
            f"@MILLISECONDS, a date such as 2026-01-31T12:00:00Z, or -15m"
        ) from None


def _to_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
