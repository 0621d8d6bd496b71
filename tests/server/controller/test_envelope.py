"""A client's request in an envelope, and the answer back."""

from __future__ import annotations

import pytest

from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.protocol.errors import ProtocolError
from tidelog.server.controller.envelope import unwrap, unwrap_response, wrap, wrap_response
from tidelog.server.controller.request_context import RequestContext

REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)], timeout_ms=7
)
RESPONSE = CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=36)])


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("client_id", ["shop", None])
@pytest.mark.parametrize("host", ["127.0.0.1", "2001:db8::1"])
def test_the_controller_sees_what_the_client_sent_and_who_it_is(
    version: int, client_id: str | None, host: str
) -> None:
    context = RequestContext("User:alice:smith", client_id, host, version, 1)
    envelope = EnvelopeRequest.decode(wrap(REQUEST, context).encode(0), 0)
    body, seen = unwrap(envelope, received_ms=5)
    assert body == REQUEST
    assert seen == context._replace(received_ms=5)
    answer = EnvelopeResponse.decode(wrap_response(envelope, RESPONSE).encode(0), 0)
    assert unwrap_response(answer, REQUEST, context).topics[0].error_code == 36


def test_a_client_without_an_address_is_forwarded() -> None:
    context = RequestContext("User:alice", None, "a Unix socket", 7, 1)
    _, seen = unwrap(wrap(REQUEST, context), 1)
    assert seen.client_host == "0.0.0.0"


@pytest.mark.parametrize(
    "damage",
    [
        {"request_data": b""},
        {"request_data": b"\0" * 9},
        {"request_principal": None},
        {"request_principal": b"\0\1rest"},
        {"request_principal": b"\0\0\xff"},
        {"client_host_address": b"\1\2\3"},
    ],
)
def test_an_envelope_that_cannot_be_read_is_refused(damage: dict[str, bytes | None]) -> None:
    envelope = wrap(REQUEST, RequestContext("User:alice", None, "127.0.0.1", 7, 1))
    for name, value in damage.items():
        setattr(envelope, name, value)
    with pytest.raises(ProtocolError):
        unwrap(envelope, 1)
