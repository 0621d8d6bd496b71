"""This node's replica of the metadata quorum, with what it needs of the world.

`raft.replica.Replica` decides; here its outputs are carried out, in their order, and it hears how
that has ended:

    loop      inputs: requests of other nodes, answers, time, proposals
    worker    the vote and the log are synced, a received snapshot is installed
    loop      what is committed, who leads and how proposals have ended is told to `QuorumListener`

One that hears something may propose or ask at once; what follows from that comes after what is
being told. When the disk refuses a sync nobody knows what it holds: the replica stops, as if its
process had, and everything that is asked of it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tidelog.cluster.metadata.replicated_log import ReplicatedLog
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.raft.local_node import LocalNode
from tidelog.raft.outputs import (
    Answer,
    HighWatermarkMoved,
    InstallSnapshot,
    LeaderChanged,
    Output,
    Persist,
    ProposalEnded,
    Send,
    Sync,
)
from tidelog.raft.quorum_state_file import (
    FILE_NAME,
    ElectionState,
    QuorumStateError,
    decode_quorum_state,
    encode_quorum_state,
)
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.replica import Replica
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.states import NEVER_MS
from tidelog.raft.voters import Destination, VoterSet
from tidelog.storage.files import NO_SPACE, read_file, replace_file
from tidelog.storage.flush import Flush
from tidelog.world import World
from tidelog.world.workers import Worker

logger = logging.getLogger(__name__)

_PERSIST_RETRY_S = 1.0

PostBack = Callable[[Callable[[], None]], None]
Done = Callable[[ApiError | None], None]
Sent = Callable[["Message | None", ErrorCode], None]
"""How a request has ended: with a response, or without one and why."""
SendRequest = Callable[[Destination, Message, Sent], None]


class Cancellable(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Cancellable]


class QuorumListener(Protocol):
    """Whoever keeps a state machine on the log."""

    def committed(self, high_watermark: int) -> None:
        """Everything below is committed."""
        ...

    def leader_changed(self, leader_id: int | None, epoch: int) -> None: ...

    def proposal_ended(self, token: object, error: ApiError | None) -> None: ...

    def synced(self) -> None:
        """All of the log is on this node's disk."""
        ...

    def prepare_load(self, snapshot_id: SnapshotId) -> Callable[[], Callable[[], None]]:
        """A snapshot of another node takes the place of the log: reads it, beside the loop, and
        gives what takes it over, on the loop."""
        ...

    def stopped(self, error: ApiError) -> None:
        """The replica takes part no more."""
        ...


class NoTimers:
    """For a quorum of one node, which waits for nobody."""

    def __call__(self, delay_s: float, call: Callable[[], None]) -> Cancellable:
        return self

    def cancel(self) -> None:
        pass


def _send_nothing(destination: Destination, request: Message, sent: Sent) -> None:
    raise AssertionError(f"a quorum of one node has nobody to send {request} to")


class QuorumMember:
    """One replica while its process lives. All of it belongs to the loop thread.

    `post_back` has its argument called on the loop thread. `call_later` and `send` are what a
    quorum of several nodes needs.
    """

    def __init__(
        self,
        world: World,
        log: ReplicatedLog,
        local: LocalNode,
        settings: QuorumSettings,
        listener: QuorumListener,
        worker: Worker,
        post_back: PostBack,
        call_later: CallLater | None = None,
        send: SendRequest | None = None,
    ) -> None:
        self._files = world.files
        self._monotonic = world.monotonic
        self._log = log
        self._listener = listener
        self._worker = worker
        self._post_back = post_back
        self._call_later = call_later or NoTimers()
        self._send_request = send or _send_nothing
        self._state_path = log.directory / FILE_NAME
        self._timer: Cancellable | None = None
        self._timer_ms = NEVER_MS
        self._is_carrying_out = False
        self._jobs = 0
        self.refusal: ApiError | None = None
        """Why the replica has stopped, once it has."""
        self.persist_error: OSError | None = None
        """Why the vote is not on disk, while the disk refuses it."""
        self._carry_out_by: dict[type[Output], Callable[[Any], None]] = {
            Send: self._send,
            Answer: self._answer,
            Persist: self._persist,
            Sync: self._sync,
            InstallSnapshot: self._install,
            HighWatermarkMoved: self._high_watermark_moved,
            LeaderChanged: self._leader_changed,
            ProposalEnded: self._proposal_ended,
        }
        self.replica = Replica(
            local,
            log,
            settings,
            world.random,
            self._read_election(),
            self._now_ms(),
            world.wall_ms,
        )

    def start(self) -> None:
        """Begin to take part."""
        self._carry_out()

    def _read_election(self) -> ElectionState:
        """Raises QuorumStateError and OSError."""
        if not self._files.exists(self._state_path):
            return ElectionState(0)
        try:
            return decode_quorum_state(read_file(self._files, self._state_path))
        except QuorumStateError as error:
            raise QuorumStateError(f"{self._state_path}: {error}") from error

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # What is known

    @property
    def is_leader(self) -> bool:
        return self.refusal is None and self.replica.is_leader

    @property
    def is_in_touch(self) -> bool:
        """Whether the quorum works as far as this node sees it: a leader hears of a majority, a
        follower of its leader."""
        return self.refusal is None and self.replica.is_in_touch(self._now_ms())

    @property
    def is_synced(self) -> bool:
        """Whether all of the log is on this node's disk."""
        return self.replica.quorum.is_synced

    @property
    def has_jobs(self) -> bool:
        """Whether work beside the loop has not been heard of yet."""
        return self._jobs > 0

    @property
    def voters(self) -> VoterSet:
        return self.replica.quorum.voters

    def voters_at(self, offset: int) -> VoterSet:
        """The voters that count at an offset of the log that is committed."""
        return self.replica.quorum.history.voters_at(offset) or self.voters

    def kraft_version_at(self, offset: int) -> int:
        return self.replica.quorum.history.kraft_version_at(offset)

    # Inputs

    def ask(self, request: Message) -> Promise[Any]:
        """The response to a request of another node or of a tool."""
        if self.refusal is not None:
            return Promise.failed(self.refusal)
        answer: Promise[Any] = Promise()
        self.replica.receive(request, answer, self._now_ms())
        self._carry_out()
        return answer

    def propose(self, batches: bytearray, token: object) -> None:
        """`QuorumListener.proposal_ended` hears how it ends, once."""
        if self.refusal is not None:
            self._listener.proposal_ended(token, self.refusal)
            return
        self.replica.propose(batches, token, self._now_ms())
        self._carry_out()

    def upgrade_kraft_version(self, level: int) -> None:
        """Puts the voters into the log; raises ApiError. What is proposed next stands behind."""
        self.replica.upgrade_kraft_version(level, self._now_ms())
        self._carry_out()

    def snapshot_taken(self, snapshot_id: SnapshotId, kept: list[SnapshotId]) -> None:
        """This node has written a snapshot of its own; `kept` are those that are there now."""
        self._log.taken(kept)
        self.replica.snapshot_taken(snapshot_id)

    def resign(self) -> None:
        """Let others lead, if this node does."""
        if self.refusal is None:
            self.replica.resign(self.replica.epoch, self._now_ms())
            self._carry_out()

    def stop(self, error: ApiError) -> None:
        """Take part no more."""
        if self.refusal is None:
            self.refusal = error
            self._cancel_timer()
            self._listener.stopped(error)

    def _tick(self) -> None:
        self._timer = None
        if self.refusal is None:
            self.replica.tick(self._now_ms())
            self._carry_out()

    # Outputs

    def _carry_out(self) -> None:
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while outputs := self.replica.take_outputs():
                for output in outputs:
                    self._carry_out_by[type(output)](output)
        finally:
            self._is_carrying_out = False
        self._arm_timer()

    def _arm_timer(self) -> None:
        deadline_ms = self.replica.next_deadline_ms
        if self._timer is not None:
            if self._timer_ms == deadline_ms:
                return
            self._cancel_timer()
        if deadline_ms < NEVER_MS and self.refusal is None:
            self._timer_ms = deadline_ms
            delay_ms = max(0, deadline_ms - self._now_ms())
            # A millisecond more: the clock of the timer and this one need not agree to the last.
            self._timer = self._call_later((delay_ms + 1) / 1000, self._tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, output: Send) -> None:
        correlation, destination, request = output

        def sent(response: Message | None, error: ErrorCode) -> None:
            if self.refusal is not None:
                return
            now_ms = self._now_ms()
            if response is not None:
                self.replica.answered(correlation, destination.node_id, response, now_ms)
            else:
                self.replica.request_failed(correlation, destination.node_id, error, now_ms)
            self._carry_out()

        self._send_request(destination, request, sent)

    def _answer(self, output: Answer) -> None:
        promise: Any = output.token
        promise.resolve(output.response)

    def _high_watermark_moved(self, output: HighWatermarkMoved) -> None:
        self._listener.committed(output.offset)

    def _leader_changed(self, output: LeaderChanged) -> None:
        self._listener.leader_changed(output.leader_id, output.epoch)

    def _proposal_ended(self, output: ProposalEnded) -> None:
        self._listener.proposal_ended(output.token, output.error)

    # Work beside the loop

    def _submit(
        self,
        work: Callable[[], object],
        done: Callable[[Any, OSError | None], None],
        when_stopped: Done = lambda error: None,
    ) -> None:
        """Has `work` done by the worker, and `done` told its result or what the disk refused;
        `when_stopped` if the replica has stopped before."""
        self._jobs += 1

        def finished(result: object, error: OSError | None) -> None:
            self._jobs -= 1
            if self.refusal is not None:
                when_stopped(self.refusal)
                return
            done(result, error)
            self._carry_out()

        def run() -> None:
            try:
                result = work()
            except OSError as refusal:
                self._post_back(partial(finished, None, refusal))
            except Exception as bug:
                # It ends the node; all who wait are told before that.
                self._post_back(partial(self._bug, bug, when_stopped))
                raise
            else:
                self._post_back(partial(finished, result, None))

        self._worker.submit(run)

    def _bug(self, bug: Exception, when_stopped: Done) -> None:
        self._jobs -= 1
        failure = self._failure(bug)
        self.stop(failure)
        when_stopped(failure)

    def _persist(self, output: Persist) -> None:
        content = encode_quorum_state(output.state, output.kraft_version, output.voter_ids)

        def persisted(_: object, error: OSError | None) -> None:
            self.persist_error = error
            if error is None:
                self.replica.persisted(self._now_ms())
                return
            if error.errno in NO_SPACE and self._log.make_room(len(content)):
                # Without its vote a node hears of no leader, and of nothing that one decides.
                self._persist(output)
                return
            # Nobody has heard of it yet, and the file is written anew each time.
            logger.error("%s cannot be written, trying again: %s", self._state_path, error)
            self._call_later(_PERSIST_RETRY_S, partial(self._persist, output))

        self._submit(partial(replace_file, self._files, self._state_path, content), persisted)

    def _sync(self, output: Sync) -> None:
        try:
            sync, when_synced = self._log.prepare_sync()
        except OSError as error:
            self.stop(self._failure(error))
            return

        def synced(_: object, error: OSError | None) -> None:
            if error is not None:
                self.stop(self._failure(error))
                return
            when_synced()
            self.replica.synced(output, self._now_ms())
            self._carry_out()
            if self.is_synced:
                self._listener.synced()

        self._submit(sync, synced)

    def flush(self, flush: Flush, done: Done) -> None:
        """Syncs all files of the log, for a snapshot.

        On the same worker as the syncs of appends, and as serious when it fails: an error of the
        disk is told once, so it may have been meant for an append that is under way.
        """

        def flushed(_: object, error: OSError | None) -> None:
            failure = None if error is None else self._failure(error)
            if failure is not None:
                self.stop(failure)
            done(failure)

        self._submit(flush.run, flushed, when_stopped=done)

    def _install(self, output: InstallSnapshot) -> None:
        snapshot_id = output.snapshot_id
        install = self._log.prepare_installation(snapshot_id)
        load = self._listener.prepare_load(snapshot_id)

        def work() -> Callable[[], None]:
            install()
            return load()

        def installed(take_over: Callable[[], None], error: OSError | None) -> None:
            try:
                if error is not None:
                    raise error
                self._log.installed(snapshot_id)
                self._log.restart_at(snapshot_id)
            except (OSError, ApiError) as refusal:
                self.stop(self._failure(refusal))
                return
            take_over()
            if self.refusal is not None:
                return
            self.replica.snapshot_installed(snapshot_id, self._now_ms())

        self._submit(work, installed)

    def _failure(self, error: Exception) -> ApiError:
        # Only reading it again can tell what the disk holds.
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the metadata log {self._log.directory} could not be written or synced "
            f"({type(error).__name__}: {error}): the node has to be restarted",
        )
