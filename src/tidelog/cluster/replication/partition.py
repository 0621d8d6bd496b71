"""One partition on this node: its log, and who leads and follows it.

Theory of operation. The controller's records say who leads at which epoch; `lead`, `follow` and
`stop` carry that out. `ReplicationState` decides what that means, up to the high watermark; the log
does it, and who waits is told. While it leads, a partition takes writes. Readers see nothing above
the high watermark, and readers of committed records nothing above the last stable offset, below
which every transaction has ended *and* the marker that ended it is below the high watermark.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

Everything runs on the loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.follower_progress import UNKNOWN_BROKER_EPOCH, FollowerProgress
from tidelog.cluster.replication.replication_state import (
    NO_EPOCH,
    IsrProposal,
    ReplicationState,
    Transition,
)
from tidelog.cluster.replication.waiting import PartitionWaits, Waiting
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK
from tidelog.storage.append_result import AppendResult, Origin
from tidelog.storage.log import Log
from tidelog.storage.placed_batches import PlacedBatches, check_fetched
from tidelog.storage.segment.log_slice import LogSlice
from tidelog.storage.segment.transaction_index import AbortedTransaction
from tidelog.storage.truncations import Failure, Truncated

ACKS_ALL = -1
_OF_TRANSACTIONS = TRANSACTIONAL_MASK | CONTROL_MASK
UNDEFINED_OFFSET = -1

# Timestamps of ListOffsets that are no times.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class EpochEnd(NamedTuple):
    """Where an epoch ended; both -1 when that is not known."""

    leader_epoch: int
    end_offset: int


class ListedOffset(NamedTuple):
    """The answer to a search by time; offset -1 means that there is no such record."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


NOTHING_LISTED = ListedOffset(-1, UNDEFINED_OFFSET, NO_EPOCH)


class PartitionRead:
    """What a fetch of one partition gets.

    `aborted_transactions` is None unless the reader wants committed records only. With a
    `diverging_epoch` there is nothing to read: the reader's log went another way from there on.
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "slice",
    )

    def __init__(
        self,
        slice: LogSlice | None,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted_transactions: list[AbortedTransaction] | None,
        diverging_epoch: EpochEnd | None = None,
    ) -> None:
        self.slice = slice
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted_transactions = aborted_transactions
        self.diverging_epoch = diverging_epoch


class Partition:
    """A replica of one partition; `waiting` hears when it moves."""

    __slots__ = (
        "_ending_transactions",
        "_leads_when_cut",
        "log",
        "node_id",
        "partition",
        "state",
        "topic",
        "topic_id",
        "waiting",
        "waits",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        node_id: int,
        log: Log,
        waiting: Waiting,
        *,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is what is known of an earlier life."""
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.state = ReplicationState(
            node_id, min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        )
        self.waiting = waiting
        self.waits: PartitionWaits | None = None
        """Who waits for this partition, once somebody has."""
        # (first offset, offset after its marker) of transactions whose marker is not yet below the
        # high watermark; the oldest first.
        self._ending_transactions: deque[tuple[int, int]] = deque()
        self._leads_when_cut: tuple[PartitionImage, int] | None = None
        log.on_durable = self._on_durable

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic}-{self.partition}, {role} at epoch {self.leader_epoch})"

    # Leadership

    def lead(self, image: PartitionImage, now_ms: int) -> None:
        """Become, or stay, the leader as the image says; an image of older epochs is ignored.

        A replica whose log is being cut leads when that is done: nobody may read what goes.
        """
        if self.log.is_truncating:
            self._leads_when_cut = image, now_ms
            return
        transition = self.state.lead(image, self.log.log_end_offset, now_ms)
        if transition is Transition.NEW_EPOCH:
            self.waiting.refuse(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if transition is not Transition.STALE:
            self._advance_high_watermark()
            if self.waits is not None:
                self.waits.note()  # a follower that was held back may be in sync now

    def follow(self, image: PartitionImage) -> None:
        """Take no writes any more: another replica leads, or none does."""
        self._leads_when_cut = None
        if self.state.follow(image) is Transition.NEW_EPOCH:
            self.waiting.refuse(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self) -> None:
        """The replica leaves this node."""
        self._leads_when_cut = None
        self.state.stop()
        self.log.on_durable = None
        self.waiting.refuse(self, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def replace_log(self, log: Log) -> None:
        """Goes on with a log in another directory that holds the same, all of it durable."""
        self.log.on_durable = None
        self.log = log
        log.on_durable = self._on_durable
        self._advance_high_watermark()

    @property
    def is_leader(self) -> bool:
        return self.state.is_leader

    @property
    def leader(self) -> int:
        return self.state.leader

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.state.partition_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.state.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client whose view of the leader is older or newer than ours; -1 has none."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic}-{self.partition} is at leader epoch {self.leader_epoch}, "
                f"the request says {current_leader_epoch}",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic}-{self.partition} is at leader epoch {self.leader_epoch} and does not "
            f"know {current_leader_epoch} yet",
        )

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuses what only the leader of the client's epoch may answer."""
        if current_leader_epoch >= 0:
            self.check_leader_epoch(current_leader_epoch)
        if not self.is_leader:
            self._not_leader()

    def _not_leader(self) -> NoReturn:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"node {self.node_id} does not lead {self.topic}-{self.partition}",
        )

    # Offsets

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed."""
        return self.state.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended, and has ended durably."""
        ending = self._ending_transactions
        first_open = ending[0][0] if ending else self.log.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if first_open is None else min(first_open, high_watermark)

    def _on_durable(self, log: Log) -> None:
        if log.durable_offset > self.state.high_watermark:
            self._advance_high_watermark()
        if self.waits is not None:
            self.waits.note()

    def _advance_high_watermark(self) -> None:
        log = self.log
        if not self.state.advance(log.durable_offset, log.config.min_insync_replicas):
            return
        self._pass_ended_transactions()
        if self.waits is not None:
            self.waits.note()

    def _pass_ended_transactions(self) -> None:
        high_watermark = self.state.high_watermark
        ending = self._ending_transactions
        while ending and ending[0][1] <= high_watermark:
            ending.popleft()

    # Writing

    def append_as_leader(
        self,
        batches: memoryview,
        now_ms: int,
        *,
        required_acks: int = ACKS_ALL,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 1,
    ) -> AppendResult:
        """Appends to the log (which see); costs about 1 µs more than that.

        The append is committed when `high_watermark >= result.next_offset`.
        """
        state = self.state
        if not state.is_leader:
            self._not_leader()
        log = self.log
        if required_acks == ACKS_ALL and len(state.isr) < log.config.min_insync_replicas:
            self._check_in_sync_replicas()
        first_open = None if origin is Origin.CLIENT else log.first_unstable_offset
        result = log.append_as_leader(
            batches,
            state.leader_epoch,
            now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        if first_open is not None and log.first_unstable_offset != first_open:
            self._ending_transactions.append((first_open, result.next_offset))
        if log.durable_offset > state.high_watermark:
            self._advance_high_watermark()
        if self.waits is not None:
            self.waits.note()
        return result

    def _check_in_sync_replicas(self) -> None:
        # A partition with fewer replicas than the setting asks for must still be writable.
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.partition} has {len(self.isr)} in-sync replicas "
                f"and needs {needed}",
            )

    def delete_records(self, offset: int) -> int:
        """Moves the log's start up to `offset` (-1: the high watermark); returns the start.

        The followers' logs follow: `ReplicationState.low_watermark` tells how far all are.
        """
        if not self.is_leader:
            self._not_leader()
        log = self.log
        if not log.config.deletes_by_retention and log.config.is_compacted:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic}-{self.partition} can not be deleted "
                "due to the configured policy",
            )
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {offset} in {self.topic}-{self.partition}, "
                f"whose high watermark is {self.high_watermark}",
            )
        if offset > log.log_start_offset:
            log.advance_log_start(offset)
            self.note_start_moved()
        return log.log_start_offset

    # Reading

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        minimum_one_batch: bool = True,
        replica_id: int = -1,
        from_follower: bool = False,
    ) -> PartitionRead:
        """Batches from `fetch_offset` on that the reader may see; followers see all of the log.

        `from_follower`: a consumer takes them from a replica that does not lead, too.
        """
        if current_leader_epoch >= 0:
            self.check_leader_epoch(current_leader_epoch)
        log = self.log
        if not self.is_leader:
            if not from_follower or replica_id >= 0 or self.leader < 0:
                self._not_leader()
            if fetch_offset > log.log_end_offset:
                # The leader may have it: only that one can say that it is out of range.
                raise ApiError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self.topic}-{self.partition} has not got {fetch_offset} on node "
                    f"{self.node_id} yet",
                )
        if replica_id >= 0:
            self.check_follower(replica_id, current_leader_epoch)
        if last_fetched_epoch >= 0:
            diverging = self._diverging_epoch(fetch_offset, last_fetched_epoch)
            if diverging is not None:
                return PartitionRead(
                    None,
                    self.high_watermark,
                    self.last_stable_offset,
                    log.log_start_offset,
                    None,
                    diverging,
                )
        high_watermark = self.high_watermark
        last_stable_offset = self.last_stable_offset
        if replica_id >= 0:
            upper_offset = log.log_end_offset
        elif read_committed:
            upper_offset = last_stable_offset
        else:
            upper_offset = high_watermark
        found = log.read(fetch_offset, max_bytes, upper_offset, minimum_one_batch=minimum_one_batch)
        aborted = None
        if read_committed:
            aborted = (
                log.aborted_transactions(fetch_offset, found.next_offset)
                if found.size_bytes
                else []
            )
        return PartitionRead(
            found, high_watermark, last_stable_offset, log.log_start_offset, aborted
        )

    def _diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        end = self._end_offset_for(last_fetched_epoch)
        if end.end_offset == UNDEFINED_OFFSET:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition} does not know the epoch {last_fetched_epoch}",
            )
        if fetch_offset < self.log.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition} starts at {self.log.log_start_offset}, after "
                f"{fetch_offset}",
            )
        if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def end_offset_for_epoch(
        self, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
    ) -> EpochEnd:
        """The largest epoch up to `leader_epoch` that wrote here, and where it ended."""
        self.check_leader(current_leader_epoch)
        return self._end_offset_for(leader_epoch)

    def _end_offset_for(self, leader_epoch: int) -> EpochEnd:
        log = self.log
        latest = log.leader_epochs.latest_epoch
        # The log knows of an epoch from its first append on; before that it is empty, and ends the
        # epochs before it where it begins.
        if leader_epoch > latest:
            if leader_epoch == self.leader_epoch:
                return EpochEnd(leader_epoch, log.log_end_offset)
            if leader_epoch < self.leader_epoch:
                known = latest if latest >= 0 else leader_epoch
                return EpochEnd(known, self.state.leader_epoch_start_offset)
        return EpochEnd(*log.leader_epochs.end_offset_for(leader_epoch, log.log_end_offset))

    def list_offset(
        self,
        timestamp: int,
        *,
        read_committed: bool = False,
        current_leader_epoch: int = NO_EPOCH,
        is_follower: bool = False,
        only_from_leader: bool = True,
    ) -> ListedOffset:
        """The first readable record at or after a time, or what a special timestamp means.

        A follower may see all of the log, as it is.
        """
        if only_from_leader:
            self.check_leader(current_leader_epoch)
        else:
            self.check_leader_epoch(current_leader_epoch)
        log = self.log
        if is_follower:
            readable_end = log.log_end_offset
        else:
            readable_end = self.last_stable_offset if read_committed else self.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            if not is_follower:
                self._check_end_is_known()
            return ListedOffset(-1, readable_end, self.leader_epoch)
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start_offset = log.log_start_offset
            epoch = log.leader_epochs.epoch_for_offset(start_offset)
            if epoch < 0 and start_offset == log.log_end_offset:
                epoch = self.leader_epoch
            return ListedOffset(-1, start_offset, epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return NOTHING_LISTED
        if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp_offset()
        else:
            found = log.offset_for_timestamp(timestamp)
        if found is None or found.offset >= readable_end:
            if not is_follower:
                self._check_end_is_known()
            return NOTHING_LISTED
        return ListedOffset(*found)

    def _check_end_is_known(self) -> None:
        """A leader that has just begun may know of less than readers were told before."""
        if not self.state.knows_end:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self.topic}-{self.partition} has not committed up to the start of leader epoch "
                f"{self.leader_epoch} yet",
            )

    # Followers

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Refuses a node that is no replica, as far as this leader has heard."""
        if replica_id not in self.state.followers:
            # With an epoch that is right one of the two has not heard of a reassignment yet, and
            # the follower tries again; without one nobody can tell.
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if current_leader_epoch < 0
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"node {replica_id} is no replica of {self.topic}-{self.partition} at leader epoch "
                f"{self.leader_epoch}",
            )

    def record_follower_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """A follower asks for `fetch_offset`: it has everything below it durable."""
        start_moved = self.state.follower_fetched(
            replica_id,
            fetch_offset,
            log_start_offset,
            self.log.log_end_offset,
            now_ms,
            broker_epoch,
        )
        self._advance_high_watermark()
        if start_moved and self.waits is not None:
            self.waits.note()

    def note_joining(
        self, now_ms: int, lag_ms_max: int, is_eligible: Callable[[FollowerProgress], bool]
    ) -> None:
        """Look which followers are about to be in sync; see `ReplicationState.note_joining`."""
        self.state.note_joining(self.log.log_end_offset, now_ms, lag_ms_max, is_eligible)
        self._advance_high_watermark()

    def proposal_refused(self, proposal: IsrProposal) -> None:
        """The controller has not taken a change of the in-sync set, and never will."""
        self.state.proposal_refused(proposal)
        self._advance_high_watermark()

    @property
    def has_enough_replicas(self) -> bool:
        """Whether what is committed now is on as many replicas as the topic asks for."""
        state = self.state
        needed = min(self.log.config.min_insync_replicas, len(state.replicas))
        return state.maximal_isr_size >= needed

    def note_start_moved(self) -> None:
        """Tell who watches the partition that its log starts elsewhere."""
        if self.waits is not None:
            self.waits.note()

    # Following

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the last record; -1 of an empty log."""
        return self.log.leader_epochs.latest_epoch

    def append_as_follower(self, batches: memoryview) -> int:
        """Appends what the leader has at this log's end, without a last batch that is cut off;
        returns how many bytes that was. Raises ApiError as the log does.

        Each batch is looked at once, unless there are transactions among them.
        """
        assert not self.is_leader, f"{self!r} takes no batches of another leader"
        log = self.log
        placed = check_fetched(batches, log.log_end_offset)
        if placed is None:
            return 0
        if any(header[5] & _OF_TRANSACTIONS for header in placed.headers):
            # One marker at a time, so that the end of each transaction is noticed.
            for run in placed.ending_with(CONTROL_MASK):
                self._append_run(run)
        else:
            log.append_replicated(placed)
        if self.waits is not None:
            self.waits.note()
        return len(placed.batches)

    def _append_run(self, placed: PlacedBatches) -> None:
        log = self.log
        opened = log.first_unstable_offset
        log.append_replicated(placed)
        if opened is None:
            # A transaction that began in this run and ends with it was not open before.
            opened = next(
                (each.base_offset for each in placed.headers if each.is_transactional), None
            )
        if opened is not None and log.first_unstable_offset != opened:
            self._ending_transactions.append((opened, log.log_end_offset))

    def hear_from_leader(self, high_watermark: int, leader_log_start_offset: int) -> None:
        """Take over how far the leader has committed, and where its log starts now.

        Raises ApiError when the disk does not take the new start.
        """
        log = self.log
        if self.state.leader_said(high_watermark, log.log_start_offset, log.log_end_offset):
            self._pass_ended_transactions()
            if self.waits is not None:
                self.waits.note()
        start_offset = min(leader_log_start_offset, log.log_end_offset)
        if start_offset > log.log_start_offset:
            log.advance_log_start(start_offset)

    def divergence(self, leader_end: EpochEnd) -> int:
        """Where to cut a log that went another way, as far as the leader's answer tells: it has the
        epoch up to there, and no later one that this log has.

        When the epochs are not the same, the next fetch asks about the one before.
        """
        log = self.log
        own = EpochEnd(
            *log.leader_epochs.end_offset_for(leader_end.leader_epoch, log.log_end_offset)
        )
        if own.end_offset == UNDEFINED_OFFSET:
            # All that is here is of later epochs.
            return min(leader_end.end_offset, log.log_end_offset)
        if own.leader_epoch != leader_end.leader_epoch:
            return min(own.end_offset, log.log_end_offset)
        return min(own.end_offset, leader_end.end_offset, log.log_end_offset)

    def truncate_to(self, offset: int, done: Truncated) -> None:
        """Cuts the log as `Log.truncate_to` does; then the high watermark follows it."""
        assert not self.is_leader, f"{self!r} keeps what it has"
        self.log.truncate_to(offset, partial(self._truncated, done))

    def start_over_at(self, offset: int, done: Truncated) -> None:
        """Empties the log, whose next record gets `offset`: the leader has nothing before it."""
        assert not self.is_leader, f"{self!r} keeps what it has"
        self.log.truncate_fully_and_start_at(offset, partial(self._truncated, done))

    def _truncated(self, done: Truncated, error: Failure) -> None:
        log = self.log
        self.state.truncated(log.log_start_offset, log.log_end_offset)
        self._ending_transactions = deque(
            each for each in self._ending_transactions if each[1] <= log.log_end_offset
        )
        if self._leads_when_cut is not None and not log.is_truncating:
            image, now_ms = self._leads_when_cut
            self._leads_when_cut = None
            self.lead(image, now_ms)
        done(error)
