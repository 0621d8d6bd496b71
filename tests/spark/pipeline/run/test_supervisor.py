"""The life of a pipeline's queries, told tick by tick."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipeline.file.model import RestartPolicy
from tidelog.spark.pipeline.run.restarts import GiveUp, RestartAt, Restarts
from tidelog.spark.pipeline.run.supervisor import (
    Finish,
    Observed,
    Phase,
    QueryState,
    Start,
    Stop,
    Supervisor,
)

_POLICY = RestartPolicy(restarts_max=3, window_ms=60_000, backoff_ms=1_000, backoff_ms_max=3_000)
_BUSY = Observed(is_active=True)
_IDLE = Observed(is_active=True, is_idle=True)
_DONE = Observed(is_active=False)


def _failed(error: str = "boom", *, is_hopeless: bool = False) -> Observed:
    return Observed(is_active=False, error=error, is_hopeless=is_hopeless)


def _supervisor(*names: str, policy: RestartPolicy = _POLICY) -> Supervisor:
    supervisor = Supervisor(names, policy, drain_timeout_ms=10_000)
    assert supervisor.tick(0, {}) == [Start(name) for name in names]
    return supervisor


def test_the_delay_doubles_up_to_its_bound() -> None:
    restarts = Restarts(
        RestartPolicy(restarts_max=99, window_ms=10**9, backoff_ms=1_000, backoff_ms_max=3_000)
    )
    delays = []
    for now_ms in range(0, 50_000, 1_000):
        decision = restarts.failed(now_ms, "boom")
        assert isinstance(decision, RestartAt)
        delays.append(decision.at_ms - now_ms)
    assert delays[:4] == [1_000, 2_000, 3_000, 3_000]
    assert set(delays[2:]) == {3_000}


def test_progress_resets_the_delay_but_not_the_count() -> None:
    restarts = Restarts(_POLICY)
    for now_ms in (0, 10_000, 20_000):
        assert restarts.failed(now_ms, "boom") == RestartAt(now_ms + 1_000, 1)
        restarts.progressed()
    decision = restarts.failed(30_000, "boom")
    assert decision == GiveUp("failed 4 times within 1 min; the last time: boom")


def test_old_failures_are_forgotten() -> None:
    restarts = Restarts(_POLICY)
    for now_ms in range(0, 10**6, 20_000):
        assert isinstance(restarts.failed(now_ms, "boom"), RestartAt)


def test_a_policy_without_restarts_gives_up_at_once() -> None:
    assert Restarts(RestartPolicy(restarts_max=0)).failed(5, "boom") == GiveUp("boom")


def test_queries_that_end_by_themselves_finish_the_pipeline() -> None:
    supervisor = _supervisor("a", "b")
    assert supervisor.tick(1, {"a": _DONE, "b": _BUSY}) == []
    assert not supervisor.phase.is_over
    assert supervisor.tick(2, {"b": _DONE}) == []
    assert supervisor.phase is Phase.FINISHED
    assert supervisor.phase.is_over


def test_a_failed_query_starts_again_after_its_delay_and_leaves_the_others_alone() -> None:
    supervisor = _supervisor("a", "b")
    assert supervisor.tick(100, {"a": _failed("boom"), "b": _BUSY}) == []
    assert supervisor.queries["a"].state is QueryState.WAITING
    assert supervisor.queries["a"].last_error == "boom"
    assert supervisor.tick(1_099, {"b": _BUSY}) == []
    assert supervisor.tick(1_100, {"b": _BUSY}) == [Start("a")]
    assert supervisor.tick(1_200, {"a": _BUSY, "b": _BUSY}) == []
    assert supervisor.queries["a"].restarts.count == 1


def test_too_many_failures_drain_the_rest_and_fail_with_the_reason() -> None:
    supervisor = _supervisor("a", "b")
    now_ms = 0
    for _ in range(3):
        supervisor.tick(now_ms, {"a": _failed(), "b": _BUSY})
        now_ms += 5_000
        assert supervisor.tick(now_ms, {"b": _BUSY}) == [Start("a")]
    assert supervisor.tick(now_ms, {"a": _failed(), "b": _BUSY}) == [Finish("b")]
    assert not supervisor.phase.is_over
    assert supervisor.tick(now_ms + 1, {"b": _IDLE}) == [Stop("b")]
    supervisor.tick(now_ms + 2, {"b": _DONE})
    assert supervisor.phase is Phase.FAILED
    assert supervisor.reason == "a: failed 4 times within 1 min; the last time: boom"


def test_a_mistake_in_the_query_is_not_tried_again() -> None:
    supervisor = _supervisor("a")
    supervisor.tick(1, {"a": _failed("no such column", is_hopeless=True)})
    assert supervisor.phase is Phase.FAILED
    assert supervisor.reason == "a: no such column"


def test_an_idle_query_is_stopped_at_once() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(5)
    assert supervisor.tick(5, {"a": _IDLE}) == [Stop("a")]
    assert supervisor.tick(6, {"a": _DONE}) == []
    assert supervisor.phase is Phase.STOPPED
    assert supervisor.reason is None


def test_a_running_batch_is_finished_before_its_query_stops() -> None:
    supervisor = _supervisor("a")
    supervisor.tick(1, {"a": Observed(is_active=True, batches=3)})
    supervisor.request_stop(5)
    # Batch 4 ended between the last look and the request: what runs now is batch 5.
    assert supervisor.tick(5, {"a": Observed(is_active=True, batches=4)}) == [Finish("a")]
    assert supervisor.tick(6, {"a": Observed(is_active=True, batches=4)}) == []
    assert supervisor.tick(7, {"a": Observed(is_active=True, batches=5)}) == [Stop("a")]
    assert supervisor.tick(8, {"a": Observed(is_active=True, batches=5)}) == []


def test_a_query_that_ends_after_its_batch_need_not_be_stopped() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(5)
    assert supervisor.tick(5, {"a": _BUSY}) == [Finish("a")]
    assert supervisor.tick(6, {"a": _BUSY}) == []
    assert supervisor.tick(7, {"a": Observed(is_active=False, batches=1)}) == []
    assert supervisor.phase is Phase.STOPPED


def test_draining_has_an_end() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(1_000)
    assert supervisor.tick(1_000, {"a": _BUSY}) == [Finish("a")]
    assert supervisor.tick(10_999, {"a": _BUSY}) == []
    assert supervisor.tick(11_000, {"a": _BUSY}) == [Stop("a")]


def test_a_second_request_stops_at_once() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(5)
    assert supervisor.tick(5, {"a": _BUSY}) == [Finish("a")]
    supervisor.request_stop(6)
    assert supervisor.tick(6, {"a": _BUSY}) == [Stop("a")]


def test_draining_starts_nothing() -> None:
    supervisor = _supervisor("a", "b")
    supervisor.tick(1, {"a": _failed(), "b": _BUSY})
    supervisor.request_stop(2)
    assert supervisor.tick(5_000, {"b": _BUSY}) == [Finish("b")]
    assert supervisor.queries["a"].state is QueryState.STOPPED


def test_a_query_that_fails_while_it_is_stopped_counts_as_stopped() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(5)
    assert supervisor.tick(5, {"a": _IDLE}) == [Stop("a")]
    supervisor.tick(6, {"a": _failed("interrupted")})
    assert supervisor.phase is Phase.STOPPED


def test_a_query_that_fails_while_it_finishes_its_batch_is_not_started_again() -> None:
    supervisor = _supervisor("a")
    supervisor.request_stop(5)
    assert supervisor.tick(5, {"a": _BUSY}) == [Finish("a")]
    assert supervisor.tick(6, {"a": _failed()}) == []
    assert supervisor.queries["a"].state is QueryState.STOPPED
    assert supervisor.queries["a"].last_error == "boom"
    assert supervisor.phase is Phase.STOPPED


_looks = st.sampled_from([_BUSY, _IDLE, _DONE, _failed(), _failed("no", is_hopeless=True)])
_turns = st.lists(
    st.tuples(st.integers(0, 5_000), st.booleans(), st.lists(_looks, min_size=3, max_size=3)),
    max_size=40,
)


@given(_turns)
def test_whatever_queries_do_the_pipeline_ends_when_asked(
    turns: list[tuple[int, bool, list[Observed]]],
) -> None:
    names = ["a", "b", "c"]
    supervisor = Supervisor(names, _POLICY, drain_timeout_ms=10_000)
    alive: set[str] = set()
    now_ms = 0
    is_asked = False

    def turn(looks: list[Observed]) -> None:
        seen = {name: look for name, look in zip(names, looks, strict=True) if name in alive}
        alive.difference_update(name for name, look in seen.items() if not look.is_active)
        for action in supervisor.tick(now_ms, seen):
            if isinstance(action, Start):
                assert not is_asked, "nothing starts after a request to stop"
                assert action.query not in alive, "a query runs once at a time"
                alive.add(action.query)
            else:
                assert action.query in alive, "only what runs is stopped"
                if isinstance(action, Stop):
                    stopped.add(action.query)

    stopped: set[str] = set()
    for passed_ms, asks, looks in turns:
        if supervisor.phase.is_over:
            break
        now_ms += passed_ms
        if asks:
            is_asked = True
            supervisor.request_stop(now_ms)
        turn(looks)
    if not supervisor.phase.is_over:
        is_asked = True
        supervisor.request_stop(now_ms)
        turn([_BUSY] * 3)
        now_ms += 20_000
        turn([_BUSY] * 3)
        assert alive <= stopped, "the time to drain is over"
        turn([_DONE] * 3)
    assert supervisor.phase.is_over
    assert not alive
    assert (supervisor.reason is not None) == (supervisor.phase is Phase.FAILED)
