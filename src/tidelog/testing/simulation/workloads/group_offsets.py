"""The offsets of a group, as its members commit and fetch them.

Every commit carries its number as metadata, so that a fetch tells which commit it found. It must be
the last one that was acknowledged, or a later one whose outcome nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import RETRIABLE, ask
from tidelog.testing.simulation.workloads.workspace import Workspace

_BY_NAME_MAX = 9


@dataclass(slots=True)
class Membership:
    """What a member says of itself with every request."""

    client: SimulatedClient
    member_id: str = ""
    epoch: int = -1
    """The generation of a classic group, or the member's epoch."""
    instance_id: str | None = None
    commit_version_min: int = 2
    owned: set[TopicPartition] = field(default_factory=set)
    is_steady: bool = False
    """It knows what it owns, and does not give any of it up."""


@dataclass(slots=True)
class _Commit:
    offset: int
    is_refused: bool = False


@dataclass(slots=True)
class _Partition:
    commits: list[_Commit] = field(default_factory=list)
    acknowledged: int = -1
    """The newest commit that was acknowledged, by its number."""
    epoch: int = -1
    """The newest in which a member was told that it owns the partition."""


class Group:
    """One group: its members, and what they know of its offsets."""

    def __init__(self, name: str, workspace: Workspace, *, is_mixed: bool = False) -> None:
        self.name = name
        self.is_mixed = is_mixed
        """It has members with both protocols. Its epochs begin again when it is empty and changes
        its kind."""
        self.workspace = workspace
        self.members: list[Membership] = []
        self.is_settled = False
        self.acknowledged = 0
        self._partitions: dict[TopicPartition, _Partition] = {}

    def notice_settling(self) -> None:
        """Once nothing new begins, each partition must come to have one owner; then all end."""
        if (
            self.is_settled
            or not self.workspace.is_over
            or not all(each.is_steady for each in self.members)
        ):
            return
        owned = sorted(partition for each in self.members for partition in each.owned)
        self.is_settled = owned == sorted(self.workspace.partitions)

    async def take(self, member: Membership, partitions: list[TopicPartition]) -> bool:
        """A member was told that it owns partitions: it looks where to go on. False when it is
        not a member any more by then."""
        for partition in partitions:
            known = self._of(partition)
            known.epoch = max(known.epoch, member.epoch)
        return not partitions or await self._fetch(member, partitions)

    async def _fetch(self, member: Membership, partitions: list[TopicPartition]) -> bool:
        client = member.client
        expected = {partition: self._of(partition).acknowledged for partition in partitions}
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        asked = OffsetFetchRequestGroup(
            group_id=self.name,
            member_id=member.member_id,
            member_epoch=member.epoch,
            topics=[
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
        answered = await ask(
            client,
            OffsetFetchRequest(groups=[asked]),
            OffsetFetchResponse,
            lambda response: response.groups[0].error_code,
            version_max=_BY_NAME_MAX,
        )
        if answered.code is not ErrorCode.NONE:
            client.trace(f"fetch of offsets: {answered.code.name}")
            return False
        for topic_row in answered.response.groups[0].topics:
            for row in topic_row.partitions:
                partition = TopicPartition(topic_row.name, row.partition_index)
                number = int(row.metadata) if row.metadata else -1
                self._check(client, partition, number, row.committed_offset, expected[partition])
        return True

    def _check(
        self,
        client: SimulatedClient,
        partition: TopicPartition,
        number: int,
        offset: int,
        expected: int,
    ) -> None:
        commits = self._of(partition).commits
        found = commits[number] if number >= 0 else _Commit(-1)
        if number < expected:
            what = f"after commit {expected} ({commits[expected].offset}) was acknowledged"
        elif found.is_refused:
            what = "though that commit was refused"
        elif found.offset != offset:
            what = f"though that commit was of {found.offset}"
        else:
            return
        self.workspace.problem(
            client.name,
            f"{partition} of {self.name} is at {offset} by commit {number}, {what}",
        )

    async def commit(self, member: Membership, partition: TopicPartition) -> ErrorCode | None:
        """Commit the next offset of a partition; None when the outcome is not known."""
        client = member.client
        known = self._of(partition)
        number = len(known.commits)
        offset = known.commits[-1].offset + 1 if known.commits else 1
        commit = _Commit(offset)
        known.commits.append(commit)
        is_outdated = known.epoch > member.epoch and not self.is_mixed
        row = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_metadata=str(number),
        )
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[row])],
        )
        version = client.random.randint(member.commit_version_min, _BY_NAME_MAX)
        try:
            answer = await client.call(request, OffsetCommitResponse, version_max=version)
        except PeerError as error:
            client.trace(f"commit {number} of {partition}: {error}")
            return None
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        client.trace(f"commit {number} of {partition}, {offset}: {code.name}")
        if code in RETRIABLE:
            return None
        if code is not ErrorCode.NONE:
            commit.is_refused = True
            return code
        known.acknowledged = max(known.acknowledged, number)
        self.acknowledged += 1
        if is_outdated:
            self.workspace.problem(
                client.name,
                f"a commit of {partition} in epoch {member.epoch} was taken after another member "
                f"had got it in epoch {known.epoch}",
            )
        return code

    def _of(self, partition: TopicPartition) -> _Partition:
        return self._partitions.setdefault(partition, _Partition())
