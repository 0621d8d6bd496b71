"""Runs many seeds of clusters, one after the other; `simulation.exploration` spreads them."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.testing.simulation.cluster.planted_bugs import planted
from tidelog.testing.simulation.cluster.scenario import run_cluster
from tidelog.testing.simulation.exploration import (
    Findings,
    collecting_by_hand,
    quiet_logging,
    time_limit,
)
from tidelog.testing.simulation.result import Result

RANGE_SEEDS = 10
WALL_S_MAX = 300.0
_COLLECT_EVERY_SEEDS = 2

MET_PER_HUNDRED_SEEDS = {
    "acknowledged": 10_000,
    "polled": 10_000,
    "comparisons": 50_000,
    "lives": 500,
    "quorum elections": 120,
    "leader changes": 200,
    "in-sync sets shrunk": 300,
    "in-sync sets grown": 300,
    "truncations": 10,
    "power cuts": 50,
    "kills": 30,
    "pauses": 30,
    "isolating partitions": 5,
    "splitting partitions": 5,
    "one-way partitions": 5,
    "bridge partitions": 5,
    "slow links": 10,
    "deliveries after a connection was given up": 100,
    "eligible leader replicas": 100,
    "settings changed": 100,
    "operator moves replicas": 10,
    "operator replaces a voter": 8,
    "operator elects preferred leaders": 4,
    "operator adds a node": 3,
    "operator drains and removes a node": 3,
    "operator changes a feature": 2,
    "operator throttles replicas": 30,
    "runs without a minority": 3,
    "disks that stay full": 5,
    "operator raises all features": 3,
    "internal topics that grew": 5,
    "unclean elections told": 10,
    "held proposals of in-sync sets": 5,
    "aborts with a batch on its way": 10,
    "markers of transactions": 200,
    "decisions about partitions": 1000,
}
"""What so many seeds meet at least: a run in which less happens has shown less than it seems."""


def run_cluster_guarded(
    seed: int,
    *,
    keeps_trace: bool = False,
    bug: str | None = None,
    without: frozenset[int] = frozenset(),
    wall_s_max: float = WALL_S_MAX,
) -> Result:
    """Runs one seed, with a planted bug if one is named, and sees that it ends."""
    with quiet_logging(), planted(bug), time_limit(wall_s_max):
        return run_cluster(seed, keeps_trace=keeps_trace, without=without)


def run_clusters(
    seeds: Iterable[int], *, keep_going: bool = True, bug: str | None = None
) -> Findings:
    """Runs seeds in this process, up to the first failure or all of them."""
    findings = Findings()
    with collecting_by_hand() as collect:
        for count, seed in enumerate(seeds, 1):
            findings.add(run_cluster_guarded(seed, bug=bug))
            if findings.failures and not keep_going:
                break
            if count % _COLLECT_EVERY_SEEDS == 0:
                collect()
    return findings


def missing(findings: Findings) -> list[str]:
    """What a run has met too little of, by name; nothing is asked of a few seeds."""
    hundreds = findings.seeds // 100
    return [
        f"{name} {findings.counts[name]} (at least {least * hundreds})"
        for name, least in MET_PER_HUNDRED_SEEDS.items()
        if findings.counts[name] < least * hundreds
    ]
