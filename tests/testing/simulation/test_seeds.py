"""Fixed seeds of the simulator: a few hundred here, tens of thousands with `make simulate`."""

from collections import Counter
from functools import lru_cache

import pytest

from tidelog.testing.simulation.exploration import Findings, run_range

SLICE_SEEDS = 50
SLICES = range(0, 300, SLICE_SEEDS)

# What a few hundred seeds must have met: a check of faults that never struck would show nothing.
STRUCK = [
    "clean stops",
    "clients that did not read",
    "clients that sent ahead",
    "clients that vanished",
    "clients that vanished in a frame",
    "clock jumps",
    "connections cut",
    "connections stalled",
    "dripping connections",
    "full disks",
    "half-closed connections",
    "half-closed connections with answers",
    "kills",
    "kills in an operation",
    "late jobs",
    "late turns",
    "narrow connections",
    "power cuts",
    "read errors",
    "slow connections",
    "starts cut off",
    "stops with a power cut",
    "sync errors",
    "write errors",
]


@lru_cache(maxsize=len(SLICES))
def findings_from(first: int) -> Findings:
    return run_range(range(first, first + SLICE_SEEDS))


@pytest.mark.parametrize("first", SLICES)
def test_seeds_are_clean(first: int) -> None:
    findings = findings_from(first)
    assert findings.seeds == SLICE_SEEDS
    for failure in findings.failures:
        pytest.fail(
            f"seed {failure.seed} ({failure.options}):\n" + "\n".join(failure.what) + "\n"
            f"repeat: tidelog simulate --seed {failure.seed} --trace"
        )


def test_seeds_have_met_every_kind_of_fault() -> None:
    counts: Counter[str] = Counter()
    for first in SLICES:
        counts.update(findings_from(first).counts)
    assert [name for name in STRUCK if not counts[name]] == []
    assert counts["acknowledged"] > 50 * len(SLICES) * SLICE_SEEDS
    assert counts["polled"] > counts["acknowledged"]
    assert counts["lives"] > 2 * len(SLICES) * SLICE_SEEDS
    assert counts["long polls"] > 2 * len(SLICES) * SLICE_SEEDS
