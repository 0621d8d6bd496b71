from dataclasses import replace

import pytest

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.producer_ids import allocate_producer_ids
from tidelog.protocol.errors import ApiError, ErrorCode


def test_blocks_of_a_thousand_follow_each_other() -> None:
    host = ClusterHost([1, 2])
    blocks = [
        host.decide(
            allocate_producer_ids(broker_id, host.image.brokers[broker_id].epoch, host.image)
        )
        for broker_id in (1, 2, 1)
    ]
    assert [(block.first, block.count) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    assert host.image.next_producer_id == 3000


@pytest.mark.parametrize("broker_id", [1, 9])
def test_only_a_registered_broker_gets_one_at_its_epoch(broker_id: int) -> None:
    host = ClusterHost([1])
    with pytest.raises(ApiError) as caught:
        allocate_producer_ids(broker_id, 0, host.image)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_there_is_a_last_block() -> None:
    host = ClusterHost([1])
    last = replace(host.image, next_producer_id=(1 << 63) - 1001)
    epoch = host.image.brokers[1].epoch
    assert allocate_producer_ids(1, epoch, last).rows.first == (1 << 63) - 1001
    with pytest.raises(ApiError, match="no more producer ids"):
        allocate_producer_ids(1, epoch, replace(last, next_producer_id=(1 << 63) - 1000))
