"""Replication: followers pull the log from the leader with Fetch, observers as voters do.

A fetch says how far the follower's log goes and which epoch its last record has, and means that all
of that is on disk: a follower fetches again only after a sync. The leader compares
(`raft_log.compare`) and answers with records, with where the two logs diverge, or with a snapshot
to load. When there is nothing new, the fetch waits: for an append, for a higher high watermark than
the follower knows, or until its time is over. It does not outlive the leadership.
"""

from __future__ import annotations

from typing import Any

from tidelog.protocol.apis.fetch import FetchRequest, FetchResponse
from tidelog.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.raft import messages
from tidelog.raft.connections import InFlight
from tidelog.raft.leader_state import Leader, WaitingFetch
from tidelog.raft.leader_tracking import LeaderTracking
from tidelog.raft.quorum import Quorum
from tidelog.raft.raft_log import (
    Diverging,
    OffsetAndEpoch,
    SnapshotId,
    SnapshotRequired,
    compare,
    log_end,
    truncation_point,
)
from tidelog.raft.states import Follower, SnapshotDownload, Unattached
from tidelog.raft.voters import ReplicaKey

_SPREAD_DIVISOR = 5


class Fetching:
    """Both ends of Fetch."""

    def __init__(self, quorum: Quorum, leaders: LeaderTracking) -> None:
        self._quorum = quorum
        self._leaders = leaders
        quorum.when_leadership_ended.append(self._refuse_waiting)
        quorum.when_committed.append(self._answer_all_waiting)
        quorum.when_appended.append(self._answer_waiting)

    # The leader

    def receive(self, request: FetchRequest, token: object) -> None:
        quorum = self._quorum
        refusal = self._leaders.refuse(request.cluster_id, request.topics, is_fetch=True)
        if refusal is not None:
            quorum.answer(token, FetchResponse(error_code=refusal))
            return
        partition = request.topics[0].partitions[0]
        replica_id = max(request.replica_state.replica_id, request.replica_id)
        key = ReplicaKey(replica_id, partition.replica_directory_id)
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > partition.current_leader_epoch
            or replica_id == quorum.key.id
        ):
            quorum.answer(token, self._error(ErrorCode.INVALID_REQUEST))
            return
        leader = quorum.state
        if isinstance(leader, Leader):
            self._answer_abandoned(leader, key)
        response = self._try(request, key, is_new=True)
        if (
            request.max_wait_ms == 0
            or not isinstance(leader, Leader)
            or _has_news(response, partition.high_watermark)
        ):
            quorum.answer(token, response)
            return
        leader.waiting_fetches.append(
            WaitingFetch(
                token, request, key, partition.fetch_offset, quorum.now_ms + request.max_wait_ms
            )
        )

    def _answer_abandoned(self, leader: Leader, key: ReplicaKey) -> None:
        """A replica has one fetch under way: whoever sends another does not wait for the first."""
        if key.id < 0:
            return
        for waiting in leader.waiting_fetches:
            if waiting.key == key:
                leader.waiting_fetches.remove(waiting)
                self._answer_now(waiting)
                return

    def _try(self, request: FetchRequest, key: ReplicaKey, *, is_new: bool) -> FetchResponse:
        """The answer as of now. A new fetch tells how far the follower is; one that has waited
        tells nothing, not even that the follower is still there."""
        quorum = self._quorum
        partition = request.topics[0].partitions[0]
        error = self._leaders.refuse_leader_request(partition.current_leader_epoch)
        if error:
            return self._error(error)
        leader = quorum.state
        assert isinstance(leader, Leader)
        log = quorum.log
        offset = partition.fetch_offset
        found = compare(log, offset, partition.last_fetched_epoch)
        if isinstance(found, Diverging):
            return self._respond(leader, diverging=found.end)
        if isinstance(found, SnapshotRequired):
            return self._respond(leader, snapshot_id=found.snapshot_id)
        try:
            records = log.read(offset, request.max_bytes) if offset < log.end_offset else b""
        except (OSError, ApiError):
            # The follower asks again; without its fetches this leader does not last.
            return self._error(ErrorCode.KAFKA_STORAGE_ERROR)
        if is_new and leader.fetched(key, offset, log.end_offset, quorum.now_ms):
            quorum.leader_high_watermark_moved(leader)
        return self._respond(leader, records=records)

    def _respond(
        self,
        leader: Leader,
        *,
        records: Any = b"",
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
    ) -> FetchResponse:
        high_watermark = leader.high_watermark
        return messages.fetch_response(
            ErrorCode.NONE,
            self._quorum.leader_view,
            high_watermark=-1 if high_watermark is None else high_watermark,
            log_start_offset=self._quorum.log.start_offset,
            records=records,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )

    def _error(self, error: ErrorCode) -> FetchResponse:
        return messages.fetch_response(error, self._quorum.leader_view)

    def _answer_now(self, waiting: WaitingFetch) -> None:
        self._quorum.answer(waiting.token, self._respond_again(waiting))

    def _respond_again(self, waiting: WaitingFetch) -> FetchResponse:
        request: Any = waiting.request
        return self._try(request, waiting.key, is_new=False)

    def _answer_waiting(self, leader: Leader) -> None:
        """The log has grown."""
        if leader.waiting_fetches:
            end_offset = self._quorum.log.end_offset
            self._answer_some(
                leader, [w for w in leader.waiting_fetches if w.fetch_offset < end_offset]
            )

    def _answer_all_waiting(self, leader: Leader) -> None:
        """The high watermark has moved."""
        if leader.waiting_fetches:
            self._answer_some(leader, leader.waiting_fetches)

    def _answer_some(self, leader: Leader, chosen: list[WaitingFetch]) -> None:
        # They are taken out first: an answer may move the high watermark, which answers others.
        tokens = {id(waiting) for waiting in chosen}
        leader.waiting_fetches = [w for w in leader.waiting_fetches if id(w) not in tokens]
        for waiting in chosen:
            self._answer_now(waiting)

    def _refuse_waiting(self, leader: Leader) -> None:
        waiting, leader.waiting_fetches = leader.waiting_fetches, []
        for each in waiting:
            self._quorum.answer(each.token, self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def poll_leader(self, leader: Leader) -> None:
        due = [w for w in leader.waiting_fetches if w.deadline_ms <= self._quorum.now_ms]
        if due:
            self._answer_some(leader, due)
        for waiting in leader.waiting_fetches:
            self._quorum.wake_at(waiting.deadline_ms)

    # The follower

    def poll_follower(self, state: Follower) -> bool:
        quorum = self._quorum
        if quorum.is_electable:
            if state.fetch_deadline_ms <= quorum.now_ms:
                quorum.become_prospective()
                return True
            quorum.wake_at(state.fetch_deadline_ms)
        # A fetch says what is on disk.
        if quorum.is_synced:
            self._fetch_from_best(state)
        return False

    def poll_unattached(self, state: Unattached) -> None:
        """Ask anybody who leads."""
        if self._quorum.is_synced:
            self._fetch_from_bootstrap()

    def _fetch_from_best(self, state: Follower) -> None:
        """From the leader; from anybody who may know better while the leader does not answer."""
        quorum = self._quorum
        connections = quorum.connections
        leader_id, now_ms = state.leader_id, quorum.now_ms
        if connections.has_timed_out(leader_id, now_ms):
            connections.reset(leader_id)
            self._fetch_from_bootstrap()
        elif connections.is_paused(leader_id, now_ms):
            quorum.wake_at(connections.ready_at(leader_id))
            self._fetch_from_bootstrap()
        elif connections.any_in_flight(now_ms):
            quorum.wake_at(connections.all_ready_at())
        elif state.download is None:
            quorum.send_when_ready(leader_id, state.leader_endpoints, self._request)
        else:
            quorum.send_when_ready(leader_id, state.leader_endpoints, self._snapshot_request)

    def leader_is_gone(self, node_id: int) -> None:
        """Its process has ended: the election need not wait for the rest of the fetch timeout. The
        voters notice it in the same moment, so each waits a little and a different time."""
        quorum = self._quorum
        state = quorum.state
        if isinstance(state, Follower) and state.leader_id == node_id:
            spread_ms = max(1, quorum.settings.election_timeout_ms // _SPREAD_DIVISOR)
            soon_ms = quorum.now_ms + quorum.random.randrange(spread_ms)
            state.fetch_deadline_ms = min(state.fetch_deadline_ms, soon_ms)

    def _fetch_from_bootstrap(self) -> None:
        quorum = self._quorum
        connections = quorum.connections
        server = connections.ready_bootstrap(quorum.servers(), quorum.now_ms)
        if server is not None:
            quorum.send(server, self._request())
        if connections.any_in_flight(quorum.now_ms):
            quorum.wake_at(connections.all_ready_at())
        elif connections.bootstrap_paused_until_ms > quorum.now_ms:
            quorum.wake_at(connections.bootstrap_paused_until_ms)

    def _request(self) -> FetchRequest:
        quorum = self._quorum
        settings = quorum.settings
        high_watermark = quorum.high_watermark
        end = log_end(quorum.log)
        assert quorum.synced_offset == end.offset, "a follower reports what it has synced"
        return messages.fetch_request(
            quorum.local.cluster_id,
            quorum.epoch,
            quorum.key,
            end,
            -1 if high_watermark is None else high_watermark,
            settings.fetch_max_bytes,
            settings.fetch_max_wait_ms,
        )

    def _snapshot_request(self) -> FetchSnapshotRequest:
        quorum = self._quorum
        state = quorum.state
        assert isinstance(state, Follower)
        assert state.download is not None
        return messages.fetch_snapshot_request(
            quorum.local.cluster_id,
            quorum.epoch,
            quorum.key,
            state.download.snapshot_id,
            state.download.size_bytes,
            quorum.settings.fetch_snapshot_max_bytes,
        )

    def answered(self, in_flight: InFlight, response: FetchResponse) -> bool:
        quorum = self._quorum
        partition = self._leaders.partition_of(
            response.error_code, response.responses, is_fetch=True
        )
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
        if partition.error_code:
            return False
        request: Any = in_flight.request
        asked = request.topics[0].partitions[0]
        if not isinstance(state, Follower) or asked.current_leader_epoch != state.epoch:
            return True
        end = log_end(quorum.log)
        assert end == (asked.fetch_offset, asked.last_fetched_epoch), "one fetch at a time"
        try:
            self._take(state, partition)
        except ApiError:
            # The disk does not take it. The leader is alive nevertheless.
            self._heard_from_leader(state)
            return False
        self._heard_from_leader(state)
        return True

    def _take(self, state: Follower, partition: Any) -> None:
        quorum = self._quorum
        diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            end = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
            quorum.truncate_to(truncation_point(quorum.log, end))
        elif snapshot_id.epoch >= 0 and snapshot_id.end_offset >= 0:
            wanted = SnapshotId(snapshot_id.end_offset, snapshot_id.epoch)
            quorum.log.begin_snapshot(wanted)
            state.download = SnapshotDownload(wanted)
        else:
            if partition.records:
                quorum.append_as_follower(partition.records)
            if partition.high_watermark >= 0:
                quorum.follower_high_watermark(partition.high_watermark)

    def _heard_from_leader(self, state: Follower) -> None:
        state.fetch_deadline_ms = self._quorum.now_ms + self._quorum.settings.fetch_timeout_ms
        state.has_fetched = True


def _has_news(response: FetchResponse, known_high_watermark: int) -> bool:
    partition = response.responses[0].partitions[0]
    return bool(
        partition.error_code
        or partition.records
        or partition.diverging_epoch.epoch >= 0
        or partition.snapshot_id.epoch >= 0
        or known_high_watermark < partition.high_watermark
    )
