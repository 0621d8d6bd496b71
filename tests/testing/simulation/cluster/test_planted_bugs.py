"""The simulator of clusters finds deliberate mistakes, each within a stated number of seeds."""

import pytest

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded, run_clusters
from tidelog.testing.simulation.cluster.planted_bugs import PLANTED_BUGS

FIRST_SEED = 5
FOUND_WITHIN = {
    "commit-without-the-last-in-sync-replica": 20,
    "report-what-is-not-synced": 20,
    "vote-without-persisting": 20,
    "serve-what-is-not-committed": 20,
    "take-in-followers-that-lag": 20,
    "elect-outside-the-in-sync-set": 20,
}


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_WITHIN) == set(PLANTED_BUGS)


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + FOUND_WITHIN[name])
    findings = run_clusters(seeds, keep_going=False, bug=name)
    assert findings.failures, f"{name} was not found in {findings.seeds} seeds"
    (failure,) = findings.failures
    assert run_cluster_guarded(failure.seed).is_good
