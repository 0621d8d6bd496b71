"""Consumer groups of a cluster: list, describe, move and delete them."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.cluster import COORDINATOR_GROUP
from tidelog.client.cluster.retrying import Stale, worst_code
from tidelog.client.cluster.view import Coordinated
from tidelog.client.errors import BrokerError, NotServedError
from tidelog.protocol.apis import consumer_group_describe, describe_groups
from tidelog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tidelog.protocol.consumer_protocol import decode_assignment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"

# What members of consumer groups call their protocol; other types, such as those of Connect, are
# not groups of consumers. A group that only has offsets has none.
_CONSUMER_PROTOCOLS = ("consumer", "")
# The newest version that names topics by name.
_NAMES_UP_TO = 9


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group and the partitions that it is assigned."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; `state` is DEAD if there is none of this name."""

    state: str
    kind: str
    assignor: str | None
    coordinator_id: int | None
    members: tuple[GroupMember, ...]


class Groups:
    """The consumer groups of a cluster. Each call raises BrokerError with what the broker says."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def all(self) -> list[ListedGroup]:
        """The groups that any broker coordinates, by name."""
        answers = self._client.ask_brokers(
            ListGroupsRequest(), ListGroupsResponse, lambda response: response.error_code
        )
        for answer in answers:
            _check(answer.error_code, "cannot list groups")
        rows = [each for answer in answers for each in answer.groups]
        found = [each for each in rows if each.protocol_type in _CONSUMER_PROTOCOLS]
        return sorted(found, key=lambda each: each.group_id)

    def describe(self, group_id: str) -> GroupDescription:
        """The state and the members of a group of either protocol."""
        answer = self._client.ask_coordinator(
            COORDINATOR_GROUP,
            group_id,
            DescribeGroupsRequest(groups=[group_id]),
            DescribeGroupsResponse,
            lambda response: response.groups[0].error_code,
        )
        group = answer.groups[0]
        # Brokers answer so, according to their version, for groups of the newer protocol too.
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            return self._describe_newer(group_id)
        _check(group.error_code, f"cannot describe {group_id}", group.error_message)
        return GroupDescription(
            group.group_state,
            CLASSIC,
            group.protocol_data or None,
            self._coordinator_id(group_id),
            tuple(map(_classic_member, group.members)),
        )

    def committed(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, int]:
        """The committed offsets of a group; `require_stable` waits for open transactions."""
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
            require_stable=require_stable,
        )
        answer = self._client.ask_coordinator(
            COORDINATOR_GROUP,
            group_id,
            request,
            OffsetFetchResponse,
            lambda response: worst_code(_fetch_codes(response), Stale.COORDINATOR),
            version_max=_NAMES_UP_TO,
        )
        for code in _fetch_codes(answer):
            _check(code, f"cannot read the offsets of {group_id}")
        found = _fetched_group(answer)
        return {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in found.topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        generation_id: int = -1,
    ) -> None:
        """Set the offsets of a group: as one of its members, or of a group that has none."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for name, offset in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=name.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(name.topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=rows)
                for topic, rows in topics.items()
            ],
        )
        answer = self._client.ask_coordinator(
            COORDINATOR_GROUP,
            group_id,
            request,
            OffsetCommitResponse,
            lambda response: worst_code(_commit_codes(response).values(), Stale.COORDINATOR),
            version_max=_NAMES_UP_TO,
        )
        for name, code in _commit_codes(answer).items():
            _check(code, f"cannot move the offsets of {group_id}: {name}")

    def delete(self, group_id: str) -> None:
        """Delete a group that has no members, with its offsets."""
        answer = self._client.ask_coordinator(
            COORDINATOR_GROUP,
            group_id,
            DeleteGroupsRequest(groups_names=[group_id]),
            DeleteGroupsResponse,
            lambda response: response.results[0].error_code,
        )
        _check(answer.results[0].error_code, f"cannot delete {group_id}")

    def _describe_newer(self, group_id: str) -> GroupDescription:
        absent = GroupDescription(DEAD, CLASSIC, None, self._coordinator_id(group_id), ())
        try:
            answer = self._client.ask_coordinator(
                COORDINATOR_GROUP,
                group_id,
                ConsumerGroupDescribeRequest(group_ids=[group_id]),
                ConsumerGroupDescribeResponse,
                lambda response: response.groups[0].error_code,
            )
        except NotServedError:
            return absent
        group = answer.groups[0]
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return absent
        _check(group.error_code, f"cannot describe {group_id}", group.error_message)
        return GroupDescription(
            group.group_state,
            CONSUMER,
            group.assignor_name or None,
            self._coordinator_id(group_id),
            tuple(map(_newer_member, group.members)),
        )

    def _coordinator_id(self, group_id: str) -> int | None:
        view = self._client.cluster.view
        address = view.coordinators.get(Coordinated(COORDINATOR_GROUP, group_id))
        return next((node for node, each in view.brokers.items() if each == address), None)


def _classic_member(member: describe_groups.DescribedGroupMember) -> GroupMember:
    assigned = decode_assignment(bytes(member.member_assignment)).assigned_partitions
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        tuple(
            TopicPartition(each.topic, number) for each in assigned for number in each.partitions
        ),
    )


def _newer_member(member: consumer_group_describe.Member) -> GroupMember:
    assigned = member.assignment.topic_partitions
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        tuple(
            TopicPartition(each.topic_name, number)
            for each in assigned
            for number in each.partitions
        ),
    )


def _fetched_group(
    response: OffsetFetchResponse,
) -> OffsetFetchResponse | OffsetFetchResponseGroup:
    """Old versions answer about one group, at the top level."""
    return response.groups[0] if response.groups else response


def _fetch_codes(response: OffsetFetchResponse) -> list[int]:
    group = _fetched_group(response)
    return [
        group.error_code,
        *(row.error_code for topic in group.topics for row in topic.partitions),
    ]


def _commit_codes(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


def _check(error_code: int, doing: str, message: str | None = None) -> None:
    if error_code:
        raise BrokerError(ErrorCode(error_code), doing, message)
