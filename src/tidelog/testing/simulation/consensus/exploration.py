"""Runs many schedules of the quorum, one after the other; `simulation.exploration` spreads them."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.testing.simulation.consensus.planted_bugs import planted
from tidelog.testing.simulation.consensus.schedule import run_schedule
from tidelog.testing.simulation.exploration import Findings, collecting_by_hand, time_limit
from tidelog.testing.simulation.result import Result

RANGE_SEEDS = 1_000
"""So many schedules a worker takes at once."""
WALL_S_MAX = 60.0
_COLLECT_EVERY_SEEDS = 50


def run_schedule_guarded(seed: int, *, keeps_trace: bool = False, bug: str | None = None) -> Result:
    """Runs one schedule, with a planted bug if one is named, and sees that it ends."""
    with planted(bug), time_limit(WALL_S_MAX):
        return run_schedule(seed, keeps_trace=keeps_trace)


def run_schedules(
    seeds: Iterable[int], *, keep_going: bool = True, bug: str | None = None
) -> Findings:
    """Runs schedules in this process, up to the first failure or all of them."""
    findings = Findings()
    with collecting_by_hand() as collect, planted(bug):
        for count, seed in enumerate(seeds, 1):
            with time_limit(WALL_S_MAX):
                findings.add(run_schedule(seed))
            if findings.failures and not keep_going:
                break
            if count % _COLLECT_EVERY_SEEDS == 0:
                collect()
    return findings
