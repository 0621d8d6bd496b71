"""Changes of the voters: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and kraft.version.

Voters are a record in the log. A change is one voter more or one less, appended by the leader, and
it counts from the moment it is in a log: the leader needs a majority of the new voters to commit
it, and a follower that truncates it goes back to the voters before. Two sets that differ by one
voter have no disjoint majorities, so that much is safe; two changes in flight would not be. Hence
the order of checks: no change is pending here; the leader has committed a record of its epoch, so
that it knows of changes by leaders before it; the newest change in its log is committed.

A voter that is added has to be caught up, or the quorum could be stuck waiting for it; and it is
asked what it supports. A leader that is removed leads until that is committed by the others,
without counting itself, and resigns.

At kraft.version 0 the voters are those of the configuration and cannot change. They tell each
leader their directories and what they support; when all have, kraft.version can be raised, which
makes them a record.
"""

from __future__ import annotations

from typing import Any

from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tidelog.protocol.apis.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    Listener,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tidelog.protocol.control_records import KRaftVersionRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.raft.connections import InFlight
from tidelog.raft.leader_state import Leader, VoterChange
from tidelog.raft.leader_tracking import LeaderTracking
from tidelog.raft.quorum import Quorum
from tidelog.raft.states import Follower
from tidelog.raft.voters import (
    KRAFT_VERSION,
    RECONFIGURATION_VERSION,
    Destination,
    Endpoint,
    Endpoints,
    ReplicaKey,
    VoterNode,
    VoterSet,
)


class Membership:
    """Who votes."""

    def __init__(self, quorum: Quorum, leaders: LeaderTracking) -> None:
        self._quorum = quorum
        self._leaders = leaders
        quorum.when_leadership_ended.append(self._refuse_changes)
        quorum.when_committed.append(self._committed)

    # Adding

    def receive_add(self, request: AddRaftVoterRequest, token: object) -> None:
        quorum = self._quorum
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = _endpoints(request.listeners)
        address = quorum.address(endpoints)
        try:
            self._require_cluster(request.cluster_id)
            leader = self._require_leader()
            if key.id < 0 or key.directory_id == ZERO_UUID or address is None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"voter {key.id} needs a directory id and an endpoint of the listener "
                    f"{quorum.local.listener}",
                )
            voters = self._require_no_change(leader)
            if voters.get(key.id) is not None:
                raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is a voter already")
            if not quorum.connections.is_ready(key.id, quorum.now_ms):
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"node {key.id} is not ready for requests"
                )
        except ApiError as error:
            quorum.answer(token, _added(error))
            return
        change = VoterChange(
            token, key, endpoints, quorum.now_ms + quorum.settings.request_timeout_ms
        )
        change.acknowledge = request.ack_when_committed
        leader.addition = change
        probe = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        quorum.send(Destination(key.id, address.host, address.port), probe)

    def versions_answered(self, in_flight: InFlight, response: ApiVersionsResponse) -> bool:
        """The voter to be has said what it supports."""
        quorum = self._quorum
        leader = quorum.state
        if not isinstance(leader, Leader) or leader.addition is None:
            return True
        change = leader.addition
        if change.end_offset is not None or change.key.id != in_flight.destination.node_id:
            return True
        try:
            if response.error_code:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"node {change.key.id} did not say which versions it supports",
                )
            node = VoterNode(change.key, change.endpoints, *_kraft_versions(response))
            if not node.supports(quorum.history.kraft_version):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"node {change.key.id} supports {KRAFT_VERSION} {node.min_kraft_version} to "
                    f"{node.max_kraft_version}; the quorum is at {quorum.history.kraft_version}",
                )
            if not leader.is_caught_up(change.key, quorum.now_ms):
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"node {change.key.id} has not caught up yet"
                )
            change.end_offset = quorum.append_controls([quorum.voters.with_voter(node).to_record()])
        except ApiError as error:
            self._end_addition(leader, error)
            return not response.error_code
        if not change.acknowledge:
            self._answer(change, AddRaftVoterResponse(error_message=None))
        self._local_progress(leader)
        return True

    # Removing

    def receive_remove(self, request: RemoveRaftVoterRequest, token: object) -> None:
        quorum = self._quorum
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            self._require_cluster(request.cluster_id)
            leader = self._require_leader()
            if key.id < 0 or key.directory_id == ZERO_UUID:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"voter {key.id} needs a directory id")
            voters = self._require_no_change(leader).without(key)
            if voters is None:
                raise ApiError(
                    ErrorCode.VOTER_NOT_FOUND,
                    f"node {key.id} with this directory is not among the voters "
                    f"{quorum.voters.ids}, or the only one",
                )
            end_offset = quorum.append_controls([voters.to_record()])
        except ApiError as error:
            quorum.answer(token, _removed(error))
            return
        change = VoterChange(token, key, (), quorum.now_ms + quorum.settings.request_timeout_ms)
        change.end_offset = end_offset
        leader.removal = change
        self._local_progress(leader)

    # Updating

    def receive_update(self, request: UpdateRaftVoterRequest, token: object) -> None:
        self._quorum.answer(token, self._update(request))

    def _update(self, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
        quorum = self._quorum
        feature = request.kraft_version_feature
        node = VoterNode(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            _endpoints(request.listeners),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        try:
            self._require_cluster(request.cluster_id)
            if error := self._leaders.refuse_leader_request(request.current_leader_epoch):
                raise ApiError(error)
            leader = self._require_leader()
            if (
                node.key.id < 0
                or node.key.directory_id == ZERO_UUID
                or quorum.address(node.endpoints) is None
                or not 0 <= node.min_kraft_version <= node.max_kraft_version
            ):
                raise ApiError(ErrorCode.INVALID_REQUEST)
            self._store_update(leader, node)
        except ApiError as error:
            return self._updated(error.code)
        leader.heard_of(node.key, quorum.now_ms)
        return self._updated(ErrorCode.NONE)

    def _store_update(self, leader: Leader, node: VoterNode) -> None:
        quorum = self._quorum
        kraft_version = quorum.history.kraft_version
        if not node.supports(kraft_version):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if kraft_version >= RECONFIGURATION_VERSION:
            voters = self._require_no_change(leader)
            if not voters.is_voter(node.key):
                raise ApiError(ErrorCode.VOTER_NOT_FOUND)
            quorum.append_controls([voters.with_voter(node).to_record()])
            self._local_progress(leader)
            return
        described = leader.volatile_voters
        if described is None or leader.high_watermark is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        if described.get(node.key.id) is None:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND)
        leader.volatile_voters = described.with_voter(node)

    def _updated(self, error: ErrorCode) -> UpdateRaftVoterResponse:
        view = self._quorum.leader_view
        response = UpdateRaftVoterResponse(error_code=error)
        if view.leader_id >= 0:
            response.current_leader = CurrentLeader(
                leader_id=view.leader_id,
                leader_epoch=view.epoch,
                host="" if view.address is None else view.address.host,
                port=0 if view.address is None else view.address.port,
            )
        else:
            response.current_leader = CurrentLeader(leader_epoch=view.epoch)
        return response

    def poll_follower(self, state: Follower) -> None:
        """A voter tells the leader about itself when it is listed with something else."""
        quorum = self._quorum
        if not quorum.is_voter:
            return
        if state.update_voter_deadline_ms > quorum.now_ms:
            quorum.wake_at(state.update_voter_deadline_ms)
            return
        period_ms = quorum.settings.fetch_timeout_ms
        node = quorum.local.as_voter
        if quorum.history.kraft_version >= RECONFIGURATION_VERSION:
            is_needed = quorum.voters.needs_update(node)
        else:
            is_needed = not state.has_updated_leader
        # There is one request to the leader at a time: this one goes between two fetches.
        if not is_needed or quorum.send_when_ready(
            state.leader_id, state.leader_endpoints, self._update_request
        ):
            state.update_voter_deadline_ms = quorum.now_ms + period_ms
            quorum.wake_at(state.update_voter_deadline_ms)

    def _update_request(self) -> UpdateRaftVoterRequest:
        quorum = self._quorum
        node = quorum.local.as_voter
        return UpdateRaftVoterRequest(
            cluster_id=quorum.local.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=node.key.id,
            voter_directory_id=node.key.directory_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port) for each in node.endpoints
            ],
            kraft_version_feature=KRaftVersionFeature(
                min_supported_version=node.min_kraft_version,
                max_supported_version=node.max_kraft_version,
            ),
        )

    def update_answered(self, in_flight: InFlight, response: UpdateRaftVoterResponse) -> bool:
        quorum = self._quorum
        leader = response.current_leader
        endpoints: Endpoints = ()
        if leader.host:
            endpoints = (Endpoint(quorum.local.listener, leader.host, leader.port),)
        handled = self._leaders.heard(
            response.error_code, leader.leader_id, leader.leader_epoch, endpoints
        )
        if handled is not None:
            return handled
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return False
        state = quorum.state
        if isinstance(state, Follower):
            state.has_updated_leader = True
            state.fetch_deadline_ms = quorum.now_ms + quorum.settings.fetch_timeout_ms
        return True

    # kraft.version

    def upgrade(self, kraft_version: int) -> int:
        """Raise kraft.version; returns the offset up to which the log has to be committed for it.
        Raises ApiError."""
        quorum = self._quorum
        leader = self._require_leader()
        current = quorum.history.kraft_version
        if kraft_version == current:
            return quorum.log.end_offset
        described = leader.volatile_voters
        if kraft_version < current or described is None or leader.high_watermark is None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{KRAFT_VERSION} cannot go from {current} to {kraft_version} now",
            )
        silent = [node.key.id for node in described if node.key.directory_id == ZERO_UUID]
        unable = [node.key.id for node in described if not node.supports(kraft_version)]
        if silent or unable:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{KRAFT_VERSION} {kraft_version} needs all voters: {silent} have not described "
                f"themselves to this leader yet, {unable} do not support it",
            )
        end_offset = quorum.append_controls(
            [KRaftVersionRecord(version=0, kraft_version=kraft_version), described.to_record()]
        )
        leader.volatile_voters = None
        self._local_progress(leader)
        return end_offset

    # All of them

    def _require_cluster(self, cluster_id: str | None) -> None:
        if cluster_id is not None and cluster_id != self._quorum.local.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._quorum.local.cluster_id!r}, not {cluster_id!r}",
            )

    def _require_leader(self) -> Leader:
        leader = self._quorum.state
        if not isinstance(leader, Leader) or leader.is_resigning:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {self._quorum.key.id} does not lead the quorum",
            )
        return leader

    def _require_no_change(self, leader: Leader) -> VoterSet:
        """The voters, if nothing is in the way of changing them."""
        quorum = self._quorum
        if leader.addition is not None or leader.removal is not None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is pending")
        if leader.high_watermark is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything yet")
        if quorum.history.kraft_version < RECONFIGURATION_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{KRAFT_VERSION} is 0: the voters are those of the configuration",
            )
        offset = quorum.history.voters_offset
        if offset is None or offset >= leader.high_watermark:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"the voters at offset {offset} are not committed yet"
            )
        return quorum.voters

    def _local_progress(self, leader: Leader) -> None:
        """Other voters may make another high watermark, without an append of anybody."""
        if leader.local_synced(self._quorum.synced_offset):
            self._quorum.leader_high_watermark_moved(leader)

    def _committed(self, leader: Leader) -> None:
        high_watermark = leader.high_watermark
        assert high_watermark is not None
        addition, removal = leader.addition, leader.removal
        if addition is not None and (addition.end_offset or high_watermark + 1) <= high_watermark:
            self._end_addition(leader, None)
        if removal is not None and (removal.end_offset or high_watermark + 1) <= high_watermark:
            self._end_removal(leader, None)
        offset = self._quorum.history.voters_offset
        if not self._quorum.is_voter and offset is not None and offset < high_watermark:
            # Whether or not anybody waits for the removal: it is done, and so is this leader.
            leader.is_resigning = True

    def poll_leader(self, leader: Leader) -> None:
        quorum = self._quorum
        timed_out = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the change is not committed yet")
        if leader.addition is not None:
            if leader.addition.deadline_ms <= quorum.now_ms:
                self._end_addition(leader, timed_out)
            else:
                quorum.wake_at(leader.addition.deadline_ms)
        if leader.removal is not None:
            if leader.removal.deadline_ms <= quorum.now_ms:
                self._end_removal(leader, timed_out)
            else:
                quorum.wake_at(leader.removal.deadline_ms)

    def _refuse_changes(self, leader: Leader) -> None:
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node leads the quorum no more")
        if leader.addition is not None:
            self._end_addition(leader, error)
        if leader.removal is not None:
            self._end_removal(leader, error)

    def _end_addition(self, leader: Leader, error: ApiError | None) -> None:
        change, leader.addition = leader.addition, None
        assert change is not None
        self._answer(change, _added(error))

    def _end_removal(self, leader: Leader, error: ApiError | None) -> None:
        change, leader.removal = leader.removal, None
        assert change is not None
        self._answer(change, _removed(error))

    def _answer(self, change: VoterChange, response: Any) -> None:
        token, change.token = change.token, None
        if token is not None:
            self._quorum.answer(token, response)


def _added(error: ApiError | None) -> AddRaftVoterResponse:
    if error is None:
        return AddRaftVoterResponse(error_message=None)
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


def _removed(error: ApiError | None) -> RemoveRaftVoterResponse:
    if error is None:
        return RemoveRaftVoterResponse(error_message=None)
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def _endpoints(listeners: Any) -> Endpoints:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


def _kraft_versions(response: ApiVersionsResponse) -> tuple[int, int]:
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return feature.min_version, feature.max_version
    return 0, 0
