"""Fixed seeds of clusters: a few dozen here, thousands with `make simulate-cluster`."""

from functools import lru_cache

import pytest

from tidelog.testing.simulation.cluster.exploration import (
    MET_PER_HUNDRED_SEEDS,
    missing,
    run_clusters,
)
from tidelog.testing.simulation.exploration import Findings

SLICE_SEEDS = 10
SLICES = range(20, 50, SLICE_SEEDS)

# What a few dozen seeds must have met: a check of faults that never struck would show nothing.
MET = [
    *MET_PER_HUNDRED_SEEDS,
    "clean stops",
    "clock jumps",
    "connections cut",
    "connections stalled",
    "full disks",
    "kills in an operation",
    "late jobs",
    "late turns",
    "long polls",
    "read errors",
    "sync errors",
    "write errors",
]


@lru_cache(maxsize=len(SLICES))
def findings_from(first: int) -> Findings:
    return run_clusters(range(first, first + SLICE_SEEDS))


@pytest.mark.parametrize("first", SLICES)
def test_seeds_are_clean(first: int) -> None:
    findings = findings_from(first)
    assert findings.seeds == SLICE_SEEDS
    for failure in findings.failures:
        pytest.fail(
            f"seed {failure.seed} ({failure.options}):\n" + "\n".join(failure.what) + "\n"
            f"repeat: tidelog simulate --cluster --seed {failure.seed} --trace"
        )


def test_seeds_have_met_everything() -> None:
    total = Findings()
    for first in SLICES:
        total.merge(findings_from(first))
    assert [name for name in MET if not total.counts[name]] == []


def test_a_run_that_met_too_little_is_told() -> None:
    nothing = Findings(seeds=100)
    assert len(missing(nothing)) == len(MET_PER_HUNDRED_SEEDS)
    enough = Findings(seeds=199)
    enough.counts.update(MET_PER_HUNDRED_SEEDS)
    assert missing(enough) == []
    assert missing(Findings(seeds=99)) == []
