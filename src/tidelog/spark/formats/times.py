"""Dates and times as texts have them: ISO 8601.

Arrow's casts read whole columns; where one stops, each text is read by itself, with the same
answers for all that Arrow takes.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

_UTC = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_MICROS_PER_DAY = 86_400_000_000
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def dates(texts: pa.Array) -> pa.Array:
    """Texts as dates; raises ValueError for one that is none."""
    try:
        return texts.cast(pa.date32())
    except pa.ArrowInvalid:
        days = [None if text is None else parse_date(text) for text in texts.to_pylist()]
        return pa.array(days, pa.int32()).view(pa.date32())


def timestamps(texts: pa.Array, *, are_local: bool) -> pa.Array:
    """Texts as moments, or as what a clock shows (`are_local`); raises ValueError."""
    for written in (_LOCAL,) if are_local else (_UTC, _LOCAL):
        try:
            read = texts.cast(written)
        except pa.ArrowInvalid:
            continue
        return read if are_local else read.view(_UTC)
    micros = [
        None if text is None else parse_timestamp(text, may_have_zone=not are_local)
        for text in texts.to_pylist()
    ]
    return pa.array(micros, pa.int64()).view(_LOCAL if are_local else _UTC)


class DateTextColumn:
    """Dates, as texts."""

    def __init__(self) -> None:
        self.spark_type = DateType()

    def build(self, values: Sequence[Any]) -> pa.Array:
        return dates(pa.array(values, pa.string()))


class TimestampTextColumn:
    """Moments, as texts."""

    def __init__(self, spark_type: TimestampType | TimestampNTZType) -> None:
        self.spark_type = spark_type

    def build(self, values: Sequence[Any]) -> pa.Array:
        are_local = isinstance(self.spark_type, TimestampNTZType)
        return timestamps(pa.array(values, pa.string()), are_local=are_local)


@lru_cache(4096)
def parse_date(text: str) -> int:
    """`2026-01-31` as days since 1970; raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no date such as 2026-01-31")
    year, month, day = (int(part) for part in match.groups())
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS_IN_MONTH[month - 1] + (month == 2 and is_leap):
        raise ValueError(f"{text!r} is no day of the calendar")
    # datetime has no year 0, Arrow and Spark have: count in the calendar that begins in March,
    # whose leap day is the last of its year.
    shifted = year - (month <= 2)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + day_of_year
    return days - 719_468


def parse_timestamp(text: str, *, may_have_zone: bool = True) -> int:
    """A moment as microseconds since 1970; raises ValueError.

    `2026-01-31`, `2026-01-31T12:30`, `2026-01-31 12:30:15.123456+01:00`: a text without a zone is
    UTC, digits beyond microseconds are cut off.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time such as 2026-01-31T12:30:15Z")
    date, hour, minute, second, fraction, zone = match.groups(default="")
    time_of_day = [int(part or 0) for part in (hour, minute, second)]
    if time_of_day[0] > 23 or time_of_day[1] > 59 or time_of_day[2] > 59:
        raise ValueError(f"{text!r} has a time that no clock shows")
    if zone and not (may_have_zone and hour):
        raise ValueError(f"{text!r} has a zone, which does not belong there")
    seconds = time_of_day[0] * 3600 + time_of_day[1] * 60 + time_of_day[2] - _zone_seconds(zone)
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    return parse_date(date) * _MICROS_PER_DAY + seconds * 1_000_000 + micros


def _zone_seconds(zone: str) -> int:
    if zone in ("", "Z"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(f"{zone!r} is no zone")
    seconds = hours * 3600 + minutes * 60
    return -seconds if zone[0] == "-" else seconds
