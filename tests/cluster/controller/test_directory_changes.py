"""Log directories fail and are cordoned; replicas are put into them."""

from tests.cluster.cluster_host import ClusterHost, broker_uuid
from tidelog.cluster.controller.directory_changes import (
    DirectoryAssignment,
    assign_replicas_to_dirs,
)


def test_what_was_in_a_directory_that_fails_gets_another_leader() -> None:
    host = ClusterHost([2])
    host.register(1, log_dirs=2)
    host.unfence(1)
    first, second = host.image.brokers[1].log_dirs
    host.create("orders", assignments={0: [1, 2], 1: [1, 2]})
    topic_id = host.image.topics_by_name["orders"].topic_id
    assert host.partition("orders").directories[0] == broker_uuid(1), "not known yet"
    epoch = host.image.brokers[1].epoch
    assignments = [
        DirectoryAssignment(first, topic_id, 0),
        DirectoryAssignment(second, topic_id, 1),
    ]
    rows = host.decide(assign_replicas_to_dirs(assignments, 1, epoch, host.image, host.settings))
    assert [row.error for row in rows] == [None, None]
    assert host.partition("orders").directories[0] == first

    assert not host.beat(1, offline_log_dirs=(first,)).is_fenced
    assert host.image.brokers[1].log_dirs == (second,)
    assert host.describe("orders") == "orders-0: leader 2 at epoch 1, replicas [1, 2], isr [2]"
    assert host.partition("orders", 1).leader == 1
    before = host.image
    host.beat(1, offline_log_dirs=(first,))
    assert host.image is before, "it is known already"

    # A replica that the broker puts into a directory that is offline by now leaves too.
    gone = [DirectoryAssignment(first, topic_id, 1)]
    host.decide(assign_replicas_to_dirs(gone, 1, epoch, host.image, host.settings))
    assert host.describe("orders", 1) == "orders-1: leader 2 at epoch 1, replicas [1, 2], isr [2]"


def test_a_broker_that_comes_back_without_a_directory_does_not_lead_what_was_in_it() -> None:
    host = ClusterHost([2])
    host.register(1, log_dirs=2)
    first, _ = host.image.brokers[1].log_dirs
    host.unfence(1)
    host.create("orders", assignments={0: [1]})
    topic_id = host.image.topics_by_name["orders"].topic_id
    assignment = DirectoryAssignment(first, topic_id, 0)
    epoch = host.image.brokers[1].epoch
    host.decide(assign_replicas_to_dirs([assignment], 1, epoch, host.image, host.settings))
    host.fence(1)
    state = host.beat(1, offline_log_dirs=(first,))
    assert not state.is_fenced
    assert host.partition("orders").leader == -1


def test_cordoned_directories_are_kept_and_get_no_new_replicas() -> None:
    host = ClusterHost([1, 2])
    (directory,) = host.image.brokers[2].log_dirs
    before = host.image
    host.beat(2)
    assert host.image is before, "the broker does not know yet which are"
    host.beat(2, cordoned_log_dirs=(directory,))
    assert host.image.brokers[2].cordoned_log_dirs == (directory,)
    host.create("orders", partition_count=6)
    assert {each.leader for each in host.image.topics_by_name["orders"].partitions} == {1}
    host.beat(2, cordoned_log_dirs=())
    assert not host.image.brokers[2].cordoned_log_dirs


def test_others_lead_what_is_in_a_full_directory() -> None:
    host = ClusterHost([2, 3])
    host.register(1, log_dirs=2)
    host.unfence(1)
    first, second = host.image.brokers[1].log_dirs
    host.create("orders", assignments={0: [1, 2, 3], 1: [1, 2, 3], 2: [2, 1, 3]})
    topic_id = host.image.topics_by_name["orders"].topic_id
    epoch = host.image.brokers[1].epoch
    assignments = [
        DirectoryAssignment(directory, topic_id, index)
        for index, directory in enumerate([first, second, first])
    ]
    host.decide(assign_replicas_to_dirs(assignments, 1, epoch, host.image, host.settings))

    assert not host.beat(1, full_log_dirs=(first,)).is_fenced
    # It stays in sync: everything that is committed is on it.
    assert host.describe("orders") == (
        "orders-0: leader 2 at epoch 1, replicas [1, 2, 3], isr [1, 2, 3]"
    )
    assert host.partition("orders", 1).leader == 1
    assert host.partition("orders", 2).leader == 2
    before = host.image
    host.beat(1, full_log_dirs=(first,))
    assert host.image is before, "nothing is left to do"

    # Whoever is full as well is passed over, as long as one is not.
    host.beat(2, full_log_dirs=host.image.brokers[2].log_dirs)
    assert [host.partition("orders", index).leader for index in range(3)] == [3, 1, 3]


def test_a_leader_without_room_stays_where_no_other_in_sync_has_room() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("alone", assignments={0: [1]})
    host.create("orders", assignments={0: [1, 2], 1: [1, 3]})
    host.fence(3)
    host.beat(2, full_log_dirs=host.image.brokers[2].log_dirs)
    before = host.image
    host.beat(1, full_log_dirs=host.image.brokers[1].log_dirs)
    assert host.image is before
    assert [host.partition("orders", index).leader for index in range(2)] == [1, 1]
    host.beat(2)  # it has room again, which the other's next heartbeat is decided with
    host.beat(1, full_log_dirs=host.image.brokers[1].log_dirs)
    assert [host.partition("orders", index).leader for index in range(2)] == [2, 1]
    assert host.partition("alone").leader == 1


def test_a_replica_that_is_not_known_to_be_elsewhere_may_be_in_the_full_directory() -> None:
    host = ClusterHost([2])
    host.register(1, log_dirs=2)
    host.unfence(1)
    host.create("orders", assignments={0: [1, 2]})
    assert host.partition("orders").directories[0] == broker_uuid(1), "not known yet"
    first, _ = host.image.brokers[1].log_dirs
    host.beat(1, full_log_dirs=(first,))
    assert host.partition("orders").leader == 2
