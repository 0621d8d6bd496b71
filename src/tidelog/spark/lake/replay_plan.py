"""What a replay reads and where it goes, decided once and kept beside its checkpoint.

The same replay that is started again must read the same: the lake may have grown meanwhile, so the
ranges are written down before the first record is sent.
"""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tidelog.spark.errors import OptionError
from tidelog.spark.lake.bounds import Bound, bound_text, microseconds
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.reading import LakeTable, TimeRange

Partitions = Literal["same", "by-key"]
PARTITIONS: tuple[Partitions, ...] = ("same", "by-key")

_FILE = "replay.json"


class ReplayRequest(msgspec.Struct, frozen=True):
    """What was asked for; a replay that is started again must ask for the same."""

    lake: str
    topic: str
    to_topic: str
    start: str | None
    end: str | None
    partitions: Partitions
    timestamp_header: str | None


class ReplayPlan(msgspec.Struct, frozen=True):
    """The request and what it came to; `ranges` are [start, end) by partition."""

    request: ReplayRequest
    ranges: dict[int, tuple[int, int]]
    start_us: int | None
    end_us: int | None

    @property
    def times(self) -> TimeRange | None:
        if self.start_us is None and self.end_us is None:
            return None
        everything = TimeRange()
        return TimeRange(
            everything.start_us if self.start_us is None else self.start_us,
            everything.end_us if self.end_us is None else self.end_us,
        )


def make_request(
    lake: LakeTable,
    topic: str,
    to_topic: str,
    *,
    start: Bound | None,
    end: Bound | None,
    partitions: str,
    timestamp_header: str | None,
) -> ReplayRequest:
    """Check and put down what is asked for."""
    for each in PARTITIONS:
        if each == partitions:
            return ReplayRequest(
                str(lake.table.root),
                topic,
                to_topic,
                bound_text(start),
                bound_text(end),
                each,
                timestamp_header,
            )
    raise OptionError(f"partitions: {partitions!r} is not one of {', '.join(PARTITIONS)}")


def plan_replay(
    request: ReplayRequest,
    coverage: Mapping[int, tuple[int, int]],
    start: Bound | None,
    end: Bound | None,
) -> ReplayPlan:
    """The ranges of a topic's coverage that are within the bounds.

    Offsets cut the ranges, moments choose records within them: timestamps need not ascend.
    """
    if not coverage:
        raise LakeError(f"the lake at {request.lake} holds nothing of the topic {request.topic}")
    ranges = {}
    for partition, (first, last) in coverage.items():
        low = max(first, start) if isinstance(start, int) else first
        high = min(last, end) if isinstance(end, int) else last
        ranges[partition] = (low, max(low, high))
    return ReplayPlan(
        request,
        ranges,
        start_us=None if start is None or isinstance(start, int) else microseconds(start),
        end_us=None if end is None or isinstance(end, int) else microseconds(end),
    )


def kept_plan(folder: Path, plan: ReplayPlan) -> ReplayPlan:
    """The plan that the replay in this folder was begun with, which is this one if it is new."""
    path = folder / _FILE
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{_FILE}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(msgspec.json.encode(plan))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)
    kept = decode_plan(path.read_bytes())
    if kept.request != plan.request:
        raise OptionError(
            f"replay-id: the replay in {folder} was begun with {_differences(kept, plan)}. "
            "Give another --replay-id, or what it was begun with"
        )
    return kept


def encode_plan(plan: ReplayPlan) -> str:
    return msgspec.json.encode(plan).decode()


def decode_plan(text: str | bytes) -> ReplayPlan:
    return msgspec.json.decode(text, type=ReplayPlan)


def _differences(kept: ReplayPlan, plan: ReplayPlan) -> str:
    return ", ".join(
        f"{name}={getattr(kept.request, name)!r}"
        for name in ReplayRequest.__struct_fields__
        if getattr(kept.request, name) != getattr(plan.request, name)
    )
