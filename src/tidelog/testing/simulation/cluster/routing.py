"""How a client of a cluster finds the node for a request, as real clients do.

Leaders come from Metadata, coordinators from FindCoordinator; either is asked for once and again
when a node says that it is not the one, or does not answer. Everything else goes to any node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.apis.delete_records import DeleteRecordsRequest
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.join_group import JoinGroupRequest
from tidelog.protocol.apis.leave_group import LeaveGroupRequest
from tidelog.protocol.apis.list_offsets import ListOffsetsRequest
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.apis.offset_commit import OffsetCommitRequest
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequest
from tidelog.protocol.apis.produce import ProduceRequest
from tidelog.protocol.apis.sync_group import SyncGroupRequest
from tidelog.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message, Struct
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import GROUP, TRANSACTION
from tidelog.world.network import Address

Coordinated = tuple[int, str]
"""The type of a coordinator's key, and the key."""
Destination = TopicPartition | Coordinated | None

_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Somebody else may have to be asked."""
_OF_GROUPS = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    ConsumerGroupHeartbeatRequest,
    TxnOffsetCommitRequest,
)
_OF_TRANSACTIONS = (AddOffsetsToTxnRequest, EndTxnRequest)
_LOOKUPS_MAX = 5
_LOOK_AGAIN_S = 0.05


def destination(request: Message) -> Destination:
    """What a request is about; None when any node can be asked."""
    match request:
        case ProduceRequest(topic_data=[topic, *_]):
            return TopicPartition(topic.name, topic.partition_data[0].index)
        case FetchRequest(topics=[topic, *_]):
            return TopicPartition(topic.topic, topic.partitions[0].partition)
        case ListOffsetsRequest(topics=[topic, *_]) | DeleteRecordsRequest(topics=[topic, *_]):
            return TopicPartition(topic.name, topic.partitions[0].partition_index)
        case InitProducerIdRequest(transactional_id=str(name)):
            return TRANSACTION, name
        case AddPartitionsToTxnRequest():
            return TRANSACTION, request.v3_and_below_transactional_id
        case OffsetFetchRequest():
            return GROUP, request.groups[0].group_id
    if isinstance(request, _OF_GROUPS):
        return GROUP, request.group_id
    if isinstance(request, _OF_TRANSACTIONS):
        return TRANSACTION, request.transactional_id
    return None


def error_codes(message: object) -> Iterator[int]:
    """All error codes in an answer, at whatever depth."""
    if not isinstance(message, Struct):
        return
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                yield from error_codes(each)


class ClusterRouter:
    """What one client knows about who leads and coordinates what."""

    def __init__(self, client: SimulatedClient, addresses: Sequence[Address]) -> None:
        self._client = client
        self._addresses = addresses
        self._any = client.random.choice(addresses)
        self._known: dict[TopicPartition | Coordinated, Address] = {}

    async def find(self, request: Message) -> Address:
        """Where to send it; any node when nobody knows after a few questions."""
        wanted = destination(request)
        if wanted is None:
            return self._any
        for attempt in range(_LOOKUPS_MAX):
            if wanted in self._known:
                return self._known[wanted]
            if attempt:
                await self._client.sleep(_LOOK_AGAIN_S)
            try:
                await self._look_up(wanted)
            except PeerError:
                self._ask_another()
        return self._known.get(wanted, self._any)

    def guess(self, request: Message) -> Address:
        wanted = destination(request)
        return self._any if wanted is None else self._known.get(wanted, self._any)

    def is_forwarded(self, request: Message) -> bool:
        return destination(request) is None

    def heard(self, request: Message, response: Message | None) -> None:
        """Forgets what has turned out to be wrong."""
        wanted = destination(request)
        if response is None or not _ELSEWHERE.isdisjoint(error_codes(response)):
            if wanted is None:
                self._ask_another()
            else:
                self._known.pop(wanted, None)

    def _ask_another(self) -> None:
        self._any = self._client.random.choice(self._addresses)

    async def _look_up(self, wanted: TopicPartition | Coordinated) -> None:
        if isinstance(wanted, TopicPartition):
            await self._find_leaders(wanted.topic)
        else:
            await self._find_coordinator(*wanted)
        if wanted not in self._known:
            self._ask_another()

    async def _find_leaders(self, topic: str) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer = await self._client.call_node(self._any, request, MetadataResponse)
        addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}
        for row in answer.topics[0].partitions:
            if row.leader_id in addresses:
                partition = TopicPartition(topic, row.partition_index)
                self._known[partition] = addresses[row.leader_id]

    async def _find_coordinator(self, key_type: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = await self._client.call_node(self._any, request, FindCoordinatorResponse)
        row = answer.coordinators[0]
        if not row.error_code:
            self._known[key_type, key] = (row.host, row.port)
