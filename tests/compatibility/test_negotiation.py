"""How versions are negotiated, and how requests and answers are encoded."""

import struct

import pytest

from tests.compatibility.calls import describe_topic
from tests.compatibility.conftest import MakeTopic
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
    request = ApiVersionsRequest(
        client_software_name="compatibility", client_software_version="1.0"
    )
    answer = wire.call(request, version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def test_an_unknown_api_versions_version_gets_a_v0_body_and_the_list(
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
def test_the_api_versions_response_header_has_no_tags(wire: WireClient, version: int) -> None:
    wire.send(
        ApiVersionsRequest(client_software_name="compatibility", client_software_version="1"),
        version,
    )
    frame = wire.receive_frame()
    answer = ApiVersionsResponse.decode(frame, version, 4)
    assert answer.error_code == 0
    assert len(answer.api_keys) > 20


def test_features_from_version_0_are_left_out_before_v4(wire: WireClient) -> None:
    old = api_versions(wire, 3)
    assert all(feature.min_version > 0 for feature in old.supported_features)
    new = api_versions(wire, 4)
    assert {feature.name for feature in new.supported_features} >= {
        feature.name for feature in old.supported_features
    }


def test_request_header_v2_keeps_the_client_id_with_a_short_length(
    wire: WireClient,
) -> None:
    body = MetadataRequest(topics=[]).encode(9)
    client = "ünïcode".encode()
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 3, len(client)) + client + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    frame = wire.receive_frame()
    assert struct.unpack_from(">i", frame) == (3,)


def test_sasl_handshake_is_never_flexible(wire: WireClient) -> None:
    assert messages_of(ApiKey.SASL_HANDSHAKE).request.FLEXIBLE_FROM > 1
    assert messages_of(ApiKey.OFFSET_DELETE).request.FLEXIBLE_FROM > 0
    answer = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code != 0


def test_produce_is_advertised_from_0(wire: WireClient) -> None:
    ranges = {each.api_key: each for each in api_versions(wire).api_keys}
    assert ranges[ApiKey.PRODUCE].min_version == 0


def test_join_group_is_kept_from_0(wire: WireClient) -> None:
    ranges = {each.api_key: each for each in api_versions(wire).api_keys}
    assert ranges[ApiKey.JOIN_GROUP].min_version == 0


def test_produce_12_comes_with_the_finalized_transaction_version(
    wire: WireClient,
) -> None:
    answer = api_versions(wire)
    ranges = {each.api_key: each for each in answer.api_keys}
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert ranges[ApiKey.PRODUCE].max_version < 12 or finalized["transaction.version"] == 2


def test_a_topic_made_again_has_a_new_id(wire: WireClient, make_topic: MakeTopic) -> None:
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


# What a broker of Kafka 4.3 advertises, as key:lowest-highest.
KAFKA_RANGES = """
0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5
17:0-1 18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3
31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1
45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2
68:0-1 69:0-1 71:0-0 72:0-0 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0
85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
"""


def test_version_ranges_are_those_of_kafka(wire: WireClient) -> None:
    """Neither narrower, for clients that do not negotiate, nor wider: an old or unstable version
    that Kafka does not serve has no client that could test it."""
    kafka = {}
    for row in KAFKA_RANGES.split():
        key, _, versions = row.partition(":")
        low, _, high = versions.partition("-")
        kafka[int(key)] = (int(low), int(high))
    offered = {
        each.api_key: (each.min_version, each.max_version) for each in api_versions(wire).api_keys
    }
    assert len(offered) > 50
    # Kafka has these on the listeners of its controllers, which are listeners like others here.
    between_nodes = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
    assert offered.keys() - kafka.keys() == between_nodes
    assert {key: offered[key] for key in kafka if key in offered} == {
        key: versions for key, versions in kafka.items() if key in offered
    }


def test_unknown_tagged_fields_are_skipped(wire: WireClient) -> None:
    # Metadata v9 with one unknown tag (number 77, three bytes) at the end of the body.
    body = MetadataRequest(topics=[]).encode(9)[:-1] + b"\x01\x4d\x03abc"
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 5, -1) + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    assert struct.unpack_from(">i", wire.receive_frame()) == (5,)


@pytest.mark.parametrize("name", ["", "-dash-first", "späce", "a b"])
def test_the_client_software_name_is_checked(wire: WireClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert wire.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_bytes_after_a_request_are_not_minded(wire: WireClient) -> None:
    body = MetadataRequest(topics=[]).encode(9) + b"\x00\x00\x00"
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 6, -1) + b"\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    assert struct.unpack_from(">i", wire.receive_frame()) == (6,)
