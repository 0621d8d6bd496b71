"""The faults of a round: planned from a seed before it begins, so that a round can be repeated.

Faults are in lanes. Those of one lane follow one another; lanes run side by side, so that a node is
killed while the network is split and a disk is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    KILL = "kill"  # kill -9 of some nodes, which start again
    KILL_ALL = "kill-all"
    PAUSE = "pause"  # SIGSTOP
    RESTART = "restart"  # a clean shutdown
    ROLLING_RESTART = "rolling-restart"
    ROLLING_UPGRADE = "rolling-upgrade"  # a rolling restart, from which on this source tree runs
    POWER_CUT = "power-cut"
    POWER_CUT_ALL = "power-cut-all"
    ISOLATE = "isolate"
    SPLIT = "split"
    ONE_WAY = "one-way"
    BRIDGE = "bridge"
    SLOW = "slow"  # packets are held up, overtake one another, and are lost
    FULL_DISK = "full-disk"
    CLOCK = "clock"  # a wall clock jumps, and back
    KILL_COPIER = "kill-copier"


LANES: dict[str, tuple[Kind, ...]] = {
    "process": (
        Kind.KILL,
        Kind.KILL_ALL,
        Kind.PAUSE,
        Kind.RESTART,
        Kind.ROLLING_RESTART,
        Kind.POWER_CUT,
        Kind.POWER_CUT_ALL,
    ),
    "network": (Kind.ISOLATE, Kind.SPLIT, Kind.ONE_WAY, Kind.BRIDGE, Kind.SLOW),
    "disk": (Kind.FULL_DISK,),
    "clock": (Kind.CLOCK,),
    "clients": (Kind.KILL_COPIER,),
}

# How often a kind is drawn within its lane, 1 unless named.
_WEIGHTS = {
    Kind.KILL: 4.0,
    Kind.PAUSE: 2.0,
    Kind.KILL_ALL: 0.5,
    Kind.POWER_CUT_ALL: 0.5,
    Kind.ROLLING_RESTART: 0.5,
}
_CLOCK_JUMPS_S = (-3600, -300, -5, 5, 300, 3600)

CONTROLLER = 0
"""In place of a node's number: whoever leads the metadata quorum when the fault begins."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from `at_s` on for `for_s`. `nodes` are those that are hit, in order."""

    lane: str
    kind: Kind
    at_s: float
    for_s: float
    nodes: tuple[int, ...] = ()
    amount: int = 0
    with_clients: bool = False

    def __str__(self) -> str:
        nodes = ",".join("controller" if node == CONTROLLER else str(node) for node in self.nodes)
        amount = f" {self.amount:+d}s" if self.kind is Kind.CLOCK else ""
        clients = " and clients" if self.with_clients else ""
        return (
            f"{self.at_s:.1f}s {self.kind} {nodes}{clients}{amount} for {self.for_s:.1f}s".replace(
                "  ", " "
            )
        )


def plan_faults(
    rng: random.Random, nodes: Sequence[int], span_s: float, kinds: frozenset[Kind]
) -> list[Fault]:
    """The faults of one round, by the time at which they begin."""
    planned: list[Fault] = []
    lanes = [lane for lane in LANES if kinds.intersection(LANES[lane])]
    for lane in lanes:
        # Every round has other lanes: a fault by itself finds other things than a storm.
        if len(lanes) > 1 and rng.random() < 0.35:
            continue
        planned += _lane(rng, lane, nodes, span_s, kinds)
    if not planned and lanes:
        planned += _lane(rng, lanes[0], nodes, span_s, kinds)
    if Kind.ROLLING_UPGRADE in kinds:
        planned = [fault for fault in planned if fault.lane != "process"]
        planned.append(Fault("process", Kind.ROLLING_UPGRADE, span_s * 0.2, 0.5, tuple(nodes)))
    return sorted(planned, key=lambda fault: fault.at_s)


def _lane(
    rng: random.Random, lane: str, nodes: Sequence[int], span_s: float, kinds: frozenset[Kind]
) -> Iterator[Fault]:
    possible = [kind for kind in LANES[lane] if kind in kinds]
    weights = [_WEIGHTS.get(kind, 1.0) for kind in possible]
    at_s = rng.uniform(0.5, 3.0)
    while at_s < span_s - 1:
        (kind,) = rng.choices(possible, weights)
        for_s = min(rng.choice((0.2, 1.0, 2.0, 4.0, 6.0)) * rng.uniform(0.7, 1.3), span_s - at_s)
        yield _fault(rng, lane, kind, at_s, for_s, nodes)
        at_s += for_s + rng.uniform(0.5, 4.0)


def _fault(
    rng: random.Random, lane: str, kind: Kind, at_s: float, for_s: float, nodes: Sequence[int]
) -> Fault:
    def some(most: int) -> tuple[int, ...]:
        return tuple(rng.sample(nodes, rng.randint(1, max(most, 1))))

    minority = (len(nodes) - 1) // 2
    one = rng.choice([*nodes, CONTROLLER])
    few = (one,) if rng.random() < 0.6 else some(minority + 1)
    match kind:
        case Kind.KILL_ALL | Kind.POWER_CUT_ALL | Kind.ROLLING_RESTART | Kind.ROLLING_UPGRADE:
            return Fault(lane, kind, at_s, for_s, tuple(rng.sample(nodes, len(nodes))))
        case Kind.KILL | Kind.PAUSE | Kind.RESTART | Kind.POWER_CUT:
            return Fault(lane, kind, at_s, for_s, few)
        case Kind.ISOLATE | Kind.ONE_WAY:
            return Fault(lane, kind, at_s, for_s, (one,), with_clients=rng.random() < 0.5)
        case Kind.SPLIT:
            return Fault(lane, kind, at_s, for_s, some(len(nodes) - 1))
        case Kind.BRIDGE:
            middle, *others = rng.sample(nodes, len(nodes))
            part = others[: max(len(others) // 2, 1)]
            return Fault(lane, kind, at_s, for_s, (middle, *part))
        case Kind.SLOW:
            return Fault(lane, kind, at_s, for_s, some(len(nodes)), rng.choice((5, 20, 100)))
        case Kind.CLOCK:
            return Fault(lane, kind, at_s, for_s, (one,), rng.choice(_CLOCK_JUMPS_S))
        case Kind.FULL_DISK:
            return Fault(lane, kind, at_s, for_s, few, rng.choice((0, 4096, 65536)))
        case Kind.KILL_COPIER:
            return Fault(lane, kind, at_s, for_s)


def resolved(nodes: Sequence[int], controller: Callable[[], int | None]) -> list[int]:
    """The numbers of the nodes, with who is the controller now."""
    found = []
    for node in nodes:
        number = controller() if node == CONTROLLER else node
        if number is not None and number not in found:
            found.append(number)
    return found
