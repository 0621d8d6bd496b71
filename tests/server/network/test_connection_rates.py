"""How fast new connections may come."""

from tidelog.cluster.settings.config_schema import INT_MAX
from tidelog.server.network.connection_rates import ConnectionRates


def test_without_a_limit_nothing_pauses_and_nothing_is_counted() -> None:
    rates = ConnectionRates(11, 1000)
    rates.take_over_limits(INT_MAX, {})
    assert [rates.record("PLAINTEXT", 0) for _ in range(1000)] == [0] * 1000
    assert not rates._rates


def test_above_the_rate_a_listener_pauses_until_it_is_met_again() -> None:
    rates = ConnectionRates(11, 1000)
    rates.take_over_limits(2, {})
    assert [rates.record("PLAINTEXT", 0) for _ in range(20)] == [0] * 20  # ten seconds' worth
    assert rates.record("PLAINTEXT", 0) == 500
    assert rates.record("OUTSIDE", 0) == 1000


def test_a_listener_may_have_a_rate_of_its_own() -> None:
    rates = ConnectionRates(2, 1000)
    rates.take_over_limits(INT_MAX, {"outside": 1})
    assert [rates.record("INSIDE", 0) for _ in range(5)] == [0] * 5
    assert [rates.record("OUTSIDE", 0) for _ in range(3)] == [0, 1000, 2000]


def test_a_new_limit_counts_for_what_has_come() -> None:
    rates = ConnectionRates(2, 1000)
    rates.take_over_limits(10, {})
    assert [rates.record("INSIDE", 0) for _ in range(10)] == [0] * 10
    rates.take_over_limits(1, {})
    assert rates.record("INSIDE", 0) == 10_000
