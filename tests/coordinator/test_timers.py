from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.timers import Timers


def test_a_timer_fires_once_at_its_deadline() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10, lambda now_ms: f"a@{now_ms}")
    assert timers.run_due(9) == []
    assert timers.run_due(10) == ["a@10"]
    assert timers.run_due(99) == []
    assert len(timers) == 0


def test_scheduling_again_moves_the_deadline_both_ways() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10, lambda now_ms: "early")
    timers.schedule("a", 30, lambda now_ms: "late")
    assert timers.run_due(20) == []
    timers.schedule("a", 25, lambda now_ms: "sooner")
    assert timers.run_due(25) == ["sooner"]
    assert timers.run_due(100) == []


def test_a_cancelled_timer_does_not_fire_and_may_come_back() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10, lambda now_ms: "first")
    timers.cancel("a")
    assert "a" not in timers
    timers.schedule("a", 12, lambda now_ms: "second")
    assert timers.run_due(50) == ["second"]


def test_an_action_may_schedule_its_own_name() -> None:
    timers: Timers[int] = Timers()

    def again(now_ms: int) -> int:
        timers.schedule("a", now_ms + 10, again)
        return now_ms

    timers.schedule("a", 10, again)
    assert timers.run_due(10) == [10]
    assert timers.run_due(20) == [20]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 3), st.integers(1, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(1, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_behaves_like_a_table_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    now_ms = 0
    for step, name, amount in steps:
        if step == "schedule":
            timers.schedule(name, now_ms + amount, lambda _, name=name: name)  # type: ignore[misc]
            model[name] = now_ms + amount
        elif step == "cancel":
            timers.cancel(name)
            model.pop(name, None)
        else:
            now_ms += amount
            due = {each for each, deadline in model.items() if deadline <= now_ms}
            assert set(timers.run_due(now_ms)) == due
            for each in due:
                del model[each]
        if model:
            deadline_ms = timers.next_deadline_ms()
            assert deadline_ms is not None
            assert deadline_ms <= min(model.values())


def test_deadlines_move_with_a_clock_that_was_set() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10, lambda now_ms: "a")
    timers.schedule("b", 20, lambda now_ms: "b")
    timers.schedule("a", 30, lambda now_ms: "a, later")
    timers.shift(-1000)
    assert timers.run_due(-981) == []
    assert timers.run_due(-980) == ["b"]
    assert timers.run_due(-971) == []
    assert timers.run_due(-970) == ["a, later"]
