"""Frames: headers of both kinds around the bodies."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.apis.sasl_handshake import SaslHandshakeRequest
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.headers import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.protocol.registry import DEFINED, messages_of


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ä" * 100])
def test_requests_of_every_api_and_version_come_back(client_id: str | None) -> None:
    for api_key in DEFINED:
        cls = messages_of(api_key).request
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            frame = encode_request(api_key, version, 77, client_id, cls())
            assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
            header, request = decode_request(memoryview(frame)[4:])
            assert (header.api_key, header.api_version) == (api_key, version)
            assert (header.correlation_id, header.client_id) == (77, client_id)
            assert request.encode(version) == cls().encode(version)


def test_responses_of_every_api_and_version_come_back() -> None:
    for api_key in DEFINED:
        cls = messages_of(api_key).response
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            frame = encode_response(api_key, version, -5, cls())
            assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
            correlation_id, response = decode_response(api_key, version, frame[4:])
            assert correlation_id == -5
            assert response.encode(version) == cls().encode(version)


def test_the_client_id_is_never_compact() -> None:
    frame = encode_request(ApiKey.METADATA, 12, 1, "ab", MetadataRequest(topics=None))
    assert frame[4:] == b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x02ab\x00\x00\x01\x00\x00"


def test_the_api_versions_response_never_has_tags_in_its_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=13)])
    for version in range(5):
        frame = encode_response(ApiKey.API_VERSIONS, version, 1, response)
        assert frame[8:] == response.encode(version)


def test_flexible_responses_have_tags_in_their_header() -> None:
    response = MetadataResponse()
    assert encode_response(ApiKey.METADATA, 8, 1, response)[8:] == response.encode(8)
    assert encode_response(ApiKey.METADATA, 9, 1, response)[8:] == b"\x00" + response.encode(9)


def test_apis_that_never_became_flexible_have_no_tags_in_their_header() -> None:
    frame = encode_request(
        ApiKey.SASL_HANDSHAKE, 1, 1, "a", SaslHandshakeRequest(mechanism="PLAIN")
    )
    assert frame[4:] == b"\x00\x11\x00\x01\x00\x00\x00\x01\x00\x01a\x00\x05PLAIN"


def test_tags_in_a_request_header_are_skipped() -> None:
    body = ApiVersionsRequest(client_software_name="x").encode(3)
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 9, -1)
    header, at = decode_request_header(head + b"\x02\x00\x03abc\x90\x01\x01z" + body)
    assert (head + b"\x02\x00\x03abc\x90\x01\x01z" + body)[at:] == body
    assert header.client_id is None


def test_a_version_that_is_not_known_still_has_a_readable_header() -> None:
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 9, 2) + b"me\x00"
    header, at = decode_request_header(head + b"whatever")
    assert (header.api_version, header.client_id, at) == (99, "me", len(head))


def test_an_api_that_is_not_known_still_has_a_readable_header() -> None:
    frame = struct.pack(">hhih", 9999, 0, 9, 2) + b"me" + b"body"
    header, at = decode_request_header(frame)
    assert (header.api_key, header.correlation_id, at) == (9999, 9, 12)
    with pytest.raises(ProtocolError):
        decode_request(frame)


@given(st.binary(max_size=40))
def test_random_bytes_raise_only_protocol_errors(noise: bytes) -> None:
    for frame in (noise, b"\x00\x03\x00\x0c" + noise, b"\x00\x12\x00\x03\x00\x00\x00\x01" + noise):
        try:
            decode_request(frame)
        except ProtocolError:
            pass
        for api_key in (ApiKey.METADATA, ApiKey.API_VERSIONS):
            try:
                decode_response(api_key, 4, frame)
            except ProtocolError:
                pass


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(struct.pack(">hhih", 3, 0, 9, 200) + b"short")
