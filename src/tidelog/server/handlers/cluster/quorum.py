"""The requests about the metadata quorum, which its replica on this node answers.

Voters and observers send some of them to each other. Tools send DescribeQuorum, AddRaftVoter and
RemoveRaftVoter to any node, and hear from the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from tidelog.protocol.apis.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from tidelog.protocol.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tidelog.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from tidelog.protocol.apis.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tidelog.protocol.apis.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tidelog.protocol.apis.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tidelog.protocol.apis.vote import VoteRequest, VoteResponse
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.handler import Handler
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.promise import Promise
    from tidelog.protocol.errors import ApiError
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node
    from tidelog.server.request import Request


_OF_NODES = (Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster),)
_DESCRIBES = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)
_ALTERS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def _ask_replica(node: Node, request: Request, body: Message) -> Promise[Any]:
    return node.metadata.quorum.ask(body)


def _ask_leader(node: Node, request: Request, body: Message) -> Promise[Any]:
    return node.controller.ask_quorum(body)


def _handler(
    api: ApiKey,
    request_class: type[Message],
    response_class: Callable[..., Message],
    needs: tuple[Need, ...] = _OF_NODES,
    handle: Callable[[Node, Request, Any], Promise[Any]] = _ask_replica,
    *,
    has_message: bool = False,
) -> Handler:
    def error_response(body: Message, error: ApiError) -> Message:
        if has_message:
            return response_class(error_code=error.code, error_message=error.message)
        return response_class(error_code=error.code)

    return Handler.between_nodes(api, request_class, handle, error_response, needs)


HANDLERS = (
    _handler(ApiKey.VOTE, VoteRequest, VoteResponse),
    _handler(ApiKey.BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequest, BeginQuorumEpochResponse),
    _handler(ApiKey.END_QUORUM_EPOCH, EndQuorumEpochRequest, EndQuorumEpochResponse),
    _handler(ApiKey.FETCH_SNAPSHOT, FetchSnapshotRequest, FetchSnapshotResponse),
    _handler(ApiKey.UPDATE_RAFT_VOTER, UpdateRaftVoterRequest, UpdateRaftVoterResponse),
    _handler(
        ApiKey.DESCRIBE_QUORUM,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        _DESCRIBES,
        _ask_leader,
        has_message=True,
    ),
    _handler(
        ApiKey.ADD_RAFT_VOTER,
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        _ALTERS,
        _ask_leader,
        has_message=True,
    ),
    _handler(
        ApiKey.REMOVE_RAFT_VOTER,
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        _ALTERS,
        _ask_leader,
        has_message=True,
    ),
)
