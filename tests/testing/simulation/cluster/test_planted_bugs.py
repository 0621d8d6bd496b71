"""The simulator of clusters finds deliberate mistakes, each within a stated number of seeds."""

from functools import lru_cache

import pytest

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded, run_clusters
from tidelog.testing.simulation.cluster.planted_bugs import (
    FIRST_SEED,
    FOUND_WITHIN,
    PLANTED_BUGS,
)

FAILING_SEEDS: dict[str, int] = {
    "commit-without-the-last-in-sync-replica": 31,
    "commit-with-the-proposed-in-sync-set": 15,
    "commit-without-those-who-join": 21,
    "commit-below-min-insync-replicas": 15,
    "take-in-followers-that-lag": 32,
    "count-followers-at-the-leaders-end": 36,
    "report-what-is-not-synced": 31,
    "truncate-to-the-high-watermark": 26,
    "believe-the-leaders-high-watermark": 44,
    "trust-the-end-of-the-log-after-a-start": 15,
    "forget-producers-on-followers": 36,
    "stamp-no-leader-epoch": 6,
    "answer-when-the-leader-has-it": 15,
    "serve-what-is-not-committed": 31,
    "tell-the-end-before-the-epoch-start": 15,
    "serve-open-transactions": 19,
    "vote-without-persisting": 43,
    "answer-before-metadata-is-committed": 62,
    "publish-before-the-commit": 31,
    "keep-eligible-leader-replicas": 19,
    "elect-outside-the-in-sync-set": 31,
    "elect-uncleanly-unasked": 32,
    "elect-without-a-new-epoch": 31,
    "leave-partitions-of-a-broker-that-goes": 50,
    "leave-partitions-without-a-leader": 41,
    "hand-out-producer-ids-twice": 36,
    "answer-before-the-state-is-committed": 13,
    "serve-a-partition-that-has-moved": 20,
    "serve-a-partition-before-it-is-loaded": 13,
    "load-transactions-without-the-last-batch": 19,
    "load-groups-without-the-last-batch": 43,
    "append-without-asking-the-coordinator": 28,
    "forget-partitions-of-a-transaction": 41,
    "let-zombies-go-on": 41,
    "forget-offsets-of-transactions": 41,
}
"""For most of them a seed that finds it soon; the search for all takes minutes."""


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_WITHIN) == set(PLANTED_BUGS)
    assert set(FAILING_SEEDS) <= set(PLANTED_BUGS)
    assert len(PLANTED_BUGS) >= 31


@lru_cache
def is_clean(seed: int) -> bool:
    return run_cluster_guarded(seed).is_good


@pytest.mark.parametrize("name", FAILING_SEEDS)
def test_planted_bug_fails_a_seed_that_is_good_without_it(name: str) -> None:
    seed = FAILING_SEEDS[name]
    assert not run_cluster_guarded(seed, bug=name).is_good
    assert is_clean(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + FOUND_WITHIN[name])
    findings = run_clusters(seeds, keep_going=False, bug=name)
    assert findings.failures, f"{name} was not found in {findings.seeds} seeds"
    (failure,) = findings.failures
    assert is_clean(failure.seed)
