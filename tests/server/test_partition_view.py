"""What clients are told of a partition whose replicas are not all well."""

from tidelog.cluster.directory_ids import LOST, MIGRATING, UNASSIGNED
from tidelog.cluster.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from tidelog.protocol.errors import ErrorCode
from tidelog.server.partition_view import partition_view

DIRECTORY = b"\x01" * 16
PARTITION = PartitionImage(
    partition=0,
    leader=1,
    leader_epoch=7,
    partition_epoch=9,
    replicas=(1, 2),
    isr=(1,),
    directories=(DIRECTORY, DIRECTORY),
)


def broker(number: int) -> BrokerImage:
    return BrokerImage(
        number,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", "host", 9092),),
        fenced=False,
        log_dirs=(DIRECTORY,),
    )


def image(*brokers: BrokerImage) -> MetadataImage:
    return MetadataImage(brokers={each.broker_id: each for each in brokers})


def test_a_healthy_partition_has_its_leader() -> None:
    view = partition_view(image(broker(1), broker(2)), PARTITION, "PLAINTEXT")
    assert (view.error, view.leader, view.leader_epoch) == (ErrorCode.NONE, 1, 7)
    assert (view.replicas, view.isr, view.offline_replicas) == ([1, 2], [1], [])


def test_a_leader_that_is_gone_or_fenced_is_not_available() -> None:
    for brokers in ([broker(2)], [broker(1)._replace(fenced=True), broker(2)]):
        view = partition_view(image(*brokers), PARTITION, "PLAINTEXT")
        assert (view.error, view.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert view.offline_replicas == [1]
        assert view.leader_epoch == 7


def test_a_leader_without_the_clients_listener_is_told() -> None:
    view = partition_view(image(broker(1), broker(2)), PARTITION, "TLS")
    assert (view.error, view.leader) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    assert view.offline_replicas == [1, 2]


def test_a_replica_on_a_failed_directory_is_offline() -> None:
    brokers = image(broker(1), broker(2)._replace(log_dirs=(b"\x02" * 16,)))
    assert partition_view(brokers, PARTITION, "PLAINTEXT").offline_replicas == [2]


def test_a_replica_without_an_assigned_directory_is_not() -> None:
    unassigned = PARTITION._replace(directories=(MIGRATING, UNASSIGNED))
    assert (
        partition_view(image(broker(1), broker(2)), unassigned, "PLAINTEXT").offline_replicas == []
    )


def test_a_replica_on_one_of_the_failed_directories_is_offline() -> None:
    lost = PARTITION._replace(directories=(MIGRATING, LOST))
    brokers = image(broker(1), broker(2))
    assert partition_view(brokers, lost, "PLAINTEXT").offline_replicas == [2]
