"""Without an authorizer and without authentication: what ACL, token and SASL calls hear."""

import pytest

from tidelog.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from tidelog.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from tidelog.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.protocol.apis.describe_acls import DescribeAclsRequest
from tidelog.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from tidelog.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from tidelog.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from tidelog.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from tidelog.protocol.apis.sasl_handshake import SaslHandshakeRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.testing.wire import WireClient


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_need_an_authorizer(wire: WireClient, version: int) -> None:
    response = wire.call(DescribeAclsRequest(resource_type_filter=1), version)
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert response.error_message
    response = wire.call(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
    assert [row.error_code for row in response.results] == [ErrorCode.SECURITY_DISABLED] * 2
    response = wire.call(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    assert [row.error_code for row in response.filter_results] == [ErrorCode.SECURITY_DISABLED]


@pytest.mark.parametrize(
    "request_message",
    [
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(),
        ExpireDelegationTokenRequest(),
        DescribeDelegationTokenRequest(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_tokens_need_authentication(wire: WireClient, request_message: Message) -> None:
    for version in range(1, request_message.MAX_VERSION + 1):
        response = wire.call(request_message, version)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_sasl_is_out_of_place_on_a_plaintext_listener(wire: WireClient) -> None:
    for version in range(2):
        response = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    for version in range(3):
        response = wire.call(SaslAuthenticateRequest(auth_bytes=b"x"), version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
