"""What operators do to a running cluster: nodes come and go, replicas move and are throttled,
voters and features change.

Everything goes through the protocol, as an operator's tools do it, is begun while there are faults,
and is tried until it is done. It has to be done when the cluster is asked to be well.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tidelog.cluster.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from tidelog.cluster.metadata.image import MetadataImage, PartitionImage
from tidelog.protocol.apis.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from tidelog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tidelog.protocol.apis.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.raft.voters import VoterNode
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.cluster.options import ClusterOptions
from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation

_LOOK_AGAIN_S = 0.1
_UPGRADE, _DOWNGRADE = 1, 2
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1


class Cluster(Protocol):
    """What operators need of the scenario."""

    nodes: list[SimulatedNode]

    def present(self) -> Sequence[SimulatedNode]:
        """The nodes that are part of the cluster."""

    def newest_image(self) -> MetadataImage:
        """What is committed, as far as any node knows."""

    def voters(self) -> list[VoterNode]:
        """Of the quorum, as its leader has them."""

    def add_node(self) -> SimulatedNode | None:
        """One more node, which starts now."""

    def retire(self, node: SimulatedNode) -> None:
        """A node that is not part of the cluster any more is stopped for good."""


class Operators:
    """One client for each operation."""

    def __init__(
        self,
        simulation: Simulation,
        cluster: Cluster,
        make_client: Callable[[str], SimulatedClient],
        options: ClusterOptions,
        events: FaultEvents,
    ) -> None:
        self._simulation = simulation
        self._cluster = cluster
        self._make_client = make_client
        self._options = options
        self._events = events
        self._random = simulation.random("operators")
        self._count = 0
        self._leaving: set[int] = set()

    def arrange(self, begin_us: int) -> None:
        """Draw what is done when."""
        options = self._options
        span_us = int(options.work.duration_s * SECOND_US)
        for count, what, work in (
            (options.moves, "moves replicas", self._move),
            (options.elections, "elects preferred leaders", self._elect),
            (options.voter_changes, "replaces a voter", self._replace_voter),
            (options.feature_changes, "changes a feature", self._change_feature),
            (options.raises_features, "raises all features", self._raise_features),
            (options.added_nodes, "adds a node", self._add_node),
            (options.removed_nodes, "drains and removes a node", self._remove_node),
            (options.throttles, "throttles replicas", self._throttle),
        ):
            for _ in range(count):
                time_us = begin_us + self._random.randrange(span_us)
                self._events.at(time_us, "operator", what, self._beginning(what, work))

    def _beginning(
        self, what: str, work: Callable[[SimulatedClient, Random], Coroutine[Any, Any, None]]
    ) -> Callable[[Random], None]:
        def begin(random: Random) -> None:
            self._count += 1
            client = self._make_client(f"operator-{self._count}")
            client.trace(what)

            async def run() -> None:
                await work(client, random)
                self._simulation.count(f"operator {what}")
                client.trace(f"{what}: done")

            client.start(run())

        return begin

    # Replicas

    async def _move(self, client: SimulatedClient, random: Random) -> None:
        """A partition gets other replicas; now and then the move is taken back on the way."""
        found = self._draw_partition(random)
        if found is None:
            return
        name, partition = found
        ids = [node.node_id for node in self._cluster.present()]
        ids = [each for each in ids if each not in self._leaving]
        size = min(len(set(partition.replicas) - set(partition.adding_replicas)), len(ids))
        await self._assign(
            client, TopicPartition(name, partition.partition), random.sample(ids, size)
        )
        if random.random() < 0.2:
            await client.sleep(random.random() * 0.2)
            await self._assign(client, TopicPartition(name, partition.partition), None)

    def _draw_partition(self, random: Random) -> tuple[str, PartitionImage] | None:
        image = self._cluster.newest_image()
        rows = [
            (name, partition)
            for name, topic in sorted(image.topics_by_name.items())
            for partition in topic.partitions
        ]
        return random.choice(rows) if rows else None

    async def _assign(
        self, client: SimulatedClient, partition: TopicPartition, replicas: list[int] | None
    ) -> None:
        client.trace(f"{partition} goes to {replicas}" if replicas else f"{partition} stays")
        row = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=partition.topic, partitions=[row])]
        )
        await self._ask(
            client,
            request,
            AlterPartitionReassignmentsResponse,
            lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
            enough={
                ErrorCode.NONE,
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            },
        )

    async def _throttle(self, client: SimulatedClient, random: Random) -> None:
        """The replicas of a topic that catch up are throttled for a while."""
        found = self._draw_partition(random)
        if found is None:
            return
        topic = found[0]
        sides = random.choice((("leader",), ("follower",), ("leader", "follower")))
        rate = str(random.choice((0, 500, 20_000)))
        rates = [f"{side}.replication.throttled.rate" for side in sides]
        replicas = [f"{side}.replication.throttled.replicas" for side in sides]
        await self._configure(client, _TOPIC, topic, dict.fromkeys(replicas, "*"))
        await self._configure(client, _BROKER, "", dict.fromkeys(rates, rate))
        await client.sleep(random.random() * 2)
        # Either ends it.
        if random.random() < 0.5:
            await self._configure(client, _TOPIC, topic, dict.fromkeys(replicas))
        await self._configure(client, _BROKER, "", dict.fromkeys(rates))

    async def _configure(
        self, client: SimulatedClient, kind: int, name: str, settings: Mapping[str, str | None]
    ) -> None:
        """Make settings, and take back those that are None."""
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(
                    name=key, config_operation=_DELETE if text is None else _SET, value=text
                )
                for key, text in settings.items()
            ],
        )
        await self._ask(
            client,
            IncrementalAlterConfigsRequest(resources=[resource]),
            IncrementalAlterConfigsResponse,
            lambda answer: answer.responses[0].error_code,
            enough={ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )

    def change_leader(self, partition: TopicPartition, random: Random) -> None:
        """A partition gets its replicas in another order, and perhaps the first of them leads."""

        async def change(client: SimulatedClient, random: Random) -> None:
            row = self._cluster.newest_image().partition(*partition)
            if row is None or row.is_reassigning or len(row.replicas) < 2:
                return
            others = [each for each in row.replicas if each != row.leader]
            await self._assign(
                client,
                partition,
                [*random.sample(others, len(others)), row.leader] if row.leader >= 0 else others,
            )
            if random.random() < 0.7:
                await self._elect(client, random)

        self._beginning("reorders replicas", change)(random)

    async def _elect(self, client: SimulatedClient, random: Random) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None)
        await self._ask(client, request, ElectLeadersResponse, lambda answer: answer.error_code)

    # Voters

    async def _replace_voter(self, client: SimulatedClient, random: Random) -> None:
        """A voter loses its vote and gets it back."""
        voters = self._cluster.voters()
        if len(voters) < 2:
            return
        voter = random.choice(voters)
        await self._remove_voter(client, voter)
        await client.sleep(random.random() * 0.5)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=2000,
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id,
            listeners=[Listener(name=n, host=host, port=port) for n, host, port in voter.endpoints],
        )
        await self._ask(
            client,
            request,
            AddRaftVoterResponse,
            lambda answer: answer.error_code,
            enough={ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER},
            is_given_up=lambda: voter.key.id in self._leaving,
        )

    async def _remove_voter(self, client: SimulatedClient, voter: VoterNode) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter.key.id, voter_directory_id=voter.key.directory_id
        )
        await self._ask(
            client,
            request,
            RemoveRaftVoterResponse,
            lambda answer: answer.error_code,
            enough={ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND},
        )

    # Features

    async def _change_feature(self, client: SimulatedClient, random: Random) -> None:
        """Eligible leader replicas are switched off, and on again."""
        for level in (0, 1):
            key = FeatureUpdateKey(
                feature=ELIGIBLE_LEADER_REPLICAS_VERSION,
                max_version_level=level,
                upgrade_type=_UPGRADE if level else _DOWNGRADE,
            )
            await self._ask(
                client,
                UpdateFeaturesRequest(feature_updates=[key]),
                UpdateFeaturesResponse,
                lambda answer: answer.error_code,
            )
            await client.sleep(random.random())

    async def _raise_features(self, client: SimulatedClient, random: Random) -> None:
        """The metadata.version in a few steps, then what it makes possible, one by one."""
        newest = SUPPORTED_FEATURES[METADATA_VERSION].maximum
        level = self._cluster.newest_image().metadata_version
        while level < newest:
            level = random.randint(level + 1, newest)
            await self._raise_feature(client, METADATA_VERSION, level)
            await client.sleep(random.random() * 0.5)
        for name in (KRAFT_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION):
            await self._raise_feature(client, name, SUPPORTED_FEATURES[name].maximum)
            await client.sleep(random.random() * 0.5)

    async def _raise_feature(self, client: SimulatedClient, name: str, level: int) -> None:
        key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=_UPGRADE)
        await self._ask(
            client,
            UpdateFeaturesRequest(feature_updates=[key]),
            UpdateFeaturesResponse,
            lambda answer: answer.error_code,
        )

    # Nodes

    async def _add_node(self, client: SimulatedClient, random: Random) -> None:
        """A node joins, and is given a replica."""
        node = self._cluster.add_node()
        if node is None:
            return
        while not self._is_active(node.node_id):
            await client.sleep(_LOOK_AGAIN_S)
        found = self._draw_partition(random)
        if found is not None and node.node_id not in found[1].replicas:
            name, partition = found
            replicas = [node.node_id, *partition.replicas[1:]]
            await self._assign(client, TopicPartition(name, partition.partition), replicas)

    def _is_active(self, node_id: int) -> bool:
        broker = self._cluster.newest_image().brokers.get(node_id)
        return broker is not None and broker.is_active

    async def _remove_node(self, client: SimulatedClient, random: Random) -> None:
        """A node's replicas and its vote go to others; then it is stopped and forgotten."""
        present = [n for n in self._cluster.present() if n.node_id not in self._leaving]
        # Everything that is created while it goes must find enough others.
        if len(present) < 5:
            return
        # One that has just been added is waited for elsewhere.
        node = random.choice([n for n in present if n.node_id <= self._options.nodes])
        self._leaving.add(node.node_id)
        await self._drain(client, node, random)
        # The only voter keeps its vote until another one has joined.
        while voter := next((v for v in self._cluster.voters() if v.key.id == node.node_id), None):
            await self._remove_voter(client, voter)
            await client.sleep(_LOOK_AGAIN_S)
        self._cluster.retire(node)
        while node.is_alive:
            await client.sleep(_LOOK_AGAIN_S)
        await self._ask(
            client,
            UnregisterBrokerRequest(broker_id=node.node_id),
            UnregisterBrokerResponse,
            lambda answer: answer.error_code,
            enough={ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED},
        )
        # A topic may have been created in between.
        await self._drain(client, node, random)

    async def _drain(self, client: SimulatedClient, node: SimulatedNode, random: Random) -> None:
        """Until no partition has a replica there."""
        while True:
            image = self._cluster.newest_image()
            held = [
                (TopicPartition(name, row.partition), row)
                for name, topic in sorted(image.topics_by_name.items())
                for row in topic.partitions
                if node.node_id in row.replicas
            ]
            if not held and image.offset >= 0:
                return
            others = [
                each.node_id
                for each in self._cluster.present()
                if each.node_id not in self._leaving and self._is_active(each.node_id)
            ]
            for partition, row in held:
                if node.node_id in row.removing_replicas:
                    continue
                kept = [each for each in row.replicas if each in others]
                free = [each for each in others if each not in kept]
                size = len(set(row.replicas) - set(row.adding_replicas))
                replicas = [*kept, *random.sample(free, len(free))][:size]
                if len(replicas) == size:
                    await self._assign(client, partition, replicas)
            await client.sleep(_LOOK_AGAIN_S)

    async def _ask(
        self,
        client: SimulatedClient,
        request: Any,
        answer: Any,
        code_of: Callable[[Any], int],
        *,
        enough: set[ErrorCode] | None = None,
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Until an answer says that it is done, or that there is nothing to do."""
        while not is_given_up():
            try:
                response = await client.call(request, answer)
            except PeerError as error:
                client.trace(f"{type(request).__name__}: {error}")
            else:
                code = ErrorCode(code_of(response))
                reason = getattr(response, "error_message", None) or ""
                client.trace(f"{type(request).__name__}: {code.name} {reason}".rstrip())
                if code in (enough or {ErrorCode.NONE}):
                    return
            await client.sleep(_LOOK_AGAIN_S * (1 + client.random.random()))
