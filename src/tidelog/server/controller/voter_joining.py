"""A node that becomes a voter of the quorum by itself (`controller.quorum.auto.join.enable`).

It asks the leader to be added when it serves and there are fewer voters than there should be. One
change of the voters is made at a time, so several nodes that join take turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest, Listener
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from tidelog.promise import Promise
    from tidelog.server.node import Node

_RETRY_S = 0.5
_TIMEOUT_MS = 10_000


class VoterJoining:
    """Asks until the node is a voter or is not needed as one."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        node = self._node
        local = node.metadata.quorum.replica.quorum
        voters = local.voters
        if (
            node.is_stopping
            or voters.is_voter(local.key)
            or len(voters) >= node.config.controller_quorum_voters_max
        ):
            return
        request = AddRaftVoterRequest(
            cluster_id=node.cluster_id,
            timeout_ms=_TIMEOUT_MS,
            voter_id=local.key.id,
            voter_directory_id=local.key.directory_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port)
                for each in local.local.endpoints
            ],
        )
        asked = node.controller.ask_quorum(request, timeout_s=_TIMEOUT_MS / 1000)
        asked.when_done(self._answered)

    def _answered(self, answer: Promise[Any]) -> None:
        node = self._node
        code = None if answer.error is not None else ErrorCode(answer.result().error_code)
        if code is ErrorCode.NONE:
            node.log.info("voter_added", node_id=node.config.node_id)
            return
        if code is not ErrorCode.DUPLICATE_VOTER:
            reason = answer.error or answer.result().error_message
            node.log.info("voter_delayed", error=reason)
        delay_s = _RETRY_S * (1 + node.world.random.random())
        node.reactor.call_later(delay_s, self.start)
