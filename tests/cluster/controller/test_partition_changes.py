"""Kafka's rules for changes of a partition, one by one: what a change makes of a partition."""

import pytest

from tests.cluster.cluster_host import WITHOUT_ELIGIBLE_REPLICAS, ClusterHost, broker_uuid
from tidelog.cluster.controller.partition_changes import (
    Election,
    PartitionChange,
    PartitionRules,
    is_complete,
)
from tidelog.cluster.directory_ids import LOST, MIGRATING, UNASSIGNED
from tidelog.cluster.metadata.image import (
    ConfigResourceType,
    LeaderRecoveryState,
    PartitionImage,
    TopicImage,
)
from tidelog.cluster.metadata.image_changes import merge_partition
from tidelog.cluster.metadata.records.settings import ConfigRecord

TOPIC_ID = b"T" * 16


def partition(**fields: object) -> PartitionImage:
    return PartitionImage(0, 1, 5, 9, (1, 2, 3), (1, 2, 3))._replace(**fields)  # type: ignore[arg-type]


def changed(host: ClusterHost, before: PartitionImage, **wanted: object) -> PartitionImage | None:
    """The partition after the change; None when nothing changes."""
    setting = ConfigRecord(
        resource_type=ConfigResourceType.TOPIC,
        resource_name="orders",
        name="min.insync.replicas",
        value="2",
    )
    host.submit([setting])
    topic = TopicImage("orders", TOPIC_ID, (before,))
    rules = PartitionRules(host.image, host.settings)
    record = PartitionChange(topic, before, rules, **wanted).record()  # type: ignore[arg-type]
    return None if record is None else merge_partition(before, record)


def test_nothing_wanted_is_no_change() -> None:
    assert changed(ClusterHost([1, 2, 3]), partition()) is None


@pytest.mark.parametrize(("metadata_version", "leader_epoch"), [(11, 6), (12, 5), (30, 5)])
def test_a_smaller_in_sync_set_keeps_the_leader_epoch_since_3_6(
    metadata_version: int, leader_epoch: int
) -> None:
    host = ClusterHost([1, 2, 3], metadata_version=metadata_version)
    after = changed(host, partition(), isr=(1, 2))
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2), 1, leader_epoch)
    assert after.partition_epoch == 10


def test_a_larger_in_sync_set_never_raises_the_leader_epoch() -> None:
    host = ClusterHost([1, 2, 3], metadata_version=11)
    after = changed(host, partition(isr=(1,)), isr=(1, 2))
    assert after is not None
    assert (after.leader_epoch, after.partition_epoch) == (5, 10)


def test_taking_a_replica_away_raises_the_leader_epoch_of_a_leader_that_stays() -> None:
    after = changed(ClusterHost([1, 2, 3]), partition(), replicas=(1, 2), isr=(1, 2))
    assert after is not None
    assert (after.leader, after.leader_epoch) == (1, 6)


def test_another_order_of_the_replicas_does_not() -> None:
    after = changed(ClusterHost([1, 2, 3]), partition(), replicas=(3, 2, 1))
    assert after is not None
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 5, (3, 2, 1))


# Eligible leader replicas; min.insync.replicas is 2


def test_whoever_leaves_an_in_sync_set_that_becomes_too_small_is_eligible() -> None:
    after = changed(ClusterHost([1, 2, 3]), partition(), isr=(1,))
    assert after is not None
    assert (after.isr, after.eligible_leader_replicas) == ((1,), (2, 3))


def test_whoever_leaves_one_that_stays_large_enough_is_not() -> None:
    after = changed(ClusterHost([1, 2, 3]), partition(), isr=(1, 2))
    assert after is not None
    assert after.eligible_leader_replicas == ()


def test_nobody_is_eligible_any_more_when_enough_are_in_sync() -> None:
    before = partition(isr=(1,), eligible_leader_replicas=(2, 3))
    after = changed(ClusterHost([1, 2, 3]), before, isr=(1, 3))
    assert after is not None
    assert (after.isr, after.eligible_leader_replicas) == ((1, 3), ())


def test_a_replica_that_stopped_uncleanly_is_not_eligible() -> None:
    before = partition(leader=2, isr=(2,), eligible_leader_replicas=(1, 3))
    after = changed(ClusterHost([1, 2, 3]), before, unclean_shutdowns=(3,))
    assert after is not None
    assert (after.isr, after.eligible_leader_replicas) == ((2,), (1,))


def test_the_needed_number_is_never_larger_than_that_of_the_replicas() -> None:
    before = partition(replicas=(1,), isr=(1,))
    assert changed(ClusterHost([1]), before) is None


def test_an_eligible_replica_leads_when_nobody_is_in_sync_and_is_then_in_sync() -> None:
    host = ClusterHost([1, 2, 3])
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    host.fence(2)
    after = changed(host, before)
    assert after is not None
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (3, (3,), (2,))
    assert after.last_known_elr == ()
    assert after.leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_an_eligible_replica_does_not_lead_while_somebody_is_in_sync() -> None:
    host = ClusterHost([1, 2, 3])
    host.fence(1)
    before = partition(leader=-1, isr=(1,), eligible_leader_replicas=(2,), last_known_elr=(1,))
    assert changed(host, before) is None


def test_the_last_known_leader_leads_when_nobody_is_known_to_have_everything() -> None:
    host = ClusterHost([1, 2, 3])
    before = partition(leader=-1, isr=(), last_known_elr=(2,))
    after = changed(host, before)
    assert after is not None
    assert (after.leader, after.isr, after.last_known_elr) == (2, (2,), ())
    assert after.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_several_last_known_replicas_are_no_leader() -> None:
    before = partition(leader=-1, isr=(), last_known_elr=(2, 3))
    assert changed(ClusterHost([1, 2, 3]), before) is None


def test_the_last_known_leader_does_not_change_while_there_is_none() -> None:
    host = ClusterHost([1, 2, 3])
    for broker_id in (1, 2, 3):
        host.fence(broker_id)
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    after = changed(host, before, unclean_shutdowns=(2,))
    assert after is not None
    assert (after.eligible_leader_replicas, after.last_known_elr) == ((3,), (1,))


def test_an_unclean_election_leaves_nobody_eligible() -> None:
    host = ClusterHost([1, 2, 3])
    host.fence(1)
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(1,), last_known_elr=(1,))
    assert changed(host, before) is None
    after = changed(host, before, election=Election.UNCLEAN)
    assert after is not None
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (2, (2,), ())
    assert after.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert after.last_known_elr == ()


def test_it_leaves_nobody_eligible_even_if_it_takes_one_who_was() -> None:
    host = ClusterHost([1, 2, 3])
    host.fence(1)
    before = partition(leader=-1, isr=(1,), eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    after = changed(host, before, election=Election.UNCLEAN)
    assert after is not None
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (2, (2,), ())
    assert after.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_without_the_feature_the_last_in_sync_replica_stays_and_nobody_is_eligible() -> None:
    host = ClusterHost([1, 2, 3], features=WITHOUT_ELIGIBLE_REPLICAS)
    host.fence(1)
    after = changed(host, partition(isr=(1,), eligible_leader_replicas=(2,)), isr=())
    assert after is not None
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (-1, (1,), ())
    assert after.last_known_elr == ()


def test_replicas_that_were_eligible_when_the_feature_was_turned_off_may_still_lead() -> None:
    host = ClusterHost([1, 2, 3], features=WITHOUT_ELIGIBLE_REPLICAS)
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    host.fence(2)
    host.fence(3)
    assert changed(host, before) is None, "1 may lack records"
    assert changed(host, before, isr=()) is None, "nobody is in sync because of that"
    after = changed(host, before, unclean_shutdowns=(3,))
    assert after is not None
    assert after.eligible_leader_replicas == (2,)
    host.unfence(2)
    after = changed(host, before)
    assert after is not None
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (2, (2,), ())


def test_the_last_in_sync_replica_is_remembered_when_the_feature_was_off_as_it_went() -> None:
    """It lost its leadership without being noted, and then it may have lost records."""
    host = ClusterHost([1, 2, 3])
    before = partition(leader=-1, isr=(2,))
    host.fence(2)
    after = changed(host, before, isr=(), unclean_shutdowns=(2,))
    assert after is not None
    assert (after.leader, after.isr, after.last_known_elr) == (-1, (), (2,))
    host.unfence(2)
    back = changed(host, after)
    assert back is not None
    assert (back.leader, back.isr, back.last_known_elr) == (2, (2,), ())
    assert back.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_the_last_known_leader_leads_after_the_feature_was_turned_off() -> None:
    """Nobody else is left to wait for: the last one that was eligible has lost records too."""
    host = ClusterHost([1, 2, 3], features=WITHOUT_ELIGIBLE_REPLICAS)
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(2,), last_known_elr=(1,))
    host.fence(2)
    after = changed(host, before, unclean_shutdowns=(2,))
    assert after is not None
    assert (after.leader, after.isr, after.last_known_elr) == (1, (1,), ())
    assert after.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_a_partition_without_a_leader_that_loses_a_replica_has_no_last_leader_for_it() -> None:
    host = ClusterHost([1, 2, 3])
    for broker_id in (1, 2, 3):
        host.fence(broker_id)
    before = partition(leader=-1, isr=(), eligible_leader_replicas=(1, 2))
    after = changed(host, before, replicas=(1, 2))
    assert after is not None
    assert (after.leader, after.leader_epoch, after.last_known_elr) == (-1, 6, ())


def test_replicas_that_a_finished_reassignment_takes_away_are_not_eligible() -> None:
    before = partition(
        replicas=(3, 1, 2), isr=(1, 2), removing_replicas=(1, 2), adding_replicas=(3,)
    )
    after = changed(ClusterHost([1, 2, 3]), before, isr=(1, 2, 3))
    assert after is not None
    assert (after.replicas, after.isr, after.leader) == ((3,), (3,), 3)
    assert after.eligible_leader_replicas == ()


# Elections


def test_the_preferred_replica_leads_if_it_is_in_sync() -> None:
    host = ClusterHost([1, 2, 3])
    after = changed(host, partition(leader=2), election=Election.PREFERRED)
    assert after is not None
    assert (after.leader, after.leader_epoch) == (1, 6)
    assert changed(host, partition(leader=2, isr=(2, 3)), election=Election.PREFERRED) is None


def test_the_leader_stays_unless_the_preferred_one_is_wanted() -> None:
    assert changed(ClusterHost([1, 2, 3]), partition(leader=2)) is None


def test_a_replica_in_a_directory_that_is_offline_does_not_lead() -> None:
    host = ClusterHost([1, 2, 3])
    online = tuple(broker_uuid(100 * broker_id) for broker_id in (1, 2, 3))
    before = partition(leader=-1, directories=(LOST, broker_uuid(999), online[2]))
    after = changed(host, before)
    assert after is not None
    assert after.leader == 3
    unknown = partition(leader=-1, directories=(UNASSIGNED, MIGRATING, online[2]))
    after = changed(host, unknown)
    assert after is not None
    assert after.leader == 1


def test_new_replicas_get_the_only_directory_of_their_broker_or_none_yet() -> None:
    host = ClusterHost([1, 2])
    host.register(3, log_dirs=2)
    directories = (broker_uuid(100), broker_uuid(200))
    before = partition(replicas=(1, 2), isr=(1, 2), directories=directories)
    after = changed(host, before, replicas=(3, 1, 2), adding=(3,))
    assert after is not None
    assert after.directories == (UNASSIGNED, *directories)


# The end of a reassignment


@pytest.mark.parametrize(
    ("replicas", "isr", "removing", "adding", "ends"),
    [
        ((4, 1), (1, 4), (1,), (4,), True),
        ((4, 1), (1,), (1,), (4,), False),
        ((4, 5, 1), (1, 4), (1,), (4, 5), False),
        # Fewer replicas: all that stay have to be in sync.
        ((2, 3, 4, 5, 0, 1), (0, 1, 5), (0, 1), (5,), False),
        ((2, 3, 4, 5, 0, 1), (0, 1, 2, 3, 4, 5), (0, 1), (5,), True),
        # As many: the new ones are enough.
        ((4, 2, 1), (1, 4), (1,), (4,), True),
        ((1, 2), (2,), (2,), (), False),
    ],
)
def test_a_reassignment_ends_when_what_it_adds_is_in_sync(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    removing: tuple[int, ...],
    adding: tuple[int, ...],
    ends: bool,
) -> None:
    assert is_complete(replicas, isr, removing, adding) is ends
