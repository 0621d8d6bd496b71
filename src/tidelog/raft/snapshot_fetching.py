"""Snapshots on their way from the leader to replicas that are too far behind, part by part.

A follower that was told to load a snapshot asks for it from its first byte on. When it has all of
it, the caller makes it durable and restarts the log at its end, while the replica stands still; so
whatever the replica does next, it does with the snapshot. A leader never loads one: it has
everything that is committed.
"""

from __future__ import annotations

from typing import Any

from tidelog.protocol.apis.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.raft import messages
from tidelog.raft.connections import InFlight
from tidelog.raft.leader_state import Leader
from tidelog.raft.leader_tracking import LeaderTracking
from tidelog.raft.quorum import Quorum
from tidelog.raft.raft_log import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from tidelog.raft.states import Follower
from tidelog.raft.voters import ReplicaKey


class SnapshotFetching:
    """Both ends of FetchSnapshot."""

    def __init__(self, quorum: Quorum, leaders: LeaderTracking) -> None:
        self._quorum = quorum
        self._leaders = leaders
        self.complete: SnapshotId | None = None
        """A snapshot that is to be installed now."""

    # The leader

    def receive(self, request: FetchSnapshotRequest, token: object) -> None:
        quorum = self._quorum
        refusal = self._leaders.refuse(request.cluster_id, request.topics)
        if refusal is not None:
            quorum.answer(token, FetchSnapshotResponse(error_code=refusal))
            return
        quorum.answer(token, self._respond(request, request.topics[0].partitions[0]))

    def _respond(self, request: FetchSnapshotRequest, partition: Any) -> FetchSnapshotResponse:
        quorum = self._quorum
        view = quorum.leader_view
        error = self._leaders.refuse_leader_request(partition.current_leader_epoch)
        if error:
            return messages.fetch_snapshot_response(error, view)
        snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = quorum.log.snapshot_size(snapshot_id)
        if size is None or snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
            return messages.fetch_snapshot_response(ErrorCode.SNAPSHOT_NOT_FOUND, view)
        if not 0 <= partition.position < size:
            return messages.fetch_snapshot_response(ErrorCode.POSITION_OUT_OF_RANGE, view)
        chunk = quorum.log.read_snapshot(snapshot_id, partition.position, request.max_bytes)
        if chunk is None:
            return messages.fetch_snapshot_response(ErrorCode.SNAPSHOT_NOT_FOUND, view)
        leader = quorum.state
        assert isinstance(leader, Leader)
        key = ReplicaKey(request.replica_id, partition.replica_directory_id)
        if key.id != quorum.key.id:
            leader.heard_of(key, quorum.now_ms)
        return messages.fetch_snapshot_response(
            ErrorCode.NONE,
            view,
            snapshot_id=snapshot_id,
            size=size,
            position=partition.position,
            chunk=chunk,
        )

    # The follower

    def answered(self, in_flight: InFlight, response: FetchSnapshotResponse) -> bool:
        quorum = self._quorum
        partition = self._leaders.partition_of(response.error_code, response.topics)
        if partition is None:
            return False
        leader = partition.current_leader
        endpoints = messages.address_in(response, leader.leader_id, quorum.local.listener)
        handled = self._leaders.heard(
            partition.error_code, leader.leader_id, leader.leader_epoch, endpoints
        )
        if handled is not None:
            return handled
        state = quorum.state
        if not isinstance(state, Follower) or state.download is None:
            return True
        if partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
            # The leader has a newer one by now: fetch again to hear which.
            state.download = None
            self._heard_from_leader(state)
            return True
        if partition.error_code:
            return False
        download = state.download
        got = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        assert (got, partition.position) == (download.snapshot_id, download.size_bytes)
        chunk = partition.unaligned_records
        try:
            quorum.log.append_to_snapshot(chunk)
        except ApiError:
            state.download = None
            self._heard_from_leader(state)
            return False
        download.size_bytes += len(chunk)
        assert download.size_bytes <= partition.size
        if download.size_bytes == partition.size:
            assert got.offset >= (quorum.high_watermark or 0), "a snapshot holds what is committed"
            self.complete = got
        self._heard_from_leader(state)
        return True

    def installed(self, snapshot_id: SnapshotId) -> None:
        """It is durable, and the log begins and ends there."""
        quorum = self._quorum
        state = quorum.state
        assert isinstance(state, Follower), "a leader never loads a snapshot"
        assert self.complete == snapshot_id
        self.complete = None
        state.download = None
        quorum.restarted_at(snapshot_id.offset)
        quorum.follower_high_watermark(snapshot_id.offset)
        self._heard_from_leader(state)

    def _heard_from_leader(self, state: Follower) -> None:
        state.fetch_deadline_ms = self._quorum.now_ms + self._quorum.settings.fetch_timeout_ms
        state.has_fetched = True
