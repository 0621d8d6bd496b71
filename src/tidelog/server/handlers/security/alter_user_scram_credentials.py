"""AlterUserScramCredentials: set and delete SCRAM credentials, one row for each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.scram_changes import (
    ScramDeletion,
    ScramUpsertion,
    alter_user_scram_credentials,
)
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)
REQUEST = AlterUserScramCredentialsRequest
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: AlterUserScramCredentialsRequest
) -> Promise[AlterUserScramCredentialsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    decision = alter_user_scram_credentials(
        [ScramDeletion(each.name, each.mechanism) for each in body.deletions],
        [
            ScramUpsertion(
                each.name, each.mechanism, each.iterations, each.salt, each.salted_password
            )
            for each in body.upsertions
        ],
        controller.latest,
    )
    response = AlterUserScramCredentialsResponse(
        results=[_row(row.user, row.error) for row in decision.rows]
    )
    return Decision(decision.records, response)


def error_response(
    body: AlterUserScramCredentialsRequest, error: ApiError
) -> AlterUserScramCredentialsResponse:
    named = [each.name for each in body.deletions] + [each.name for each in body.upsertions]
    users = dict.fromkeys(named)
    return AlterUserScramCredentialsResponse(results=[_row(user, error) for user in users])


def _row(user: str, error: ApiError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user)
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=error.message
    )
