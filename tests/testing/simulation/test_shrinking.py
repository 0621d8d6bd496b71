"""A failure is told with as few faults as it needs."""

import pytest

from tidelog.testing.simulation.fault_events import FaultEvent
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.shrinking import shape_of, shrink


def result(numbers: list[int], failures: list[str]) -> Result:
    return Result(
        seed=1,
        options="",
        failures=failures,
        trace_digest="",
        trace=[],
        simulated_s=0.0,
        events=0,
        counts={},
        faults=[FaultEvent(number, number * 1000, "node-1", "kill") for number in numbers],
    )


class Seed:
    """Fails in one way when all events of `needed` strike, in another one when only one does."""

    def __init__(self, needed: set[int], count: int = 20) -> None:
        self.needed = needed
        self.count = count
        self.runs = 0

    def run(self, without: frozenset[int]) -> Result:
        self.runs += 1
        left = [number for number in range(self.count) if number not in without]
        failures = []
        if self.needed <= set(left):
            failures = [f"node-{len(left)}: topic-0: offset {self.runs} was lost"]
        elif self.needed & set(left):
            failures = ["something else"]
        return result(left, failures)


@pytest.mark.parametrize("needed", [set(), {3}, {3, 4}, {0, 11, 19}, set(range(20))])
def test_what_is_left_is_what_the_failure_needs(needed: set[int]) -> None:
    seed = Seed(needed)
    found = shrink(seed.run)
    assert {event.number for event in found.result.faults} == needed
    assert found.without == frozenset(range(20)) - needed
    assert found.runs == seed.runs


def test_it_goes_on_from_what_is_left_out_already() -> None:
    seed = Seed({3, 4})
    found = shrink(seed.run, without=frozenset({0, 1, 2}))
    assert {0, 1, 2} <= found.without
    assert {event.number for event in found.result.faults} == {3, 4}


def test_the_number_of_runs_is_bounded() -> None:
    seed = Seed(set(range(20)))
    assert shrink(seed.run, runs_max=7).runs == 7


def test_a_seed_that_is_good_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(Seed({99}).run)


def test_failures_are_alike_but_for_their_numbers() -> None:
    one = result([], ["node-1: plain-0: has the high watermark 17, and node-3 has 14"])
    other = result([], ["node-2: plain-4: has the high watermark 5, and node-1 has 2"])
    assert shape_of(one) == shape_of(other) != shape_of(result([], ["no answer to a Fetch"]))
    assert shape_of(result([], [])) == ""
