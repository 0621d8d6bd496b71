"""Quotas: entity resolution, shared rates and throttle times."""

import pytest

from tidelog.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
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


# Changes of topics


def mutate(quotas: ClientQuotas, count: int, now_ms: int, *, refuses: bool = True) -> int:
    return quotas.record_mutations("ann", "app", count, now_ms, refuses=refuses)


def test_who_has_anything_left_may_change_any_number_of_partitions() -> None:
    quotas = quotas_of({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 2.0}})
    # Two a second are 22 over all eleven windows.
    assert mutate(quotas, 21, 0) == 0
    assert mutate(quotas, 101, 0) == 0
    assert mutate(quotas, 1, 0) == 50_000
    assert mutate(quotas, 1, 49_999) == 1
    assert mutate(quotas, 1, 50_000) == 0
    assert mutate(quotas, 1, 50_000) == 500


def test_changes_are_saved_up_over_the_span_that_is_set() -> None:
    quotas = ClientQuotas(mutation_span_ms=2_000)
    quotas.replace({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 2.0}})
    assert mutate(quotas, 4, 0, refuses=False) == 0
    assert mutate(quotas, 1, 0, refuses=False) == 500


def test_who_is_not_refused_waits_after_the_change() -> None:
    quotas = quotas_of({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 2.0}})
    assert mutate(quotas, 22, 0, refuses=False) == 0
    assert mutate(quotas, 10, 0, refuses=False) == 5_000
    assert mutate(quotas, 10, 0, refuses=False) == 10_000


def test_changes_of_a_client_without_quota_are_not_counted() -> None:
    assert mutate(ClientQuotas(), 10**9, 0) == 0
    quotas = quotas_of({(("user", "bob"),): {CONTROLLER_MUTATION_RATE: 1.0}})
    assert mutate(quotas, 10**9, 0) == mutate(quotas, 1, 0) == 0


def test_a_changed_quota_on_changes_keeps_what_was_taken() -> None:
    quotas = quotas_of({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 1.0}})
    mutate(quotas, 1011, 0)
    assert mutate(quotas, 1, 0) == 1_000_000
    quotas.replace({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 1000.0}})
    assert mutate(quotas, 1, 0) == 1_000
    assert mutate(quotas, 1, 1_000) == 0


def test_the_number_of_token_buckets_is_bounded() -> None:
    quotas = quotas_of({(("client-id", None),): {CONTROLLER_MUTATION_RATE: 1.0}})
    for number in range(10_050):
        quotas.record_mutations("ann", f"client-{number}", 1, number * 20, refuses=True)
    assert len(quotas._mutations) <= 10_000


# Connections


def test_connections_of_an_address_above_its_quota_are_not_counted() -> None:
    quotas = quotas_of({(("ip", "10.0.0.1"),): {CONNECTION_CREATION_RATE: 1.0}})
    assert [quotas.record_connection("10.0.0.1", 0) for _ in range(10)] == [0] * 10
    assert [quotas.record_connection("10.0.0.1", 0) for _ in range(5)] == [1000] * 5
    # The first ten leave the rate together with their window; those refused were never in it.
    assert quotas.record_connection("10.0.0.1", 11_000) == 0
    assert quotas.record_connection("10.0.0.2", 0) == 0


def test_the_default_quota_on_connections_is_each_addresss_own() -> None:
    quotas = quotas_of(
        {
            (("ip", None),): {CONNECTION_CREATION_RATE: 1.0},
            (("ip", "10.0.0.9"),): {CONNECTION_CREATION_RATE: 100.0},
        }
    )
    for host in ("10.0.0.1", "10.0.0.2"):
        assert [quotas.record_connection(host, 0) > 0 for _ in range(11)] == [False] * 10 + [True]
    assert all(quotas.record_connection("10.0.0.9", 0) == 0 for _ in range(100))


@pytest.mark.parametrize(
    ("quota_of", "peer"),
    [("10.0.0.1", "::ffff:10.0.0.1"), ("0:0:0:0:0:0:0:1", "::1"), ("FE80::A", "fe80::a")],
)
def test_an_address_is_known_in_every_form(quota_of: str, peer: str) -> None:
    quotas = quotas_of({(("ip", quota_of),): {CONNECTION_CREATION_RATE: 1.0}})
    assert max(quotas.record_connection(peer, 0) for _ in range(11)) > 0


def test_quotas_say_what_they_limit() -> None:
    nothing = ClientQuotas()
    clients = quotas_of({(("user", "ann"),): {CONTROLLER_MUTATION_RATE: 1.0}})
    addresses = quotas_of({(("ip", None),): {CONNECTION_CREATION_RATE: 1.0}})
    assert [(q.limits_clients, q.limits_connections) for q in (nothing, clients, addresses)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
