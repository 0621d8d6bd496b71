"""Traps 1-10: negotiation and encoding."""

import struct

import pytest

from tests.traps.calls import describe_topic
from tests.traps.conftest import MakeTopic
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.protocol.apis.sasl_handshake import SaslHandshakeRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.registry import messages_of
from tidelog.testing.wire import WireClient


def api_versions(wire: WireClient, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="traps", client_software_version="1.0")
    answer = wire.call(request, version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def test_trap_1_an_unknown_api_versions_version_gets_a_v0_body_and_the_list(
    wire: WireClient,
) -> None:
    body = b"\x00" + b"\x02x" + b"\x02y" + b"\x00"
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, 1) + b"c"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    frame = wire.receive_frame()
    assert struct.unpack_from(">i", frame) == (7,)
    answer = ApiVersionsResponse.decode(frame, 0, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ApiKey.API_VERSIONS in {each.api_key for each in answer.api_keys}
    # The connection goes on.
    assert api_versions(wire).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_trap_2_the_api_versions_response_header_has_no_tags(
    wire: WireClient, version: int
) -> None:
    wire.send(
        ApiVersionsRequest(client_software_name="traps", client_software_version="1"), version
    )
    frame = wire.receive_frame()
    answer = ApiVersionsResponse.decode(frame, version, 4)
    assert answer.error_code == 0
    assert len(answer.api_keys) > 20


def test_trap_3_features_from_version_0_are_left_out_before_v4(wire: WireClient) -> None:
    old = api_versions(wire, 3)
    assert all(feature.min_version > 0 for feature in old.supported_features)
    new = api_versions(wire, 4)
    assert {feature.name for feature in new.supported_features} >= {
        feature.name for feature in old.supported_features
    }


def test_trap_4_request_header_v2_keeps_the_client_id_with_a_short_length(
    wire: WireClient,
) -> None:
    body = MetadataRequest(topics=[]).encode(9)
    client = "ünïcode".encode()
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 3, len(client)) + client + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    frame = wire.receive_frame()
    assert struct.unpack_from(">i", frame) == (3,)


def test_trap_4_sasl_handshake_is_never_flexible(wire: WireClient) -> None:
    assert messages_of(ApiKey.SASL_HANDSHAKE).request.FLEXIBLE_FROM > 1
    assert messages_of(ApiKey.OFFSET_DELETE).request.FLEXIBLE_FROM > 0
    answer = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code != 0


def test_trap_5_produce_is_advertised_from_0(wire: WireClient) -> None:
    ranges = {each.api_key: each for each in api_versions(wire).api_keys}
    assert ranges[ApiKey.PRODUCE].min_version == 0


def test_trap_6_join_group_is_kept_from_0(wire: WireClient) -> None:
    ranges = {each.api_key: each for each in api_versions(wire).api_keys}
    assert ranges[ApiKey.JOIN_GROUP].min_version == 0


def test_trap_7_produce_12_comes_with_the_finalized_transaction_version(
    wire: WireClient,
) -> None:
    answer = api_versions(wire)
    ranges = {each.api_key: each for each in answer.api_keys}
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert ranges[ApiKey.PRODUCE].max_version < 12 or finalized["transaction.version"] == 2


def test_trap_8_a_topic_made_again_has_a_new_id(wire: WireClient, make_topic: MakeTopic) -> None:
    name = make_topic()
    first = describe_topic(wire, name)
    assert first.topic_id != bytes(16)
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000), 6)
    request = MetadataRequest(topics=None)
    assert name not in {topic.name for topic in wire.call(request, 12).topics}

    again = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    wire.call(CreateTopicsRequest(topics=[again]), 7)
    second = describe_topic(wire, name)
    assert second.topic_id not in (bytes(16), first.topic_id)


# key -> the range that clients of the compatibility page need at least.
NEEDED = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}


@pytest.mark.parametrize("key", NEEDED, ids=lambda key: key.name)
def test_trap_9_version_ranges_stay_wide(wire: WireClient, key: ApiKey) -> None:
    ranges = {each.api_key: each for each in api_versions(wire).api_keys}
    low, high = NEEDED[key]
    assert ranges[key].min_version <= low
    assert ranges[key].max_version >= high


def test_trap_10_unknown_tagged_fields_are_skipped(wire: WireClient) -> None:
    # Metadata v9 with one unknown tag (number 77, three bytes) at the end of the body.
    body = MetadataRequest(topics=[]).encode(9)[:-1] + b"\x01\x4d\x03abc"
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 5, -1) + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    assert struct.unpack_from(">i", wire.receive_frame()) == (5,)


@pytest.mark.parametrize("name", ["", "-dash-first", "späce", "a b"])
def test_trap_10_the_client_software_name_is_checked(wire: WireClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert wire.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_bytes_after_a_request_are_not_minded(wire: WireClient) -> None:
    body = MetadataRequest(topics=[]).encode(9) + b"\x00\x00\x00"
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 6, -1) + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    assert struct.unpack_from(">i", wire.receive_frame()) == (6,)
