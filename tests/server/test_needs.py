"""Every handler says what its clients have to be allowed, and it is what Kafka wants of them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fuzz.valid_requests import valid_messages
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.describe_cluster import DescribeClusterRequest
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.apis.fetch import FetchRequest, FetchTopic
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from tidelog.protocol.apis.produce import ProduceRequest, TopicProduceData
from tidelog.protocol.fetch import decode_fetch_request
from tidelog.protocol.produce import decode_produce_request
from tidelog.protocol.schema import Message
from tidelog.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from tidelog.server import handlers as handlers_folder
from tidelog.server.handler import Handler, load_handlers
from tidelog.server.handlers import HANDLERS
from tidelog.server.needs import Need, Unnamed

ANY_ID = b"\x07" * 16
OTHER_ID = b"\x08" * 16

# What the brokers and controllers of Apache Kafka 4.3 ask their authorizer for (KafkaApis,
# ControllerApis, AclApis, ConfigHelper), alternatives included. FindCoordinator also knows share
# groups there, and DescribeCluster an endpoint of controllers, which are not served here.
KAFKA_NEEDS: dict[str, str] = {
    "PRODUCE": "WRITE TRANSACTIONAL_ID, WRITE TOPIC",
    "FETCH": "READ TOPIC, CLUSTER_ACTION CLUSTER",
    "LIST_OFFSETS": "DESCRIBE TOPIC",
    "METADATA": "DESCRIBE TOPIC, CREATE TOPIC, CREATE CLUSTER, DESCRIBE CLUSTER",
    "OFFSET_COMMIT": "READ GROUP, READ TOPIC",
    "OFFSET_FETCH": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "FIND_COORDINATOR": "DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID",
    "JOIN_GROUP": "READ GROUP",
    "HEARTBEAT": "READ GROUP",
    "LEAVE_GROUP": "READ GROUP",
    "SYNC_GROUP": "READ GROUP",
    "DESCRIBE_GROUPS": "DESCRIBE GROUP",
    "LIST_GROUPS": "DESCRIBE GROUP, DESCRIBE CLUSTER",
    "SASL_HANDSHAKE": "",
    "API_VERSIONS": "",
    "CREATE_TOPICS": "CREATE TOPIC, CREATE CLUSTER, DESCRIBE_CONFIGS TOPIC",
    "DELETE_TOPICS": "DELETE TOPIC, DELETE CLUSTER, DESCRIBE TOPIC",
    "DELETE_RECORDS": "DELETE TOPIC",
    "INIT_PRODUCER_ID": (
        "WRITE TRANSACTIONAL_ID, TWO_PHASE_COMMIT TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER, "
        "WRITE TOPIC"
    ),
    "OFFSET_FOR_LEADER_EPOCH": "DESCRIBE TOPIC, CLUSTER_ACTION CLUSTER",
    "ADD_PARTITIONS_TO_TXN": "WRITE TRANSACTIONAL_ID, WRITE TOPIC, CLUSTER_ACTION CLUSTER",
    "ADD_OFFSETS_TO_TXN": "WRITE TRANSACTIONAL_ID, READ GROUP",
    "END_TXN": "WRITE TRANSACTIONAL_ID",
    "WRITE_TXN_MARKERS": "ALTER CLUSTER, CLUSTER_ACTION CLUSTER",
    "TXN_OFFSET_COMMIT": "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
    "DESCRIBE_ACLS": "DESCRIBE CLUSTER",
    "CREATE_ACLS": "ALTER CLUSTER",
    "DELETE_ACLS": "ALTER CLUSTER",
    "DESCRIBE_CONFIGS": (
        "DESCRIBE_CONFIGS CLUSTER, DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP"
    ),
    "ALTER_CONFIGS": "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP",
    "ALTER_REPLICA_LOG_DIRS": "ALTER CLUSTER",
    "DESCRIBE_LOG_DIRS": "DESCRIBE CLUSTER",
    "SASL_AUTHENTICATE": "",
    "CREATE_PARTITIONS": "ALTER TOPIC",
    "CREATE_DELEGATION_TOKEN": "CREATE_TOKENS USER",
    "RENEW_DELEGATION_TOKEN": "",
    "EXPIRE_DELEGATION_TOKEN": "",
    "DESCRIBE_DELEGATION_TOKEN": "DESCRIBE DELEGATION_TOKEN, DESCRIBE_TOKENS USER",
    "DELETE_GROUPS": "DELETE GROUP",
    "ELECT_LEADERS": "ALTER CLUSTER",
    "INCREMENTAL_ALTER_CONFIGS": (
        "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP"
    ),
    "ALTER_PARTITION_REASSIGNMENTS": "ALTER CLUSTER",
    "LIST_PARTITION_REASSIGNMENTS": "DESCRIBE CLUSTER",
    "OFFSET_DELETE": "DELETE GROUP, READ TOPIC",
    "DESCRIBE_CLIENT_QUOTAS": "DESCRIBE_CONFIGS CLUSTER",
    "ALTER_CLIENT_QUOTAS": "ALTER_CONFIGS CLUSTER",
    "DESCRIBE_USER_SCRAM_CREDENTIALS": "DESCRIBE CLUSTER",
    "ALTER_USER_SCRAM_CREDENTIALS": "ALTER CLUSTER",
    "DESCRIBE_QUORUM": "DESCRIBE CLUSTER",
    "UPDATE_FEATURES": "ALTER CLUSTER",
    "DESCRIBE_CLUSTER": "DESCRIBE CLUSTER",
    "DESCRIBE_PRODUCERS": "READ TOPIC",
    "UNREGISTER_BROKER": "ALTER CLUSTER",
    "DESCRIBE_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC",
    "LIST_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID",
    "CONSUMER_GROUP_HEARTBEAT": "READ GROUP, DESCRIBE TOPIC",
    "CONSUMER_GROUP_DESCRIBE": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "GET_TELEMETRY_SUBSCRIPTIONS": "",
    "PUSH_TELEMETRY": "",
    "LIST_CONFIG_RESOURCES": "DESCRIBE_CONFIGS CLUSTER",
    "DESCRIBE_TOPIC_PARTITIONS": "DESCRIBE TOPIC",
    "VOTE": "CLUSTER_ACTION CLUSTER",
    "BEGIN_QUORUM_EPOCH": "CLUSTER_ACTION CLUSTER",
    "END_QUORUM_EPOCH": "CLUSTER_ACTION CLUSTER",
    "FETCH_SNAPSHOT": "CLUSTER_ACTION CLUSTER",
    "UPDATE_RAFT_VOTER": "CLUSTER_ACTION CLUSTER",
    "ADD_RAFT_VOTER": "ALTER CLUSTER",
    "REMOVE_RAFT_VOTER": "ALTER CLUSTER",
    "BROKER_REGISTRATION": "CLUSTER_ACTION CLUSTER",
    "BROKER_HEARTBEAT": "CLUSTER_ACTION CLUSTER",
    "ALTER_PARTITION": "CLUSTER_ACTION CLUSTER",
    "ALLOCATE_PRODUCER_IDS": "CLUSTER_ACTION CLUSTER",
    "ASSIGN_REPLICAS_TO_DIRS": "CLUSTER_ACTION CLUSTER",
    "CONTROLLER_REGISTRATION": "CLUSTER_ACTION CLUSTER",
    "ENVELOPE": "CLUSTER_ACTION CLUSTER",
}

SERVED = load_handlers()


def all_needs(handler: Handler) -> Iterator[Need]:
    """Alternatives included."""
    for need in handler.needs:
        yield need
        if need.unless is not None:
            yield need.unless


def test_every_module_of_the_folder_is_a_handler_that_is_loaded() -> None:
    folder = Path(handlers_folder.__file__).parent
    declaring = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if any(line.startswith(("API = ", "HANDLERS = ")) for line in path.read_text().split("\n"))
    }
    assert declaring == set(HANDLERS)


def test_a_handler_without_needs_is_not_loaded() -> None:
    module = SimpleNamespace(
        API=ApiKey.METADATA, VERSIONS=(0, 13), REQUEST=MetadataRequest, handle=lambda: None
    )
    with pytest.raises(AttributeError, match="NEEDS"):
        Handler.of_module(module)


def test_the_table_has_every_api_that_is_served() -> None:
    assert {handler.api.name for handler in SERVED.values()} == set(KAFKA_NEEDS)


@pytest.mark.parametrize("api", KAFKA_NEEDS)
def test_needs_are_those_of_kafka(api: str) -> None:
    expected = {
        (AclOperation[operation], ResourceType[resource])
        for operation, resource in (pair.split() for pair in KAFKA_NEEDS[api].split(", ") if pair)
    }
    needs = list(all_needs(SERVED[ApiKey[api]]))
    assert {(need.operation, need.resource) for need in needs} == expected


def decoded(handler: Handler, message: Message, version: int) -> Any:
    """What the handler gets of a request, or decodes itself."""
    body = message.encode(version)
    if handler.api is ApiKey.PRODUCE:
        return decode_produce_request(memoryview(bytearray(body)), version)
    if handler.api is ApiKey.FETCH:
        return decode_fetch_request(memoryview(bytearray(body)), version)
    assert handler.request_class is not None
    return handler.request_class.decode(body, version)


def test_names_are_found_in_requests_of_every_version() -> None:
    found: defaultdict[tuple[str, int], set[str | bytes]] = defaultdict(set)
    seen: set[tuple[int, int]] = set()
    for api_key, version, message in valid_messages(random.Random(1), [ANY_ID], 40):
        handler = SERVED.get(api_key)
        if handler is None or not handler.served_from <= version <= handler.max_version:
            continue
        seen.add((api_key, version))
        text = bytes(message.encode(version))
        body = decoded(handler, message, version)
        for place, need in enumerate(all_needs(handler)):
            if isinstance(need.names, Unnamed):
                continue
            names = list(need.names(body, version))
            for name in names:
                if need.resource is ResourceType.CLUSTER:
                    assert name == CLUSTER_NAME
                elif isinstance(name, bytes):
                    assert need.resource is ResourceType.TOPIC
                    assert len(name) == 16
                    assert name in text
                elif need.resource is not ResourceType.USER:
                    assert name.encode() in text
            found[handler.api.name, place].update(names)
    served = {
        (int(handler.api), version)
        for handler in SERVED.values()
        for version in range(handler.served_from, handler.max_version + 1)
    }
    assert seen == served
    # Version 6 of InitProducerId, which has two-phase commits, is not served.
    without = {place for place, names in found.items() if not names}
    assert without == {("INIT_PRODUCER_ID", 1)}


def needed(message: Message, version: int) -> list[tuple[str, str, list[str | bytes]]]:
    """Operation, resource type and names of what a request needs, alternatives left out."""
    handler = SERVED[type(message).API_KEY]
    body = decoded(handler, message, version)
    rows = []
    for need in handler.needs:
        if not isinstance(need.names, Unnamed):
            names = list(need.names(body, version))
            if names:
                rows.append((need.operation.name, need.resource.name, names))
    return rows


def test_partitions_are_added_by_clients_or_for_them_by_brokers() -> None:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    by_client = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="payments", v3_and_below_topics=topics
    )
    assert needed(by_client, 3) == [
        ("WRITE", "TRANSACTIONAL_ID", ["payments"]),
        ("WRITE", "TOPIC", ["orders"]),
    ]
    transaction = AddPartitionsToTxnTransaction(transactional_id="payments", topics=topics)
    for transactions in ([], [transaction]):
        by_broker = AddPartitionsToTxnRequest(transactions=transactions)
        assert needed(by_broker, 4) == [("CLUSTER_ACTION", "CLUSTER", [CLUSTER_NAME])]


def test_a_producer_id_is_for_a_transactional_id_or_for_the_cluster() -> None:
    assert needed(InitProducerIdRequest(transactional_id="payments"), 5) == [
        ("WRITE", "TRANSACTIONAL_ID", ["payments"])
    ]
    idempotent = InitProducerIdRequest(transactional_id=None)
    assert needed(idempotent, 5) == [("IDEMPOTENT_WRITE", "CLUSTER", [CLUSTER_NAME])]
    in_two_phases = InitProducerIdRequest(transactional_id="payments", enable_2pc=True)
    assert needed(in_two_phases, 6)[1] == ("TWO_PHASE_COMMIT", "TRANSACTIONAL_ID", ["payments"])


@pytest.mark.parametrize(("key_type", "resource"), [(0, "GROUP"), (1, "TRANSACTIONAL_ID")])
def test_a_coordinator_is_looked_for_by_the_type_of_its_key(key_type: int, resource: str) -> None:
    one = FindCoordinatorRequest(key="a", key_type=key_type)
    assert needed(one, 3) == [("DESCRIBE", resource, ["a"])]
    several = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=key_type)
    assert needed(several, 4) == [("DESCRIBE", resource, ["a", "b"])]


def test_settings_are_those_of_a_topic_a_group_or_the_cluster() -> None:
    resources = [
        DescribeConfigsResource(resource_type=resource_type, resource_name=name)
        for resource_type, name in ((2, "orders"), (4, "1"), (8, "1"), (16, "all"), (32, "billing"))
    ]
    assert needed(DescribeConfigsRequest(resources=resources), 4) == [
        ("DESCRIBE_CONFIGS", "CLUSTER", [CLUSTER_NAME]),
        ("DESCRIBE_CONFIGS", "TOPIC", ["orders"]),
        ("DESCRIBE_CONFIGS", "GROUP", ["billing"]),
    ]


def test_consumers_read_topics_and_followers_act_in_the_cluster() -> None:
    by_name = FetchRequest(replica_id=-1, topics=[FetchTopic(topic="orders")])
    assert needed(by_name, 12) == [("READ", "TOPIC", ["orders"])]
    by_id = FetchRequest(topics=[FetchTopic(topic_id=ANY_ID)])
    assert needed(by_id, 17) == [("READ", "TOPIC", [ANY_ID])]
    follower = FetchRequest(replica_id=2, topics=[FetchTopic(topic="orders")])
    assert needed(follower, 12) == [("CLUSTER_ACTION", "CLUSTER", [CLUSTER_NAME])]


def test_producers_write_topics_and_their_transactional_id() -> None:
    topics = [TopicProduceData(name="orders")]
    request = ProduceRequest(transactional_id="payments", topic_data=topics)
    assert needed(request, 9) == [
        ("WRITE", "TRANSACTIONAL_ID", ["payments"]),
        ("WRITE", "TOPIC", ["orders"]),
    ]
    by_id = ProduceRequest(topic_data=[TopicProduceData(topic_id=ANY_ID)])
    assert needed(by_id, 13) == [("WRITE", "TOPIC", [ANY_ID])]


def test_metadata_is_needed_of_the_topics_that_are_answered() -> None:
    names = [MetadataRequestTopic(name="orders")]
    assert needed(MetadataRequest(topics=names), 12) == [
        ("DESCRIBE", "TOPIC", ["orders"]),
        ("CREATE", "TOPIC", ["orders"]),
    ]
    read_only = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    assert needed(read_only, 12) == [("DESCRIBE", "TOPIC", ["orders"])]
    mixed = MetadataRequest(
        topics=[
            MetadataRequestTopic(name="orders", topic_id=ANY_ID),
            MetadataRequestTopic(name=None, topic_id=OTHER_ID),
        ],
        allow_auto_topic_creation=False,
    )
    assert needed(mixed, 12) == [("DESCRIBE", "TOPIC", [ANY_ID, OTHER_ID])]
    everything = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
    assert needed(everything, 8) == [("DESCRIBE", "CLUSTER", [CLUSTER_NAME])]


def test_topics_are_deleted_by_name_and_by_id() -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="orders"), DeleteTopicState(name=None, topic_id=ANY_ID)]
    )
    assert needed(request, 6)[0] == ("DELETE", "TOPIC", ["orders", ANY_ID])
    assert needed(DeleteTopicsRequest(topic_names=["orders"]), 5)[0][2] == ["orders"]


def test_offsets_are_committed_for_topics_by_name_and_by_id() -> None:
    topics = [OffsetCommitRequestTopic(name="orders", topic_id=ANY_ID)]
    request = OffsetCommitRequest(group_id="billing", topics=topics)
    assert needed(request, 9) == [("READ", "GROUP", ["billing"]), ("READ", "TOPIC", ["orders"])]
    assert needed(request, 10)[1] == ("READ", "TOPIC", [ANY_ID])


def test_the_cluster_is_described_with_its_operations_only_if_asked() -> None:
    assert needed(DescribeClusterRequest(), 1) == []
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert needed(asked, 1) == [("DESCRIBE", "CLUSTER", [CLUSTER_NAME])]


def test_a_token_of_somebody_else_needs_a_right_on_them() -> None:
    own = CreateDelegationTokenRequest(owner_principal_type="", owner_principal_name="")
    assert needed(own, 3) == []
    other = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="ada")
    assert needed(other, 3) == [("CREATE_TOKENS", "USER", ["User:ada"])]
