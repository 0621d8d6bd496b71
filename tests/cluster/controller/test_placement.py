from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.controller.placement import place_replicas
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.protocol.errors import ApiError, ErrorCode


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 0, bytes(16), (), rack=rack, fenced=fenced)


@given(
    racks=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_are_distinct_spread_over_racks_and_leaders_are_even(
    racks: list[int], partitions: int, data: st.DataObject
) -> None:
    brokers = [
        broker(10 * rack + index, f"rack-{rack}")
        for rack, size in enumerate(racks)
        for index in range(size)
    ]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(brokers, partitions, factor, Random(data.draw(st.integers(0, 99))))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({replica // 10 for replica in replicas}) == min(factor, len(racks))
    leaders_by_rack = Counter(replicas[0] // 10 for replicas in placed)
    counts = [leaders_by_rack[rack] for rack in range(len(racks))]
    assert max(counts) - min(counts) <= 1
    for rack, size in enumerate(racks):
        leaders = Counter(each[0] for each in placed if each[0] // 10 == rack)
        in_rack = [leaders[10 * rack + index] for index in range(size)]
        assert max(in_rack) - min(in_rack) <= 1


def test_a_failed_brokers_leaders_go_to_many_others() -> None:
    placed = place_replicas([broker(each) for each in range(6)], 60, 2, Random(1))
    heirs = {replicas[1] for replicas in placed if replicas[0] == 3}
    assert len(heirs) >= 3


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1, "a", fenced=True), broker(2, "a"), broker(3, "b", fenced=True)]
    for replicas in place_replicas(brokers, 6, 3, Random(1)):
        assert replicas[0] == 2
        assert set(replicas) == {1, 2, 3}


def test_brokers_that_stop_or_whose_directories_are_cordoned_get_nothing() -> None:
    first, second = b"1" * 16, b"2" * 16
    brokers = [
        broker(1),
        broker(2)._replace(in_controlled_shutdown=True),
        broker(3)._replace(log_dirs=(first, second), cordoned_log_dirs=(second, first)),
        broker(4)._replace(log_dirs=(first, second), cordoned_log_dirs=(second,)),
    ]
    placed = place_replicas(brokers, 8, 2, Random(1))
    assert {replica for replicas in placed for replica in replicas} == {1, 4}
    with pytest.raises(ApiError, match=r"only 2 broker.* log directories cordoned"):
        place_replicas(brokers, 1, 3, Random(1))


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ([broker(1)], "only 1 broker"),
        ([broker(1, fenced=True), broker(2, fenced=True)], "currently fenced"),
        ([], "currently fenced"),
    ],
)
def test_what_cannot_be_placed_is_refused(brokers: list[BrokerImage], reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        place_replicas(brokers, 1, 2, Random(1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
