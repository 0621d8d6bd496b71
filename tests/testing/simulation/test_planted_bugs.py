"""The simulator finds deliberate mistakes in the node, each within a few seeds."""

import pytest

from tidelog.testing.simulation.exploration import run_range, run_seed_guarded
from tidelog.testing.simulation.planted_bugs import FOUND_WITHIN, PLANTED_BUGS


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED_BUGS) >= 12


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    # Clean without a bug: test_seeds.py runs them.
    findings = run_range(range(FOUND_WITHIN[name]), keep_going=False, bug=name)
    assert findings.failures, f"{name} was not found in {findings.seeds} seeds"
    (failure,) = findings.failures
    assert run_seed_guarded(failure.seed).is_good
