import pytest

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.elections import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition


def elect(host: ClusterHost, election_type: int, *partitions: tuple[str, int]) -> list[str]:
    wanted = [TopicPartition(*each) for each in partitions] or None
    rows = host.decide(
        elect_leaders(election_type, wanted, host.image, host.settings, host.heartbeats)
    )
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


def rejoin(host: ClusterHost, topic: str, index: int, *isr: int) -> None:
    """The leader says that these are in sync."""
    topic_id = host.image.topics_by_name[topic].topic_id
    now = host.partition(topic, index)
    change = IsrChange(topic_id, index, now.leader_epoch, now.partition_epoch, isr)
    epoch = host.image.brokers[now.leader].epoch
    (row,) = host.decide(alter_partitions([change], now.leader, epoch, host.image, host.settings))
    assert row.error is None


def test_leadership_is_balanced_from_time_to_time_so_many_at_once() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={index: [1, 2] for index in range(5)})
    host.fence(1)
    assert host.decide(balance_leaders(host.image, host.settings)) is False
    host.unfence(1)
    for index in range(5):
        rejoin(host, "orders", index, 2, 1)
    decision = balance_leaders(host.image, host.settings, elections_max=3)
    assert host.decide(decision) is True
    leaders = [each.leader for each in host.image.topics_by_name["orders"].partitions]
    assert leaders == [1, 1, 1, 2, 2]
    assert host.decide(balance_leaders(host.image, host.settings, elections_max=3)) is False
    assert not balance_leaders(host.image, host.settings).records


def test_topics_that_allow_to_lose_records_get_leaders_from_time_to_time() -> None:
    host = ClusterHost([1, 2])
    for name in ("logs", "orders"):
        host.create(name, assignments={0: [1, 2]})
        host.fence(2)
        host.unfence(2)
    host.fence(1)
    assert [host.partition(name).leader for name in ("logs", "orders")] == [-1, -1]
    assert not elect_unclean_leaders(host.image, host.settings).records
    setting = ConfigRecord(
        resource_type=ConfigResourceType.TOPIC,
        resource_name="logs",
        name="unclean.leader.election.enable",
        value="true",
    )
    host.submit([setting])
    assert host.decide(elect_unclean_leaders(host.image, host.settings)) is False
    assert [host.partition(name).leader for name in ("logs", "orders")] == [2, -1]
    (election,) = host.unclean_elections
    assert (election.topic, election.leader, election.was_last_leader) == ("logs", 2, False)


def test_all_topics_may_lose_records_if_the_cluster_says_so() -> None:
    config = {"unclean.leader.election.enable": "true"}
    host = ClusterHost([1, 2], settings=ControllerSettings(1, broker_config=config))
    host.create("orders", assignments={0: [1, 2]})
    host.fence(2)
    host.unfence(2)
    host.fence(1)
    assert host.describe("orders") == "orders-0: leader 2 at epoch 1, replicas [1, 2], isr [2]"
    assert len(host.unclean_elections) == 1


def test_leadership_does_not_go_back_to_a_preferred_replica_without_room() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2]})
    directories = host.image.brokers[1].log_dirs
    host.beat(1, full_log_dirs=directories)
    assert host.partition("orders").leader == 2

    def balance() -> None:
        host.decide(balance_leaders(host.image, host.settings, host.heartbeats))

    balance()
    assert elect(host, PREFERRED_ELECTION) == ["orders-0: PREFERRED_LEADER_NOT_AVAILABLE"]
    assert host.partition("orders").leader == 2
    host.beat(1)
    balance()
    assert host.partition("orders").leader == 1


def test_what_is_known_of_full_disks_goes_with_the_incarnation() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", assignments={0: [1, 2]})
    host.beat(1, full_log_dirs=host.image.brokers[1].log_dirs)
    host.fence(1)
    host.heartbeats.end_session(1)
    host.register(1, incarnation=2)
    host.unfence(1)
    rejoin(host, "orders", 0, 2, 1)
    host.decide(balance_leaders(host.image, host.settings, host.heartbeats))
    assert host.partition("orders").leader == 1
