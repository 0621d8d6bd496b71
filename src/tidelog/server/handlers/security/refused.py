"""The APIs of access control, authentication and tokens, which nodes refuse.

There is no authorizer, and no listener authenticates its clients. Each API answers with the error
that Kafka has for this; none is left out, so that clients hear it instead of a closed connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tidelog.protocol.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidelog.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.protocol.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.protocol.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.protocol.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.handler import Handler
from tidelog.server.needs import Need, Refusal, Unnamed, cluster

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node
    from tidelog.server.request import Request

Respond = Callable[[Any, ApiError], "Message"]
Refuse = Callable[["Node", "Request", Any], "Message"]


def _no_authorizer(node: Node, request: Request, body: Any) -> Message:
    raise ApiError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker")


def _no_authentication(node: Node, request: Request, body: Any) -> Message:
    raise ApiError(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"The listener {request.connection.listener.name} does not authenticate clients",
    )


def _no_tokens(node: Node, request: Request, body: Any) -> Message:
    # Tokens exist only where clients are authenticated.
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _describe_acls(body: DescribeAclsRequest, error: ApiError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)


def _create_acls(body: CreateAclsRequest, error: ApiError) -> CreateAclsResponse:
    row = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[row for _ in body.creations])


def _delete_acls(body: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    row = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[row for _ in body.filters])


def _authenticate(body: SaslAuthenticateRequest, error: ApiError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)


def _code_of(response_class: Callable[..., Message]) -> Respond:
    """For answers that have nothing but an error code."""
    return lambda body, error: response_class(error_code=error.code)


def _refused(
    api: ApiKey,
    versions: tuple[int, int],
    request_class: type[Message],
    refuse: Refuse,
    respond: Respond,
    needs: tuple[Need, ...] = (),
) -> Handler:
    return Handler(
        api=api,
        min_version=versions[0],
        max_version=versions[1],
        served_from=versions[0],
        request_class=request_class,
        flexible_from=request_class.FLEXIBLE_FROM,
        handle=refuse,
        error_response=respond,
        needs=needs,
    )


def _owner(body: CreateDelegationTokenRequest, version: int) -> Iterable[str]:
    """Nobody needs anything to have a token of their own."""
    if not body.owner_principal_name:
        return ()
    return (f"{body.owner_principal_type}:{body.owner_principal_name}",)


_DESCRIBES_CLUSTER = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)
_ALTERS_CLUSTER = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)
_CREATES_TOKENS = (Need(AclOperation.CREATE_TOKENS, ResourceType.USER, _owner),)
_DESCRIBES_TOKENS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.DELEGATION_TOKEN,
        Unnamed.IN_ANSWER,
        Refusal.OMISSION,
        unless=Need(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, Unnamed.IN_ANSWER),
    ),
)

HANDLERS = (
    _refused(
        ApiKey.DESCRIBE_ACLS,
        (1, 3),
        DescribeAclsRequest,
        _no_authorizer,
        _describe_acls,
        _DESCRIBES_CLUSTER,
    ),
    _refused(
        ApiKey.CREATE_ACLS,
        (1, 3),
        CreateAclsRequest,
        _no_authorizer,
        _create_acls,
        _ALTERS_CLUSTER,
    ),
    _refused(
        ApiKey.DELETE_ACLS,
        (1, 3),
        DeleteAclsRequest,
        _no_authorizer,
        _delete_acls,
        _ALTERS_CLUSTER,
    ),
    _refused(
        ApiKey.SASL_HANDSHAKE,
        (0, 1),
        SaslHandshakeRequest,
        _no_authentication,
        _code_of(SaslHandshakeResponse),
    ),
    _refused(
        ApiKey.SASL_AUTHENTICATE,
        (0, 2),
        SaslAuthenticateRequest,
        _no_authentication,
        _authenticate,
    ),
    _refused(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (1, 3),
        CreateDelegationTokenRequest,
        _no_tokens,
        _code_of(CreateDelegationTokenResponse),
        _CREATES_TOKENS,
    ),
    # A token's owner and its renewers may do these; no operation is needed.
    _refused(
        ApiKey.RENEW_DELEGATION_TOKEN,
        (1, 2),
        RenewDelegationTokenRequest,
        _no_tokens,
        _code_of(RenewDelegationTokenResponse),
    ),
    _refused(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        (1, 2),
        ExpireDelegationTokenRequest,
        _no_tokens,
        _code_of(ExpireDelegationTokenResponse),
    ),
    _refused(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        (1, 3),
        DescribeDelegationTokenRequest,
        _no_tokens,
        _code_of(DescribeDelegationTokenResponse),
        _DESCRIBES_TOKENS,
    ),
)
