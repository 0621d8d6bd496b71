"""Every version of the group APIs on the wire, as clients of all ages send them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.groups.conftest import SETTINGS
from tests.groups.librdkafka_member import eventually
from tidelog.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_groups import DeleteGroupsRequest
from tidelog.protocol.apis.describe_groups import DescribeGroupsRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.apis.list_groups import ListGroupsRequest
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

TOPIC = "wire"


@pytest.fixture(scope="module")
def wire_broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        with WireClient("127.0.0.1", running.port) as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), version=5)
        yield running


@pytest.fixture
def client(wire_broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", wire_broker.port) as connected:
        connected.call(FindCoordinatorRequest(key="g"), version=0)
        yield connected


def topic_id(broker: Broker) -> bytes:
    return broker.node.image.topics_by_name[TOPIC].topic_id


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_found_by_one_key_or_by_many(client: WireClient, version: int) -> None:
    keys = ["a", "b", "c"]
    request = FindCoordinatorRequest(key="a", coordinator_keys=keys)
    response = client.call(request, version)
    if version < 4:
        assert (response.error_code, response.host) == (0, "127.0.0.1")
        assert response.port > 0
    else:
        assert [row.key for row in response.coordinators] == keys
        assert {(row.error_code, row.host) for row in response.coordinators} == {(0, "127.0.0.1")}


def test_an_unknown_kind_of_coordinator_is_refused(client: WireClient) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])
    (row,) = client.call(request, version=6).coordinators
    assert row.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(10))
def test_a_group_forms_in_every_version(client: WireClient, version: int) -> None:
    group = f"form-{version}"
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="sr",
        protocols=[JoinGroupRequestProtocol(name="v0", metadata=b"\xffopaque")],
    )
    joined = client.call(request, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = joined.member_id
        joined = client.call(request, version)
    assert joined.error_code == 0
    assert (joined.generation_id, joined.protocol_name) == (1, "v0")
    assert joined.leader == joined.member_id
    assert [row.metadata for row in joined.members] == [b"\xffopaque"]
    member_id = joined.member_id

    sync = client.call(
        SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member_id,
            protocol_type="sr",
            protocol_name="v0",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
        ),
        min(version, 5),
    )
    assert (sync.error_code, sync.assignment) == (0, b"mine")
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
    assert client.call(beat, min(version, 4)).error_code == 0

    described = client.call(DescribeGroupsRequest(groups=[group]), min(version, 6)).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "v0")
    assert described.members[0].member_assignment == b"mine"

    leave_version = min(version, 5)
    leave = LeaveGroupRequest(
        group_id=group, member_id=member_id, members=[MemberIdentity(member_id=member_id)]
    )
    assert client.call(leave, leave_version).error_code == 0
    again = client.call(leave, leave_version)
    code = again.error_code if leave_version < 3 else again.members[0].error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    results = client.call(DeleteGroupsRequest(groups_names=[group]), min(version, 2)).results
    assert [row.error_code for row in results] == [0]


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(
    client: WireClient, wire_broker: Broker, version: int
) -> None:
    group = f"commit-{version}"
    row = OffsetCommitRequestPartition(
        partition_index=2, committed_offset=11, committed_leader_epoch=0, committed_metadata="m"
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id(wire_broker), partitions=[row])
    unknown = OffsetCommitRequestTopic(name="nope", topic_id=b"n" * 16, partitions=[row])
    request = OffsetCommitRequest(group_id=group, topics=[topic, unknown])
    response = client.call(request, version)
    known_row, unknown_row = response.topics
    assert known_row.partitions[0].error_code == 0
    if version >= 10:
        assert known_row.topic_id == topic_id(wire_broker)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown_row.partitions[0].error_code == expected


@pytest.mark.parametrize(
    ("version", "everything"),
    # Version 1 cannot ask for everything.
    [(version, False) for version in range(1, 11)] + [(version, True) for version in range(2, 11)],
)
def test_offsets_are_fetched_in_every_version(
    client: WireClient, wire_broker: Broker, version: int, everything: bool
) -> None:
    commit_topic = OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=1, committed_offset=5, committed_metadata="é"
            )
        ],
    )
    client.call(OffsetCommitRequest(group_id="fetch", topics=[commit_topic]), version=5)
    old = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
    new = [
        OffsetFetchRequestTopics(
            name=TOPIC, topic_id=topic_id(wire_broker), partition_indexes=[0, 1]
        )
    ]
    request = OffsetFetchRequest(
        group_id="fetch",
        topics=None if everything and version < 8 else old,
        groups=[
            OffsetFetchRequestGroup(group_id="fetch", topics=None if everything else new),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
        ],
        require_stable=True,
    )
    response = client.call(request, version)
    if version >= 8:
        assert [row.group_id for row in response.groups] == ["fetch", "nobody"]
        assert response.groups[1].topics == []
        response = response.groups[0]
    assert response.error_code == 0
    (topic,) = response.topics
    if version >= 10:
        assert topic.topic_id == topic_id(wire_broker)
    else:
        assert topic.name == TOPIC
    rows = {
        row.partition_index: (row.committed_offset, row.metadata, row.error_code)
        for row in topic.partitions
    }
    assert rows == {1: (5, "é", 0)} | ({} if everything else {0: (-1, "", 0)})


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_of_partitions_that_do_not_exist_are_refused(
    client: WireClient, wire_broker: Broker, version: int
) -> None:
    group = f"no-such-partition-{version}"
    topic = OffsetCommitRequestTopic(
        name=TOPIC,
        topic_id=topic_id(wire_broker),
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in (-7, 1, 3, 2)
        ],
    )
    (answered,) = client.call(OffsetCommitRequest(group_id=group, topics=[topic]), version).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {row.partition_index: row.error_code for row in answered.partitions} == {
        -7: unknown,
        3: unknown,
        1: 0,
        2: 0,
    }
    fetched = client.call(OffsetFetchRequest(group_id=group, topics=None), 5)
    assert sorted(row.partition_index for row in fetched.topics[0].partitions) == [1, 2]


def test_only_partitions_that_do_not_exist_are_refused_without_the_coordinator(
    client: WireClient,
) -> None:
    """The group is not made, and the member is not looked for."""
    row = OffsetCommitRequestPartition(partition_index=3, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="never-made",
        member_id="nobody",
        generation_id_or_member_epoch=7,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
    )
    (topic,) = client.call(request, 9).topics
    assert [row.error_code for row in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    groups = {row.group_id for row in client.call(ListGroupsRequest(), 4).groups}
    assert "never-made" not in groups


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_with_filters(client: WireClient, version: int) -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="listed-consumer",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert client.call(heartbeat, version=1).error_code == 0
    topic = OffsetCommitRequestTopic(
        name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_metadata="")]
    )
    client.call(OffsetCommitRequest(group_id="listed-classic", topics=[topic]), version=5)
    request = ListGroupsRequest(
        states_filter=["empty"] if version == 4 else [],
        types_filter=["Consumer"] if version == 5 else [],
    )
    rows = {row.group_id: row for row in client.call(request, version).groups}
    assert ("listed-classic" in rows) == (version != 5)
    assert ("listed-consumer" in rows) == (version != 4)
    if version == 5:
        assert rows["listed-consumer"].group_type == "consumer"


def test_offsets_are_deleted(client: WireClient) -> None:
    topic = OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[OffsetCommitRequestPartition(committed_offset=3, committed_metadata="")],
    )
    client.call(OffsetCommitRequest(group_id="delete", topics=[topic]), version=5)
    row = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id="delete",
        topics=[
            OffsetDeleteRequestTopic(name=TOPIC, partitions=[row]),
            OffsetDeleteRequestTopic(name="nope", partitions=[row]),
        ],
    )
    response = client.call(request, version=0)
    codes = {t.name: t.partitions[0].error_code for t in response.topics}
    assert codes == {TOPIC: 0, "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    fetched = client.call(
        OffsetFetchRequest(
            group_id="delete", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        ),
        version=5,
    )
    assert fetched.topics[0].partitions[0].committed_offset == -1


def test_offsets_of_partitions_that_do_not_exist_are_not_deleted(client: WireClient) -> None:
    commit = OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[OffsetCommitRequestPartition(committed_offset=3, committed_metadata="")],
    )
    client.call(OffsetCommitRequest(group_id="delete-few", topics=[commit]), version=5)
    topic = OffsetDeleteRequestTopic(
        name=TOPIC,
        partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 3, -1)],
    )
    (answered,) = client.call(
        OffsetDeleteRequest(group_id="delete-few", topics=[topic]), version=0
    ).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {row.partition_index: row.error_code for row in answered.partitions} == {
        0: 0,
        3: unknown,
        -1: unknown,
    }


def test_a_group_needs_a_name(client: WireClient) -> None:
    assert client.call(HeartbeatRequest(), version=3).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(JoinGroupRequest(), version=3).error_code == ErrorCode.INVALID_GROUP_ID


def test_members_that_go_away_while_joining_do_no_harm(
    client: WireClient, wire_broker: Broker
) -> None:
    def join(member_id: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="gone",
            session_timeout_ms=1_000,
            rebalance_timeout_ms=2_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    leader = client.call(join(), version=3)
    client.call(
        SyncGroupRequest(group_id="gone", generation_id=1, member_id=leader.member_id), version=3
    )
    with WireClient("127.0.0.1", wire_broker.port) as other:
        other.send(join(), version=3)
        # The other's join is parked once the group asks this member to join again.
        beat = HeartbeatRequest(group_id="gone", generation_id=1, member_id=leader.member_id)
        eventually(lambda: client.call(beat, version=3).error_code != 0, "a rebalance")
    again = client.call(join(leader.member_id), version=3)
    assert (again.error_code, again.generation_id) == (0, 2)
    assert len(again.members) == 2, "it may come back: it stays until its session ends"


def _beat(client: WireClient, group: str, member: str, epoch: int) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 10_000
        request.subscribed_topic_names = [TOPIC]
        request.topic_partitions = []
    return client.call(request, 1)


def _set(client: WireClient, resource_type: int, name: str, setting: str, value: str) -> int:
    change = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[change]
    )
    (row,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    code: int = row.error_code
    return code


@pytest.mark.parametrize(
    ("resource_type", "setting"),
    [(32, "consumer.assignment.interval.ms"), (4, "group.consumer.assignment.interval.ms")],
)
def test_the_assignment_interval_holds_at_once_for_a_group_or_for_the_broker(
    client: WireClient, resource_type: int, setting: str
) -> None:
    group = f"interval-{resource_type}"
    name = group if resource_type == 32 else ""
    assert _set(client, resource_type, name, setting, "15000") == 0
    assert _beat(client, group, "a", 0).member_epoch == 1
    assert _beat(client, group, "b", 0).member_epoch == 1
    assert _beat(client, group, "b", 1).member_epoch == 1, "the next assignment has to wait"
    assert _set(client, resource_type, name, setting, "0") == 0
    assert _beat(client, group, "b", 1).member_epoch == 2


def test_the_assignment_interval_of_a_group_has_limits(client: WireClient) -> None:
    setting = "consumer.assignment.interval.ms"
    assert _set(client, 32, "limits", setting, "15001") == ErrorCode.INVALID_CONFIG
    assert _set(client, 32, "limits", setting, "-1") == ErrorCode.INVALID_CONFIG


@pytest.fixture(scope="module")
def broker_at_group_version_0() -> Iterator[Broker]:
    with Broker() as running:
        with WireClient("127.0.0.1", running.port) as client:
            update = FeatureUpdateKey(
                feature="group.version", max_version_level=0, upgrade_type=_SAFE_DOWNGRADE
            )
            request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=20_000)
            assert client.call(request, 1).error_code == 0
        yield running


_SAFE_DOWNGRADE = 2


def test_group_version_0_has_no_consumer_protocol(broker_at_group_version_0: Broker) -> None:
    with WireClient("127.0.0.1", broker_at_group_version_0.port) as client:
        client.call(FindCoordinatorRequest(key="g"), version=0)
        for version in range(2):
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            assert client.call(beat, version).error_code == ErrorCode.UNSUPPORTED_VERSION
            (row,) = client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), version).groups
            assert row.error_code == ErrorCode.UNSUPPORTED_VERSION
        # The classic protocol goes on.
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert client.call(join, 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
