"""Following what others say about epochs and leaders, and refusing what is out of date.

Every request and response carries an epoch, and most carry who leads it. One that is newer is
always taken over; an older one is refused (a request) or ignored (a response). Within an epoch
there is one leader, so two messages that name different ones are a bug in somebody.
"""

from __future__ import annotations

from typing import Any

from tidelog.protocol.errors import ErrorCode
from tidelog.raft.leader_state import Leader
from tidelog.raft.messages import only_partition
from tidelog.raft.quorum import Quorum
from tidelog.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from tidelog.raft.voters import Endpoints


class LeaderTracking:
    """Transitions that the word of others causes."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Requests

    def refuse(self, cluster_id: str | None, topics: Any, *, is_fetch: bool = False) -> int | None:
        """The error of a request that is not for this quorum."""
        if cluster_id is not None and cluster_id != self._quorum.local.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if only_partition(topics, is_fetch=is_fetch) is None:
            return ErrorCode.INVALID_REQUEST
        return None

    def refuse_voter_request(self, sender_id: int, epoch: int) -> ErrorCode:
        """NONE unless a request about elections is out of date, or of nobody."""
        if epoch < self._quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE

    def refuse_leader_request(self, epoch: int) -> ErrorCode:
        """NONE when this replica leads that epoch."""
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(quorum.state, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    # Responses

    def partition_of(self, error_code: int, topics: Any, *, is_fetch: bool = False) -> Any | None:
        """The one partition of a response; None when it failed as a whole."""
        return None if error_code else only_partition(topics, is_fetch=is_fetch)

    def heard(
        self, error_code: int, leader_id: int, epoch: int, endpoints: Endpoints
    ) -> bool | None:
        """Take over what a response says about the quorum.

        None when the response is of this epoch and its content is still to be looked at. Otherwise
        whether the one who sent it is fine and may be asked again at once.
        """
        quorum = self._quorum
        if epoch < quorum.epoch or error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return True
        if epoch > quorum.epoch or error_code in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ):
            had_leader = quorum.leader_id is not None and epoch == quorum.epoch
            self.transition(leader_id, epoch, endpoints)
            # One who knows no more than we do is not asked again at once.
            return not had_leader and quorum.leader_id is not None
        if leader_id >= 0 and self._lacks_leader():
            self.transition(leader_id, epoch, endpoints)
            return True if error_code else None
        if error_code == ErrorCode.BROKER_NOT_AVAILABLE:
            return False
        return True if error_code == ErrorCode.INVALID_VOTER_KEY else None

    def _lacks_leader(self) -> bool:
        state = self._quorum.state
        return isinstance(state, (Unattached, Candidate)) or (
            isinstance(state, Prospective) and state.leader_id is None
        )

    def transition(self, leader_id: int, epoch: int, endpoints: Endpoints) -> None:
        """Somebody says who leads an epoch (-1: that nobody is known to) that is not older."""
        quorum = self._quorum
        if not endpoints and leader_id >= 0:
            endpoints = quorum.voters.endpoints(leader_id)
        # A node whose disk was replaced may hear that it leads. It does not know how to.
        is_usable = (
            leader_id >= 0 and leader_id != quorum.key.id and quorum.address(endpoints) is not None
        )
        state = quorum.state
        if epoch > quorum.epoch:
            if is_usable:
                quorum.become_follower(epoch, leader_id, endpoints)
            else:
                quorum.become_unattached(epoch)
            return
        if not is_usable:
            return
        assert quorum.leader_id in (None, leader_id), (
            f"epoch {epoch} has two leaders, {quorum.leader_id} and {leader_id}"
        )
        if self._lacks_leader():
            quorum.become_follower(epoch, leader_id, endpoints)
        elif isinstance(state, Follower):
            state.leader_endpoints = endpoints
        else:
            assert isinstance(state, (Prospective, Resigned, Leader))
