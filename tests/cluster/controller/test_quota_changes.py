import pytest

from tests.cluster.cluster_host import ClusterHost, outcome
from tidelog.cluster.controller.quota_changes import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    QuotaAlteration,
    QuotaFilter,
    alter_client_quotas,
    find_client_quotas,
)
from tidelog.protocol.errors import ApiError, ErrorCode

Entity = list[tuple[str, str | None]]
ALICE: Entity = [("user", "alice")]
BOTH: Entity = [("user", "alice"), ("client-id", None)]


def alter(host: ClusterHost, entity: Entity, *operations: tuple[str, float | None]) -> str:
    (row,) = host.decide(alter_client_quotas([QuotaAlteration(entity, operations)], host.image))
    return outcome(row.error)


def test_quotas_are_set_changed_and_removed() -> None:
    host = ClusterHost()
    assert alter(host, BOTH, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5)) == "ok"
    assert host.image.client_quotas == {
        (("client-id", None), ("user", "alice")): {
            "producer_byte_rate": 1000.0,
            "request_percentage": 12.5,
        }
    }
    assert alter(host, BOTH, ("producer_byte_rate", 2000.0), ("request_percentage", None)) == "ok"
    assert list(host.image.client_quotas.values()) == [{"producer_byte_rate": 2000.0}]
    assert alter(host, BOTH, ("producer_byte_rate", None)) == "ok"
    assert not host.image.client_quotas


@pytest.mark.parametrize(
    ("entity", "operation", "reason"),
    [
        ([], ("producer_byte_rate", 1.0), "Invalid empty client quota entity"),
        ([("group", "a")], ("producer_byte_rate", 1.0), "Unhandled client quota entity type"),
        ([("user", "")], ("producer_byte_rate", 1.0), "Empty user not supported"),
        ([("user", "a"), ("user", "b")], ("producer_byte_rate", 1.0), "duplicate entity entry"),
        ([("ip", "1.2.3.4"), ("user", "a")], ("connection_creation_rate", 1.0), "combination"),
        ([("ip", "a b")], ("connection_creation_rate", 1.0), "not a valid IP"),
        (ALICE, ("no_such_rate", 1.0), "Invalid configuration key no_such_rate"),
        (ALICE, ("connection_creation_rate", 1.0), "Invalid configuration key"),
        (ALICE, ("producer_byte_rate", 0.0), "must be greater than 0"),
        (ALICE, ("producer_byte_rate", float("nan")), "must be greater than 0"),
        (ALICE, ("producer_byte_rate", 1.5), "cannot be a fractional value"),
        ([("ip", None)], ("connection_creation_rate", 2.0**40), "too large"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(
    entity: Entity, operation: tuple[str, float | None], reason: str
) -> None:
    host = ClusterHost()
    answer = alter(host, entity, operation)
    assert answer.startswith("INVALID_REQUEST: ")
    assert reason in answer
    assert not host.image.client_quotas


def test_quotas_are_found_by_exact_name_default_or_any() -> None:
    host = ClusterHost()
    alter(host, ALICE, ("producer_byte_rate", 1.0))
    alter(host, [("user", None)], ("producer_byte_rate", 2.0))
    alter(host, BOTH, ("producer_byte_rate", 3.0))

    def find(*filters: QuotaFilter, strict: bool = False) -> list[float]:
        found = find_client_quotas(filters, host.image, strict=strict)
        return sorted(quotas["producer_byte_rate"] for quotas in found.values())

    assert find() == [1.0, 2.0, 3.0]
    assert find(strict=True) == []
    assert find(QuotaFilter("user", MATCH_EXACT, "alice")) == [1.0, 3.0]
    assert find(QuotaFilter("user", MATCH_EXACT, "alice"), strict=True) == [1.0]
    assert find(QuotaFilter("user", MATCH_DEFAULT)) == [2.0]
    assert find(QuotaFilter("user", MATCH_ANY), strict=True) == [1.0, 2.0]
    assert find(QuotaFilter("client-id", MATCH_DEFAULT)) == [3.0]


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([QuotaFilter("group", MATCH_ANY)], ErrorCode.UNSUPPORTED_VERSION),
        ([QuotaFilter("user", MATCH_ANY), QuotaFilter("user", MATCH_ANY)], None),
        ([QuotaFilter("user", 7)], None),
        ([QuotaFilter("user", MATCH_EXACT)], None),
        ([QuotaFilter("ip", MATCH_ANY), QuotaFilter("user", MATCH_ANY)], None),
    ],
)
def test_a_wrong_filter_is_refused(filters: list[QuotaFilter], code: ErrorCode | None) -> None:
    with pytest.raises(ApiError) as caught:
        find_client_quotas(filters, ClusterHost().image)
    assert caught.value.code is (code or ErrorCode.INVALID_REQUEST)
