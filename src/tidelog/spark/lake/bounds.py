"""Where a replay begins and ends: an offset, or a moment."""

import re
from datetime import UTC, datetime, timedelta

from tidelog.spark.errors import OptionError

Bound = int | datetime
"""An offset in every partition, or a timestamp with its time zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_bound(text: str, *, option: str) -> Bound:
    """A whole number is an offset; otherwise an ISO date or time, in UTC unless it says."""
    if re.fullmatch(r"\d{1,19}", text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"{option}: {text!r} is neither an offset nor a time such as 2026-11-05T13:00:00Z"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def bound_text(bound: Bound | None) -> str | None:
    """A bound as it can be parsed again."""
    return (
        None if bound is None else bound.isoformat() if isinstance(bound, datetime) else str(bound)
    )


def microseconds(moment: datetime) -> int:
    """Since the epoch, as timestamps of records are kept in a lake."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
