"""How a cluster is: its quorum, its nodes, and the partitions that lack replicas.

All of it is what any broker tells: DescribeCluster, DescribeQuorum, Metadata, and the topics'
`min.insync.replicas`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.errors import BrokerError
from tidelog.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionRequest,
    ReplicaState,
    TopicRequest,
)
from tidelog.protocol.apis.metadata import MetadataResponseTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID

_METADATA_TOPIC = "__cluster_metadata"
_TOPIC_RESOURCE = 2
_MIN_INSYNC_REPLICAS = "min.insync.replicas"
# A voter fetches many times in a second; one that has not caught up for so long has a problem.
_SILENT_VOTER_MS = 10_000


class Health(Enum):
    """The worst that is so anywhere in a cluster."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """Everything is served, with fewer nodes or replicas than there should be."""
    UNAVAILABLE = "unavailable"
    """Some partition cannot be read or written, or there is no controller."""


@dataclass(slots=True, frozen=True)
class QuorumReplica:
    """A voter or an observer of the metadata log."""

    node_id: int
    is_voter: bool
    log_end_offset: int
    """-1 when the leader does not know."""
    lag: int | None
    """How many records it has yet to fetch."""
    behind_ms: int | None
    """How long ago it last had everything; None when the leader does not know."""
    directory_id: bytes = ZERO_UUID

    @property
    def is_silent(self) -> bool:
        return self.behind_ms is None or self.behind_ms > _SILENT_VOTER_MS


@dataclass(slots=True, frozen=True)
class Quorum:
    """The metadata quorum as its leader sees it."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]
    addresses: dict[int, dict[str, tuple[str, int]]] = field(default_factory=dict)
    """Where each voter is, by the names of its listeners."""

    @property
    def voter_ids(self) -> list[int]:
        return [replica.node_id for replica in self.replicas if replica.is_voter]

    @property
    def node_ids(self) -> list[int]:
        return [replica.node_id for replica in self.replicas]


@dataclass(slots=True, frozen=True)
class BrokerState:
    """A registered broker. `leaders` and `replicas` count partitions."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


@dataclass(slots=True, frozen=True)
class ClusterMembers:
    """Who belongs to a cluster."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerState, ...]
    quorum: Quorum

    @property
    def node_ids(self) -> list[int]:
        brokers = (broker.node_id for broker in self.brokers)
        return sorted({*brokers, *self.quorum.node_ids})

    def broker(self, node_id: int) -> BrokerState | None:
        return next((each for each in self.brokers if each.node_id == node_id), None)

    def quorum_replica(self, node_id: int) -> QuorumReplica | None:
        return next((each for each in self.quorum.replicas if each.node_id == node_id), None)


@dataclass(slots=True, frozen=True)
class ReplicatedPartition:
    """A partition with its nodes; `leader_id` is -1 when nobody leads it."""

    partition: TopicPartition
    leader_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int

    @property
    def is_offline(self) -> bool:
        return self.leader_id < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr


@dataclass(slots=True, frozen=True)
class ClusterState:
    """Everything of a cluster at one moment, as far as one broker knew it."""

    members: ClusterMembers
    partitions: tuple[ReplicatedPartition, ...]

    @property
    def offline(self) -> list[TopicPartition]:
        return [each.partition for each in self.partitions if each.is_offline]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        return [each.partition for each in self.partitions if each.is_under_replicated]

    @property
    def under_min_isr(self) -> list[TopicPartition]:
        return [each.partition for each in self.partitions if each.is_under_min_isr]

    @property
    def health(self) -> Health:
        if self.members.quorum.leader_id is None or self.offline or self.under_min_isr:
            return Health.UNAVAILABLE
        is_short = (
            self.under_replicated
            or any(broker.is_fenced for broker in self.members.brokers)
            or any(each.is_voter and each.is_silent for each in self.members.quorum.replicas)
        )
        return Health.DEGRADED if is_short else Health.HEALTHY


def cluster_members(client: ClusterClient) -> ClusterMembers:
    """The brokers, fenced ones too where the cluster tells them, and the quorum."""
    answer = client.ask_any(
        DescribeClusterRequest(include_fenced_brokers=True),
        DescribeClusterResponse,
        lambda response: response.error_code,
    )
    _check(answer.error_code, "cannot describe the cluster", answer.error_message)
    return ClusterMembers(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id if answer.controller_id >= 0 else None,
        brokers=tuple(
            BrokerState(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in sorted(answer.brokers, key=lambda broker: broker.broker_id)
        ),
        quorum=_quorum(client),
    )


def cluster_state(client: ClusterClient) -> ClusterState:
    """The members with what each leads and holds, and all partitions."""
    members = cluster_members(client)
    topics = client.metadata().topics
    partitions = tuple(_replicated_partitions(topics, _min_isr_by_topic(client, topics)))
    return ClusterState(_with_partition_counts(members, partitions), partitions)


def _quorum(client: ClusterClient) -> Quorum:
    request = DescribeQuorumRequest(
        topics=[
            TopicRequest(
                topic_name=_METADATA_TOPIC, partitions=[PartitionRequest(partition_index=0)]
            )
        ]
    )

    def code_of(response: DescribeQuorumResponse) -> int:
        return response.error_code or response.topics[0].partitions[0].error_code

    answer = client.ask_any(request, DescribeQuorumResponse, code_of)
    _check(answer.error_code, "cannot describe the quorum", answer.error_message)
    row = answer.topics[0].partitions[0]
    _check(row.error_code, "cannot describe the quorum", row.error_message)
    states = {state.replica_id: state for state in row.current_voters}
    leader = states.get(row.leader_id)
    replicas = [_quorum_replica(each, row, leader, is_voter=True) for each in row.current_voters]
    replicas += [
        _quorum_replica(each, row, leader, is_voter=False)
        for each in row.observers
        if each.replica_id not in states
    ]
    return Quorum(
        leader_id=row.leader_id if row.leader_id >= 0 else None,
        leader_epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        replicas=tuple(sorted(replicas, key=lambda each: (not each.is_voter, each.node_id))),
        addresses={
            node.node_id: {each.name: (each.host, each.port) for each in node.listeners}
            for node in answer.nodes
        },
    )


def _quorum_replica(
    state: ReplicaState, row: PartitionData, leader: ReplicaState | None, *, is_voter: bool
) -> QuorumReplica:
    lag = behind_ms = None
    if state.replica_id == row.leader_id:
        lag = behind_ms = 0
    elif leader is not None:
        if state.log_end_offset >= 0:
            lag = max(leader.log_end_offset - state.log_end_offset, 0)
        if state.last_caught_up_timestamp >= 0:
            # Both times are of the leader's clock.
            behind_ms = max(leader.last_caught_up_timestamp - state.last_caught_up_timestamp, 0)
    return QuorumReplica(
        state.replica_id,
        is_voter,
        state.log_end_offset,
        lag,
        behind_ms,
        state.replica_directory_id,
    )


def _min_isr_by_topic(
    client: ClusterClient, topics: Iterable[MetadataResponseTopic]
) -> dict[str, int]:
    names = [topic.name for topic in topics if topic.name and not topic.error_code]
    if not names:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=[_MIN_INSYNC_REPLICAS],
            )
            for name in names
        ]
    )
    answer = client.ask_any(request, DescribeConfigsResponse, lambda _: 0)
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        for config in result.configs
        if config.name == _MIN_INSYNC_REPLICAS and config.value
    }


def _replicated_partitions(
    topics: Iterable[MetadataResponseTopic], min_isr_by_topic: dict[str, int]
) -> Iterable[ReplicatedPartition]:
    for topic in sorted(topics, key=lambda each: each.name or ""):
        name = topic.name or ""
        for row in sorted(topic.partitions, key=lambda each: each.partition_index):
            yield ReplicatedPartition(
                partition=TopicPartition(name, row.partition_index),
                leader_id=row.leader_id,
                replicas=tuple(row.replica_nodes),
                isr=tuple(row.isr_nodes),
                # More replicas than there are cannot be asked for.
                min_isr=min(min_isr_by_topic.get(name, 1), len(row.replica_nodes)),
            )


def _with_partition_counts(
    members: ClusterMembers, partitions: Iterable[ReplicatedPartition]
) -> ClusterMembers:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    for each in partitions:
        leaders[each.leader_id] += 1
        replicas.update(each.replicas)
        out_of_sync.update(set(each.replicas) - set(each.isr))
    brokers = tuple(
        BrokerState(
            broker.node_id,
            broker.host,
            broker.port,
            broker.rack,
            broker.is_fenced,
            leaders=leaders[broker.node_id],
            replicas=replicas[broker.node_id],
            out_of_sync=out_of_sync[broker.node_id],
        )
        for broker in members.brokers
    )
    return ClusterMembers(members.cluster_id, members.controller_id, brokers, members.quorum)


def _check(error_code: int, doing: str, message: str | None) -> None:
    if error_code:
        raise BrokerError(ErrorCode(error_code), doing, message)
