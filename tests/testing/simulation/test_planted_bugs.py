"""The simulator finds deliberate mistakes in the node, each within a few seeds."""

import pytest

from tidelog.testing.simulation.exploration import run_range, run_seed_guarded
from tidelog.testing.simulation.planted_bugs import PLANTED_BUGS

# Clean without a bug: test_seeds.py runs them.
SEEDS = range(60)
SEEDS_FOR_RARE = range(200)
# These need a bit flipped in just the right sector, a power cut within a millisecond, or a disk
# that is full or fails just when metadata is written.
RARE = {
    "skip-crc-in-recovery",
    "serve-above-high-watermark",
    "ignore-failed-sync",
    "keep-what-did-not-commit",
    "forget-proposals-that-fail",
}


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED_BUGS) >= 12


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    seeds = SEEDS_FOR_RARE if name in RARE else SEEDS
    findings = run_range(seeds, keep_going=False, bug=name)
    assert findings.failures, f"{name} was not found in {findings.seeds} seeds"
    (failure,) = findings.failures
    assert run_seed_guarded(failure.seed).is_good
