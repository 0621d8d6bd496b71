"""DescribeCluster, DescribeQuorum, DescribeLogDirs and friends: the truth about one node."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.handlers.admin_calls import create_topic, produce
from tidelog.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.apis.describe_cluster import DescribeClusterRequest
from tidelog.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    PartitionRequest,
    TopicRequest,
)
from tidelog.protocol.apis.list_config_resources import ListConfigResourcesRequest
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.protocol.apis.unregister_broker import UnregisterBrokerRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import format_uuid
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_node(wire: WireClient, handlers_broker: Broker, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = wire.call(request, version)
    assert (response.error_code, response.controller_id) == (0, 1)
    assert response.cluster_id == wire.call(MetadataRequest(topics=[]), 9).cluster_id
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", handlers_broker.port)
    assert (broker.rack, broker.is_fenced) == ("rack-a", False)
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000


def test_a_broker_does_not_describe_controllers(wire: WireClient) -> None:
    response = wire.call(DescribeClusterRequest(endpoint_type=2), 1)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    response = wire.call(DescribeClusterRequest(endpoint_type=5), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_this_node(wire: WireClient, handlers_broker: Broker, version: int) -> None:
    before_ms = time.time_ns() // 1_000_000
    request = DescribeQuorumRequest(
        topics=[
            TopicRequest(
                topic_name="__cluster_metadata", partitions=[PartitionRequest(partition_index=0)]
            ),
            TopicRequest(topic_name="other", partitions=[PartitionRequest(partition_index=3)]),
        ]
    )
    response = wire.call(request, version)
    assert response.error_code == 0
    quorum = response.topics[0].partitions[0]
    assert (quorum.error_code, quorum.leader_id) == (0, 1)
    assert quorum.leader_epoch > 0
    assert quorum.high_watermark > 0
    (voter,) = quorum.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, quorum.high_watermark)
    assert quorum.observers == []
    if version >= 1:
        # The leader is always caught up with itself.
        assert before_ms <= voter.last_fetch_timestamp <= time.time_ns() // 1_000_000
        assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
    if version >= 2:
        (directory,) = (
            line.removeprefix("directory.id=")
            for line in (handlers_broker.data / "meta.properties").read_text().splitlines()
            if line.startswith("directory.id=")
        )
        assert format_uuid(voter.replica_directory_id) == directory
        host, port = handlers_broker.bootstrap_servers.rsplit(":", 1)
        (quorum_node,) = response.nodes
        assert quorum_node.node_id == 1
        assert [(each.name, each.host, each.port) for each in quorum_node.listeners] == [
            ("PLAINTEXT", host, int(port))
        ]
    other = response.topics[1].partitions[0]
    assert (other.partition_index, other.error_code) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_tell_their_space_and_logs(
    wire: WireClient, handlers_broker: Broker, new_name: NewName, version: int
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic, partitions=2)
    produce(wire, topic, 1, partition=1)
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[1, 9])])
    response = wire.call(asked, version)
    assert response.error_code == 0
    (directory,) = response.results
    assert (directory.error_code, directory.log_dir) == (0, str(handlers_broker.data.absolute()))
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    ((name, (partition,)),) = [(each.name, each.partitions) for each in directory.topics]
    assert (name, partition.partition_index, partition.is_future_key) == (topic, 1, False)
    assert partition.partition_size > 0
    assert partition.offset_lag == 0
    everything = wire.call(DescribeLogDirsRequest(topics=None), version).results[0]
    assert topic in [each.name for each in everything.topics]


def test_replicas_move_to_directories_of_the_node_only(
    wire: WireClient, handlers_broker: Broker, new_name: NewName, tmp_path: Path
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)

    def moved_to(path: Path, partition: int = 0) -> int:
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=str(path),
                    topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])],
                )
            ]
        )
        (row,) = wire.call(request, 2).results
        assert (row.topic_name, row.partitions[0].partition_index) == (topic, partition)
        return int(row.partitions[0].error_code)

    here = handlers_broker.data.absolute()
    assert moved_to(here) == 0
    assert moved_to(tmp_path) == ErrorCode.LOG_DIR_NOT_FOUND
    assert moved_to(here, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_resources_with_settings_are_listed(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    listed = wire.call(ListConfigResourcesRequest(resource_types=[2, 4]), 1)
    assert listed.error_code == 0
    rows = {(each.resource_type, each.resource_name) for each in listed.config_resources}
    assert {(2, topic), (4, "1")} <= rows
    assert wire.call(ListConfigResourcesRequest(resource_types=[99]), 1).error_code == (
        ErrorCode.UNSUPPORTED_VERSION
    )
    everything = wire.call(ListConfigResourcesRequest(), 1).config_resources
    assert rows <= {(each.resource_type, each.resource_name) for each in everything}


def test_a_living_broker_is_not_unregistered(wire: WireClient) -> None:
    response = wire.call(UnregisterBrokerRequest(broker_id=1), 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    response = wire.call(UnregisterBrokerRequest(broker_id=42), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
