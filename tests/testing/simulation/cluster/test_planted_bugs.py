"""The simulator of clusters finds deliberate mistakes, each within a stated number of seeds."""

from collections.abc import Iterable
from functools import lru_cache

import pytest

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded, run_clusters
from tidelog.testing.simulation.cluster.planted_bugs import (
    FIRST_SEED,
    FOUND_WITHIN,
    PLANTED_BUGS,
)

LIKELY_SEEDS: dict[str, int] = {
    "commit-without-the-last-in-sync-replica": 6,
    "commit-with-the-proposed-in-sync-set": 26,
    "commit-without-those-who-join": 15,
    "commit-below-min-insync-replicas": 8,
    "take-in-followers-that-lag": 7,
    "count-followers-at-the-leaders-end": 7,
    "report-what-is-not-synced": 5,
    "truncate-to-the-high-watermark": 7,
    "append-behind-what-diverges": 15,
    "cut-one-batch-too-few": 9,
    "believe-the-leaders-high-watermark": 6,
    "trust-the-end-of-the-log-after-a-start": 6,
    "forget-producers-on-followers": 8,
    "keep-producers-over-a-truncation": 27,
    "keep-producers-of-an-emptied-log": 6,
    "stamp-no-leader-epoch": 31,
    "obey-images-of-older-epochs": 5,
    "answer-when-the-leader-has-it": 6,
    "serve-above-high-watermark": 5,
    "tell-the-end-before-the-epoch-start": 27,
    "serve-open-transactions": 6,
    "vote-without-persisting": 11,
    "answer-before-metadata-is-committed": 28,
    "publish-before-the-commit": 5,
    "keep-what-did-not-commit": 28,
    "follow-the-metadata-before-the-commit": 5,
    "accept-isr-changes-at-old-partition-epochs": 7,
    "accept-isr-changes-of-leaders-before": 74,
    "forget-eligible-leader-replicas": 5,
    "keep-eligible-leader-replicas": 7,
    "elect-outside-the-in-sync-set": 6,
    "elect-fenced-brokers": 5,
    "elect-uncleanly-unasked": 11,
    "elect-without-a-new-epoch": 5,
    "leave-partitions-of-a-broker-that-goes": 17,
    "leave-partitions-without-a-leader": 6,
    "let-sessions-last-for-ever": 18,
    "hand-out-producer-ids-twice": 7,
    "answer-before-the-state-is-committed": 6,
    "serve-a-partition-that-has-moved": 6,
    "serve-a-partition-before-it-is-loaded": 6,
    "load-transactions-without-the-last-batch": 19,
    "load-groups-without-the-last-batch": 18,
    "forget-markers-at-takeover": 7,
    "take-markers-as-written-that-nobody-answers": 42,
    "write-markers-before-the-decision-is-committed": 6,
    "take-markers-of-deposed-coordinators": 17,
    "append-without-asking-the-coordinator": 6,
    "forget-partitions-of-a-transaction": 6,
    "let-zombies-go-on": 17,
    "forget-offsets-of-transactions": 7,
    "forget-ends-of-transactions-at-takeover": 17,
}
"""Where each was found first when this was written: tried before the others. A change of the code
changes what seeds do, and then the search goes on with the seeds from the first on."""


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_WITHIN) == set(PLANTED_BUGS)
    assert set(LIKELY_SEEDS) == {name for name, bound in FOUND_WITHIN.items() if bound <= 120}
    assert len(PLANTED_BUGS) >= 53


@lru_cache
def is_clean(seed: int) -> bool:
    return run_cluster_guarded(seed).is_good


@pytest.mark.parametrize("name", LIKELY_SEEDS)
def test_planted_bug_fails_a_seed_that_is_good_without_it(name: str) -> None:
    assert is_found(name, [LIKELY_SEEDS[name], *seeds_of(name)])


def seeds_of(name: str) -> range:
    return range(FIRST_SEED, FIRST_SEED + FOUND_WITHIN[name])


def is_found(name: str, seeds: Iterable[int]) -> bool:
    findings = run_clusters(seeds, keep_going=False, bug=name)
    return any(is_clean(failure.seed) for failure in findings.failures)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    assert is_found(name, seeds_of(name))
