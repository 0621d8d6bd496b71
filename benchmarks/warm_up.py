"""Load both brokers alike until their figures stand still.

A JVM compiles what it runs often, and Kafka's CPU seconds a GB fall for a minute or more under
load; what is measured before that says how a broker starts, not how it runs. So both take slices of
the same load, all shapes of it, in turns. A broker stands still when the median of its last slices
is close to that of the slices before them, for every figure: a median because one slow moment of
the machine is not a trend. Rates may differ more than CPU times, because the client shares the
machine; what waits for an fsync is the disk's time and does not count.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.scenarios import SCENARIOS, Figures, Session, Sizes

SHAPES = tuple(
    SCENARIOS[name] for name in ("produce", "consume", "ten", "small", "one-record", "fsync-small")
)
SLICE = Sizes(bulk_records=300_000, fsync_records=20_000, seconds=1.0)
SLICES_COMPARED = 3
CPU_DRIFT_MAX = 0.05
RATE_DRIFT_MAX = 0.10


@dataclass(slots=True)
class WarmUp:
    """How the warm-up went: seconds it took, and for each broker its slices."""

    seconds: float = 0.0
    slices: dict[str, list[Figures]] = field(default_factory=dict)

    def drifts(self, name: str) -> dict[str, float]:
        """How far each figure has moved of late; empty before there are enough slices."""
        return drifts(self.slices.get(name, []))

    def stands_still(self, name: str) -> bool:
        found = self.drifts(name)
        return bool(found) and all(
            abs(drift) <= (CPU_DRIFT_MAX if "CPU" in figure else RATE_DRIFT_MAX)
            for figure, drift in found.items()
        )

    def summary(self) -> str:
        """How long it took, and which brokers stood still at its end."""
        told = []
        for name, slices in self.slices.items():
            found = self.drifts(name)
            if not found:
                told.append(f"{name}: {len(slices)} slices, too few to tell")
                continue
            worst = max(found, key=lambda figure: abs(found[figure]))
            state = "stood still" if self.stands_still(name) else "DID NOT STAND STILL"
            told.append(
                f"{name} {state} after {len(slices)} slices (most drift {found[worst]:+.1%}, "
                f"{worst})"
            )
        return f"Warmed up for {self.seconds:.0f} s. {'; '.join(told)}."


def drifts(slices: list[Figures]) -> dict[str, float]:
    """For each figure the median of the last slices beside that of as many before, minus one."""
    if len(slices) < 2 * SLICES_COMPARED:
        return {}
    last, before = slices[-SLICES_COMPARED:], slices[-2 * SLICES_COMPARED : -SLICES_COMPARED]
    return {
        figure: _median(last, figure) / _median(before, figure) - 1
        for figure in last[0]
        if not figure.startswith("fsync") and _median(before, figure)
    }


def _median(slices: list[Figures], figure: str) -> float:
    return statistics.median(each[figure] for each in slices)


def warm_up(
    sessions: list[Session],
    seconds_max: float,
    tell: Callable[[str, Figures], None],
    shapes: Sequence[Callable[[Session], Figures]] = SHAPES,
    size: Sizes = SLICE,
) -> WarmUp:
    """Slices of load on each broker in turn until all stand still or the time is up."""
    result = WarmUp(slices={session.broker.name: [] for session in sessions})
    started = time.monotonic()
    while (result.seconds or 1e-9) < seconds_max:
        for session in sessions:
            name = session.broker.name
            figures = _slice(session, shapes, size)
            result.slices[name].append(figures)
            tell(name, figures)
        result.seconds = time.monotonic() - started
        if all(result.stands_still(session.broker.name) for session in sessions):
            break
    return result


def _slice(
    session: Session, shapes: Sequence[Callable[[Session], Figures]], size: Sizes
) -> Figures:
    sizes, session.sizes = session.sizes, size
    figures: Figures = {}
    try:
        for shape in shapes:
            figures |= shape(session)
    finally:
        session.sizes = sizes
        session.delete_topics()
    return figures
