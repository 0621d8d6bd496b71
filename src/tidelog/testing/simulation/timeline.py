"""The trace of a seed as a person can read it: what happened to whom, without the chatter.

A moment is a line of the trace with its kind. In the text each node has a column: `|` while it
runs, `L` while it leads the quorum, `=` while it stands still, nothing while it is down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

_LINE = re.compile(r"\s*(\d+\.\d+)  (\S+)\s+(.*)", re.DOTALL)
_PAUSE = re.compile(r"stands still for ([\d.]+) ms")
_LEADER = re.compile(r"quorum_leader leader=(-?\d+) epoch=(\d+)")
_TEXT_WIDTH = 150


class Kind(StrEnum):
    """What a moment is about."""

    PROBLEM = "problem"
    FAULT = "fault"
    LIFE = "life"
    QUORUM = "quorum"
    REPLICATION = "replication"
    OPERATOR = "operator"
    SCENARIO = "scenario"
    CLIENT = "client"
    OTHER = "other"


SHOWN = frozenset(Kind) - {Kind.CLIENT, Kind.OTHER}
"""What the text tells of."""

_OF_NODES: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (Kind.LIFE, ("starts, life", "does not start", "does not get to the end", "has stopped")),
    (Kind.LIFE, ("is down", "is asked to stop", "node_started", "ends:", "for good", "comes back")),
    (Kind.FAULT, ("loses power", "is killed", "stands still", "clock jumps", "meets an error")),
    (Kind.FAULT, ("bytes left on its disk", "has room on its disk", "is rebooted")),
    (Kind.QUORUM, ("quorum_leader", "voter_added", "broker_fenced", "unfenced", " fenced ")),
    (Kind.REPLICATION, ("isr_proposed", "isr_change_refused", "replica_truncated")),
    (Kind.REPLICATION, ("unclean_leader_election", "replica_stopped", "marker_refused")),
)


@dataclass(slots=True, frozen=True)
class Moment:
    """One line of the trace."""

    time_s: float
    who: str
    what: str
    kind: Kind


@dataclass(slots=True)
class Lane:
    """A node over time: from when to when it was up, stood still, and led the quorum."""

    name: str
    up: list[tuple[float, float]] = field(default_factory=list)
    paused: list[tuple[float, float]] = field(default_factory=list)
    led: list[tuple[float, float]] = field(default_factory=list)


def moments(trace: Iterable[str], failures: Sequence[str] = ()) -> list[Moment]:
    """All that the trace tells; at its end what is wrong."""
    found = []
    for line in trace:
        match = _LINE.match(line)
        if match is not None:
            time_s, who, what = float(match[1]), match[2], match[3]
            found.append(Moment(time_s, who, what, _kind_of(who, what)))
    end_s = found[-1].time_s if found else 0.0
    for failure in failures:
        last_line = failure.strip().splitlines()[-1]
        found.append(Moment(end_s, "failure", last_line, Kind.PROBLEM))
    return found


def _kind_of(who: str, what: str) -> Kind:
    if who == "invariants":
        return Kind.PROBLEM
    if who in ("network", "faults"):
        return Kind.FAULT
    if who == "scenario":
        return Kind.SCENARIO
    if who.startswith("operator"):
        return Kind.OPERATOR
    if not is_node(who):
        return Kind.CLIENT
    for kind, signs in _OF_NODES:
        if any(sign in f"{what} " for sign in signs):
            return kind
    return Kind.OTHER


def is_node(who: str) -> bool:
    return who.startswith("node-")


def node_names(found: Iterable[Moment]) -> list[str]:
    names = {moment.who for moment in found if is_node(moment.who)}
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]))


def lanes(found: Sequence[Moment]) -> list[Lane]:
    """Of every node, from its lines of the trace."""
    end_s = found[-1].time_s if found else 0.0
    return [
        _lane(name, [each for each in found if each.who == name], end_s)
        for name in node_names(found)
    ]


def _lane(name: str, found: Sequence[Moment], end_s: float) -> Lane:
    lane = Lane(name)
    node_id = name.rpartition("-")[2]
    up_since = led_since = None
    for moment in found:
        time_s, what = moment.time_s, moment.what
        if "starts, life" in what and up_since is None:
            up_since = time_s
        if _goes_down(what) and up_since is not None:
            lane.up.append((up_since, time_s))
            up_since = None
        leader = _LEADER.search(what)
        leads = leader is not None and leader[1] == node_id
        if led_since is not None and (_goes_down(what) or (leader is not None and not leads)):
            lane.led.append((led_since, time_s))
            led_since = None
        if leads and led_since is None:
            led_since = time_s
        pause = _PAUSE.search(what)
        if pause is not None:
            lane.paused.append((time_s, min(time_s + float(pause[1]) / 1000, end_s)))
    if up_since is not None:
        lane.up.append((up_since, end_s))
    if led_since is not None:
        lane.led.append((led_since, end_s))
    return lane


def _goes_down(what: str) -> bool:
    signs = ("is killed", "loses power", "has stopped", "does not start", "does not get to the end")
    return what == "is down" or any(what.startswith(sign) for sign in signs)


def tell(found: Sequence[Moment], shown: frozenset[Kind] = SHOWN) -> Iterator[str]:
    """The lines of the text."""
    columns = lanes(found)
    yield "    time  " + " ".join(f"{lane.name.rpartition('-')[2]:>2}" for lane in columns)
    for moment in found:
        if moment.kind not in shown:
            continue
        marks = " ".join(f" {_mark(lane, moment.time_s)}" for lane in columns)
        sign = "!!" if moment.kind is Kind.PROBLEM else "  "
        line = f"{moment.time_s:8.3f}  {marks} {sign}{moment.who:<11} {moment.what}"
        yield line if moment.kind is Kind.PROBLEM else line[:_TEXT_WIDTH]


def _mark(lane: Lane, time_s: float) -> str:
    for spans, mark in ((lane.paused, "="), (lane.led, "L"), (lane.up, "|")):
        if any(begin <= time_s < end or begin == time_s == end for begin, end in spans):
            return mark
    return "|" if lane.up and lane.up[-1][1] == time_s else " "
