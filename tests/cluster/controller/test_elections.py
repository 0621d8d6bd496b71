import pytest

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.elections import PREFERRED_ELECTION, UNCLEAN_ELECTION, elect_leaders
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition


def elect(host: ClusterHost, election_type: int, *partitions: tuple[str, int]) -> list[str]:
    wanted = [TopicPartition(*each) for each in partitions] or None
    rows = host.decide(elect_leaders(election_type, wanted, host.image, host.settings))
    return [
        f"{row.topic}-{row.partition}: {row.error.code.name if row.error else 'ok'}" for row in rows
    ]


def test_one_node_needs_no_election() -> None:
    host = ClusterHost()
    host.create("orders", partition_count=2)
    for election_type in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        assert elect(host, election_type, ("orders", 0), ("orders", 9), ("none", 0)) == [
            "orders-0: ELECTION_NOT_NEEDED",
            "orders-9: UNKNOWN_TOPIC_OR_PARTITION",
            "none-0: UNKNOWN_TOPIC_OR_PARTITION",
        ]
        # Asked for all partitions, those that need none are not listed.
        assert elect(host, election_type) == []


def test_leadership_goes_back_to_the_preferred_replica() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2], 1: [2, 1]})
    host.fence(1)
    assert elect(host, PREFERRED_ELECTION) == ["orders-0: PREFERRED_LEADER_NOT_AVAILABLE"]
    host.unfence(1)
    assert elect(host, PREFERRED_ELECTION) == ["orders-0: PREFERRED_LEADER_NOT_AVAILABLE"]
    # It comes back into the in-sync set, which its leader would say.
    topic_id = host.image.topics_by_name["orders"].topic_id
    partition = host.partition("orders")
    change = IsrChange(topic_id, 0, partition.leader_epoch, partition.partition_epoch, (2, 1))
    host.decide(
        alter_partitions([change], 2, host.image.brokers[2].epoch, host.image, host.settings)
    )
    assert elect(host, PREFERRED_ELECTION) == ["orders-0: ok"]
    assert host.describe("orders") == "orders-0: leader 1 at epoch 2, replicas [1, 2], isr [2, 1]"


def test_an_unclean_election_takes_who_is_there() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2]})
    host.fence(2)
    host.fence(1)
    assert elect(host, UNCLEAN_ELECTION, ("orders", 0)) == [
        "orders-0: ELIGIBLE_LEADERS_NOT_AVAILABLE"
    ]
    host.unfence(2)
    assert elect(host, UNCLEAN_ELECTION, ("orders", 0)) == ["orders-0: ok"]
    assert host.describe("orders") == "orders-0: leader 2 at epoch 2, replicas [1, 2], isr [2]"


def test_there_are_two_election_types() -> None:
    with pytest.raises(ApiError, match="no election type 2"):
        elect(ClusterHost(), 2)


@pytest.mark.parametrize(("metadata_version", "leader_epoch"), [(11, 1), (12, 0)])
def test_before_3_6_an_in_sync_set_that_shrinks_raises_the_leader_epoch(
    metadata_version: int, leader_epoch: int
) -> None:
    host = ClusterHost([1, 2], metadata_version=metadata_version)
    host.create("orders", assignments={0: [1, 2]})
    host.fence(2)
    assert host.describe("orders") == (
        f"orders-0: leader 1 at epoch {leader_epoch}, replicas [1, 2], isr [1]"
    )
