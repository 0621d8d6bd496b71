"""Faults as a list of events: what is left out changes nothing about the others."""

from random import Random

from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.simulation import Simulation


def struck(without: frozenset[int] = frozenset()) -> dict[str, float]:
    simulation = Simulation(7)
    events = FaultEvents(simulation, without)
    drawn: dict[str, float] = {}
    for number in range(4):

        def strike(random: Random, what: str = f"blow {number}") -> None:
            drawn[what] = random.random()

        events.at(1000 * (4 - number), "node-1", f"blow {number}", strike)
    simulation.run_until(10_000)
    assert [event.what for event in events.struck()] == [
        f"blow {number}" for number in range(4) if number not in without
    ]
    return drawn


def test_an_event_that_is_left_out_takes_its_random_numbers_along() -> None:
    everything = struck()
    assert len(set(everything.values())) == 4
    fewer = struck(frozenset({0, 2}))
    assert fewer == {name: value for name, value in everything.items() if name[-1] in "13"}


def test_what_has_not_struck_yet_is_not_told() -> None:
    simulation = Simulation(7)
    events = FaultEvents(simulation)
    events.at(5, "node-1", "early", lambda random: None)
    events.at(50, "node-1", "late", lambda random: None)
    simulation.run_until(10)
    (event,) = events.struck()
    assert str(event) == "  0     0.000 s  node-1: early"
