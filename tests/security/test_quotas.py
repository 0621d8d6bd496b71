"""Quotas: entity resolution, shared rates and throttle times."""

import pytest

from tidelog.security.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    WindowedRate,
    throttle_time_ms,
)

LEVELS: list[QuotaEntity] = [
    (("client-id", "app"), ("user", "ann")),
    (("client-id", None), ("user", "ann")),
    (("user", "ann"),),
    (("client-id", "app"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
]


def quotas_of(values: dict[QuotaEntity, dict[str, float]]) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.replace(values)
    return quotas


@pytest.mark.parametrize("depth", range(len(LEVELS)))
def test_the_most_specific_entity_binds(depth: int) -> None:
    quotas = quotas_of(
        {level: {PRODUCER_BYTE_RATE: 1000.0 + i} for i, level in enumerate(LEVELS) if i >= depth}
    )
    assert quotas.bound(PRODUCER_BYTE_RATE, "ann", "app") == 1000.0 + depth


def test_the_order_of_the_parts_of_an_entity_does_not_matter() -> None:
    quotas = quotas_of({(("user", "ann"), ("client-id", "app")): {PRODUCER_BYTE_RATE: 5.0}})
    assert quotas.bound(PRODUCER_BYTE_RATE, "ann", "app") == 5.0
    assert quotas.bound(PRODUCER_BYTE_RATE, "ann", "other") is None


def test_a_client_without_quota_is_never_throttled() -> None:
    quotas = quotas_of({(("user", "ann"),): {PRODUCER_BYTE_RATE: 1.0}})
    assert quotas.record_produce("bob", "app", 10**9, 0) == 0
    assert ClientQuotas().record_produce("ann", "app", 10**9, 0) == 0


def test_a_burst_is_throttled_until_its_rate_is_within_the_quota() -> None:
    quotas = quotas_of({(("user", "ann"),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.record_produce("ann", "app", 10_000, 0) == 0
    # 30,000 bytes over the ten full windows are 3,000 a second: 20 more seconds make it 1,000.
    assert quotas.record_produce("ann", "app", 20_000, 0) == 20_000


def test_the_quota_of_a_user_is_shared_by_its_clients() -> None:
    quotas = quotas_of({(("user", "ann"),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.record_produce("ann", "a", 10_000, 0) == 0
    assert quotas.record_produce("ann", "b", 10_000, 0) > 0


def test_the_default_quota_of_users_is_each_users_own() -> None:
    quotas = quotas_of({(("user", None),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.record_produce("ann", "a", 10_000, 0) == 0
    assert quotas.record_produce("bob", "a", 10_000, 0) == 0


def test_the_quota_of_a_client_id_is_shared_by_users() -> None:
    quotas = quotas_of({(("client-id", None),): {CONSUMER_BYTE_RATE: 1000.0}})
    assert quotas.record_fetch("ann", "a", 10_000, 0) == 0
    assert quotas.record_fetch("bob", "a", 10_000, 0) > 0
    assert quotas.record_fetch("bob", None, 10_000, 0) == 0


def test_a_throttled_fetch_is_taken_back() -> None:
    quotas = quotas_of({(("user", "ann"),): {CONSUMER_BYTE_RATE: 1000.0}})
    assert quotas.record_fetch("ann", "a", 20_000, 0) > 0
    quotas.unrecord_fetch("ann", "a", 20_000, 0)
    assert quotas.record_fetch("ann", "a", 9_000, 0) == 0
    assert quotas.fetch_size_bytes_max("ann", "a") == 10_000
    assert quotas.fetch_size_bytes_max("bob", "a") is None


def test_request_time_is_a_percentage_of_one_core_and_waits_at_most_a_window() -> None:
    quotas = quotas_of({(("user", "ann"),): {REQUEST_PERCENTAGE: 10.0}})
    assert quotas.record_request("ann", "a", 900_000_000, 0) == 0
    assert quotas.record_request("ann", "a", 200_000_000, 0) == 1000


def test_old_windows_leave_the_rate() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(11_000, 0)
    assert rate.per_second(0) == pytest.approx(1100)
    assert rate.per_second(10_500) == pytest.approx(11_000 / 10.5)
    assert rate.per_second(11_000) == 0
    assert rate.is_idle(11_000)


def test_a_steady_rate_below_the_quota_is_not_throttled() -> None:
    rate = WindowedRate(11, 1000)
    for now_ms in range(0, 60_000, 100):
        rate.record(95, now_ms)
        assert throttle_time_ms(rate, 1000, now_ms) == 0


def test_changed_quotas_keep_what_was_used() -> None:
    quotas = quotas_of({(("user", "ann"),): {PRODUCER_BYTE_RATE: 1000.0}})
    quotas.record_produce("ann", "a", 9_000, 0)
    quotas.replace({(("user", "ann"),): {PRODUCER_BYTE_RATE: 500.0}})
    assert quotas.record_produce("ann", "a", 1, 0) > 0


def test_the_number_of_rates_is_bounded() -> None:
    quotas = quotas_of({(("client-id", None),): {PRODUCER_BYTE_RATE: 1000.0}})
    for number in range(10_050):
        quotas.record_produce("ann", f"client-{number}", 1, number * 20)
    assert len(quotas._rates) <= 10_000
