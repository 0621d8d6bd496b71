"""Many seeds: what fails is told with its seed, and nothing hangs."""

import pytest

from tidelog.testing.simulation import simulation
from tidelog.testing.simulation.exploration import explore, ranges_of, run_range
from tidelog.testing.simulation.scenario import Scenario


def test_workers_run_every_seed_once() -> None:
    found = list(explore(ranges_of(10, 25), jobs=2))
    assert sorted(findings.seeds for findings in found) == [5, 20]
    assert all(not findings.failures for findings in found)


def test_ranges_cover_all_seeds_in_order() -> None:
    assert [seed for each in ranges_of(7, 45) for seed in each] == list(range(7, 52))


def test_exploration_stops_at_the_first_failure() -> None:
    found = list(explore(ranges_of(0, 2000), jobs=2, bug="forget-long-polls"))
    failures = [failure for findings in found for failure in findings.failures]
    assert failures
    assert sum(findings.seeds for findings in found) < 200


def test_exploration_keeps_going_when_told_to() -> None:
    (findings,) = explore(ranges_of(0, 3), jobs=1, bug="forget-long-polls", keep_going=True)
    assert [failure.seed for failure in findings.failures] == [0, 1, 2]


def test_a_seed_that_raises_has_failed_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_scenario: Scenario) -> None:
        raise KeyError("a bug of the simulator")

    monkeypatch.setattr(Scenario, "_run", broken)
    (failure,) = run_range([3]).failures
    assert failure.seed == 3
    assert "KeyError: 'a bug of the simulator'" in failure.what[0]
    assert "Traceback" in failure.what[0]


def test_a_seed_without_an_end_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "EVENTS_MAX", 100)
    (failure,) = run_range([3]).failures
    assert "more than 100 events" in failure.what[0]


def test_a_seed_that_hangs_has_failed_with_where_it_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(_scenario: Scenario) -> None:
        while True:
            pass

    monkeypatch.setattr(Scenario, "_run", hanging)
    (failure,) = run_range([3], wall_s_max=0.05).failures
    assert "more than 0.05 s" in failure.what[0]
    assert "hanging" in failure.what[0]
