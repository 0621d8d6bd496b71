"""AlterPartition: the checks in Kafka's order, each with its code."""

import pytest

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.protocol.errors import ApiError, ErrorCode

RECOVERED, RECOVERING = 0, 1


@pytest.fixture
def host() -> ClusterHost:
    """The partition has leader epoch 1, partition epoch 1, leader 2 and 2, 3 in sync."""
    host = ClusterHost([1, 2, 3, 4])
    host.create("orders", assignments={0: [1, 2, 3]})
    host.fence(1)
    host.unfence(1)
    return host


def alter(host: ClusterHost, broker_id: int = 2, **fields: object) -> str:
    change = IsrChange(host.image.topics_by_name["orders"].topic_id, 0, 1, 1, (2, 3))
    change = change._replace(**fields)  # type: ignore[arg-type]
    epoch = host.image.brokers[broker_id].epoch
    (row,) = host.decide(alter_partitions([change], broker_id, epoch, host.image, host.settings))
    return "ok" if row.error is None else row.error.code.name


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic_id": b"?" * 16}, "UNKNOWN_TOPIC_ID"),
        ({"partition": 7}, "UNKNOWN_TOPIC_OR_PARTITION"),
        # A leader that knows more must not give up: it talks to a controller of the past.
        ({"leader_epoch": 2, "partition_epoch": 0}, "NOT_CONTROLLER"),
        ({"leader_epoch": 0, "partition_epoch": 2}, "NOT_CONTROLLER"),
        ({"leader_epoch": 0, "partition_epoch": 0}, "FENCED_LEADER_EPOCH"),
        ({"broker_id": 3, "partition_epoch": 0}, "INVALID_REQUEST"),
        ({"partition_epoch": 0, "isr": (9,)}, "INVALID_UPDATE_VERSION"),
        ({"isr": (2, 4)}, "INVALID_REQUEST"),
        ({"isr": (2, 2)}, "INVALID_REQUEST"),
        ({"isr": ()}, "INVALID_REQUEST"),
        ({"isr": (3,)}, "INVALID_REQUEST"),
        ({"leader_recovery_state": RECOVERING}, "INVALID_REQUEST"),
        ({"leader_recovery_state": RECOVERING, "isr": (2,)}, "INVALID_REQUEST"),
        ({"leader_recovery_state": 7}, "INVALID_REQUEST"),
        ({"isr": (1, 2), "isr_epochs": (0, -1)}, "INELIGIBLE_REPLICA"),
        ({"isr": (2, 3, 1), "isr_epochs": (-1, -1, -1)}, "ok"),
    ],
)
def test_a_proposal_is_checked(host: ClusterHost, fields: dict[str, object], code: str) -> None:
    before = host.image
    assert alter(host, **fields) == code  # type: ignore[arg-type]
    assert (host.image is before) == (code != "ok")


def test_a_broker_of_another_epoch_is_refused(host: ClusterHost) -> None:
    for broker_id in (2, 9):
        with pytest.raises(ApiError) as caught:
            alter_partitions([], broker_id, 0, host.image, host.settings)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_one_that_is_fenced_or_shutting_down_is_not_eligible(host: ClusterHost) -> None:
    host.fence(1)
    assert alter(host, isr=(1, 2, 3)) == "INELIGIBLE_REPLICA"


def test_a_partition_that_is_named_twice_changes_once(host: ClusterHost) -> None:
    change = IsrChange(host.image.topics_by_name["orders"].topic_id, 0, 1, 1, (2,))
    epoch = host.image.brokers[2].epoch
    decision = alter_partitions([change, change], 2, epoch, host.image, host.settings)
    assert len(decision.records) == 1
    assert [row.error is None for row in decision.rows] == [True, False]


def test_the_row_has_the_partition_with_the_change(host: ClusterHost) -> None:
    change = IsrChange(host.image.topics_by_name["orders"].topic_id, 0, 1, 1, (2,))
    epoch = host.image.brokers[2].epoch
    (row,) = host.decide(alter_partitions([change], 2, epoch, host.image, host.settings))
    assert row.after == host.partition("orders")
    assert row.after is not None
    assert (row.after.isr, row.after.partition_epoch) == ((2,), 2)


def test_a_leader_that_has_recovered_says_so() -> None:
    host = ClusterHost([1, 2])
    host.create("logs", assignments={0: [1, 2]}, configs={"unclean.leader.election.enable": "true"})
    host.fence(2)
    host.fence(1)
    host.unfence(2)
    topic_id = host.image.topics_by_name["logs"].topic_id
    partition = host.partition("logs")
    assert partition.leader_recovery_state == RECOVERING
    change = IsrChange(topic_id, 0, partition.leader_epoch, partition.partition_epoch, (2,))
    epoch = host.image.brokers[2].epoch
    host.decide(alter_partitions([change], 2, epoch, host.image, host.settings))
    assert host.partition("logs").leader_recovery_state == RECOVERED
