from tests.cluster.cluster_host import ClusterHost, outcome
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.cluster.controller.reassignments import (
    Reassignment,
    alter_partition_reassignments,
    list_reassignments,
)
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.protocol.topic_partition import TopicPartition


def reassign(
    host: ClusterHost, replicas: list[int] | None, *, topic: str = "orders", index: int = 0
) -> str:
    (row,) = host.decide(
        alter_partition_reassignments(
            [Reassignment(topic, index, replicas)], host.image, host.settings
        )
    )
    return outcome(row.error)


def catch_up(host: ClusterHost, *isr: int) -> str:
    """The leader says that these are in sync now."""
    partition = host.partition("orders")
    change = IsrChange(
        host.image.topics_by_name["orders"].topic_id,
        0,
        partition.leader_epoch,
        partition.partition_epoch,
        isr,
    )
    leader = host.image.brokers[partition.leader]
    (row,) = host.decide(
        alter_partitions([change], leader.broker_id, leader.epoch, host.image, host.settings)
    )
    return outcome(row.error)


def test_one_node_has_nothing_to_reassign() -> None:
    host = ClusterHost()
    host.create("orders")
    assert reassign(host, None) == (
        "NO_REASSIGNMENT_IN_PROGRESS: No partition reassignment is in progress."
    )
    before = host.image
    assert reassign(host, [1]) == "ok"
    assert host.image is before
    assert list_reassignments(host.image) == []


def test_a_partition_moves_in_two_steps() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2]})
    assert reassign(host, [3, 2]) == "ok"
    assert host.describe("orders") == (
        "orders-0: leader 1 at epoch 0, replicas [3, 2, 1], isr [1, 2], adding [3], removing [1]"
    )
    (ongoing,) = list_reassignments(host.image, [TopicPartition("orders", 0)])
    assert (ongoing.adding_replicas, ongoing.removing_replicas) == ((3,), (1,))
    # The old leader learns that it has to look for the new one.
    assert catch_up(host, 1, 2, 3).startswith("NEW_LEADER_ELECTED")
    assert host.describe("orders") == "orders-0: leader 3 at epoch 1, replicas [3, 2], isr [2, 3]"
    assert list_reassignments(host.image) == []


def test_a_reassignment_can_be_cancelled() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2]})
    reassign(host, [3])
    assert host.partition("orders").is_reassigning
    assert reassign(host, None) == "ok"
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [1, 2], isr [1, 2]"


def test_fewer_replicas_or_another_order_happen_at_once() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2, 3]})
    assert reassign(host, [3, 2, 1]) == "ok"
    assert host.describe("orders") == (
        "orders-0: leader 1 at epoch 0, replicas [3, 2, 1], isr [1, 2, 3]"
    )
    assert reassign(host, [3]) == "ok"
    assert host.describe("orders") == "orders-0: leader 3 at epoch 1, replicas [3], isr [3]"


def test_more_replicas_come_in_one_by_one_and_stay() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1]})
    assert reassign(host, [1, 2, 3]) == "ok"
    assert host.describe("orders") == (
        "orders-0: leader 1 at epoch 0, replicas [1, 2, 3], isr [1], adding [2, 3]"
    )
    assert catch_up(host, 1, 3) == "ok"
    assert host.partition("orders").is_reassigning
    assert catch_up(host, 1, 3, 2) == "ok"
    assert host.describe("orders") == (
        "orders-0: leader 1 at epoch 0, replicas [1, 2, 3], isr [1, 3, 2]"
    )


def test_a_reassignment_can_be_replaced_while_it_is_under_way() -> None:
    host = ClusterHost([1, 2, 3, 4])
    host.create("orders", assignments={0: [1, 2]})
    reassign(host, [3, 2])
    assert reassign(host, [3, 4]) == "ok"
    assert host.describe("orders") == (
        "orders-0: leader 1 at epoch 0, replicas [3, 4, 1, 2], isr [1, 2], adding [3, 4], "
        "removing [1, 2]"
    )
    # 3 is not in sync because it was being added before: the move back ends at once.
    assert reassign(host, [1, 2]) == "ok"
    assert host.describe("orders") == "orders-0: leader 1 at epoch 1, replicas [1, 2], isr [1, 2]"


def test_cancelling_keeps_the_replication_factor_from_before() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2]})
    reassign(host, [3, 2])
    (row,) = alter_partition_reassignments(
        [Reassignment("orders", 0, [1, 3])],
        host.image,
        host.settings,
        allow_replication_factor_change=False,
    ).rows
    assert row.error is None


def test_cancelling_when_only_new_replicas_are_in_sync_would_lose_records() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2]})
    reassign(host, [2, 3])
    catch_up(host, 1, 2)
    host.fence(2)
    partition = host.partition("orders")
    only_new = PartitionChangeRecord(
        partition_id=0,
        topic_id=host.image.topics_by_name["orders"].topic_id,
        isr=[3],
        leader=3,
    )
    host.submit([only_new])
    assert partition.is_reassigning
    assert reassign(host, None).startswith(
        "INVALID_REPLICA_ASSIGNMENT: Unable to revert partition assignment for orders:0"
    )


def test_a_partition_that_is_named_twice_is_reassigned_once() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [1, 2]})
    wanted = [Reassignment("orders", 0, [3, 2]), Reassignment("orders", 0, [1, 3])]
    decision = alter_partition_reassignments(wanted, host.image, host.settings)
    assert len(decision.records) == 1
    assert [outcome(row.error)[:15] for row in decision.rows] == ["ok", "INVALID_REQUEST"]


def test_what_cannot_be_reassigned_is_refused() -> None:
    host = ClusterHost([1, 2])
    host.create("orders")
    assert reassign(host, [1], topic="none") == (
        "UNKNOWN_TOPIC_OR_PARTITION: Unable to find a topic named none."
    )
    assert reassign(host, [1], index=5) == (
        "UNKNOWN_TOPIC_OR_PARTITION: Unable to find partition orders:5."
    )
    assert reassign(host, [9]).startswith("INVALID_REPLICA_ASSIGNMENT")
    assert reassign(host, []).startswith("INVALID_REPLICA_ASSIGNMENT")
    (row,) = alter_partition_reassignments(
        [Reassignment("orders", 0, [1, 2])],
        host.image,
        host.settings,
        allow_replication_factor_change=False,
    ).rows
    assert outcome(row.error).startswith("INVALID_REPLICATION_FACTOR")
