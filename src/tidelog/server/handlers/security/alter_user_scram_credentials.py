"""AlterUserScramCredentials: set and delete SCRAM credentials, one row for each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.scram_changes import ScramDeletion, ScramUpsertion
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.decisions import answer_when_committed
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)
REQUEST = AlterUserScramCredentialsRequest
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Deferred:
    decision = node.controller.alter_user_scram_credentials(
        [ScramDeletion(each.name, each.mechanism) for each in body.deletions],
        [
            ScramUpsertion(
                each.name, each.mechanism, each.iterations, each.salt, each.salted_password
            )
            for each in body.upsertions
        ],
        node.metadata.latest,
    )
    response = AlterUserScramCredentialsResponse(
        results=[_row(row.user, row.error) for row in decision.rows]
    )
    return answer_when_committed(node, request, decision.records, lambda: response)


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
