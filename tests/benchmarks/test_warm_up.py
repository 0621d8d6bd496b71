"""When a broker counts as warm."""

from benchmarks.warm_up import WarmUp


def _warmed(*cpu_s_per_gb: float) -> WarmUp:
    figure = "produce, CPU s/GB"
    return WarmUp(1.0, {"Kafka": [{figure: each} for each in cpu_s_per_gb]})


def test_falling_figures_do_not_stand_still() -> None:
    warmed = _warmed(5.0, 4.0, 3.0, 2.5, 2.2, 2.0)
    assert not warmed.stands_still("Kafka")
    assert "DID NOT STAND STILL" in warmed.summary()


def test_figures_that_are_close_stand_still_for_all_that_came_before() -> None:
    assert _warmed(5.0, 2.0, 2.02, 1.98, 2.0, 1.97, 2.01).stands_still("Kafka")


def test_one_slow_slice_is_not_a_trend() -> None:
    assert _warmed(2.0, 2.02, 1.98, 2.0, 3.0, 2.01).stands_still("Kafka")


def test_too_few_slices_tell_nothing() -> None:
    warmed = _warmed(2.0, 2.0, 2.0, 2.0, 2.0)
    assert not warmed.stands_still("Kafka")
    assert "too few" in warmed.summary()
