"""The in-sync sets of the partitions that this node leads: who joins, who leaves, and the
controller that has the last word.

A follower's fetch may bring it back into the in-sync set; a timer takes out those that have not
caught up for `replica.lag.time.max.ms`. Either is a proposal to the controller (AlterPartition).
One request is in flight at a time and carries all proposals that wait; what comes up meanwhile
waits for the next. A proposal counts in the maximal in-sync set from the moment it is made until

    the metadata brings a newer partition epoch     whatever the controller has answered
    the controller refused it and nothing changed   INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED, or
                                                    an answer that changes nothing

An answer itself changes nothing here: what the controller has decided comes with the metadata, so
that a partition's state has one source. When nobody knows whether a request was carried out (a
timeout, another controller) it is sent again, with the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.image import LeaderRecoveryState
from tidelog.cluster.replication.follower_progress import UNKNOWN_BROKER_EPOCH
from tidelog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    BrokerState,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.replication.follower_progress import FollowerProgress
    from tidelog.cluster.replication.partition import Partition
    from tidelog.cluster.replication.replication_state import IsrProposal
    from tidelog.promise import Promise
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

_RETRY_S = 0.05
# A controller that has died answers nothing: the next one is asked soon, with the same epochs.
_ANSWER_S_MAX = 2.0
_PARTITIONS_PER_TURN = 200

# The partition is as it was, and no controller will carry the proposal out any more.
_NOT_CARRIED_OUT = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
# The controller knows something that the metadata has not brought here yet; it will.
_METADATA_TELLS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)

PartitionKey = tuple[bytes, int]


class _Proposed(NamedTuple):
    partition: Partition
    proposal: IsrProposal

    @property
    def is_pending(self) -> bool:
        return self.partition.state.is_pending(self.proposal)


class InSyncSets:
    """`node.in_sync_sets`. All of it belongs to the loop thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[PartitionKey, _Proposed] = {}
        self._is_in_flight = False
        self._timer: Timer | None = None
        self._retry: Timer | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._look_later()

    def close(self) -> None:
        """Propose nothing any more."""
        self._is_closed = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()

    # Followers

    def follower_fetched(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        """A follower has asked for `fetch_offset`, in the life that its broker epoch says.

        Raises ApiError when that life is over: a fetch that was on its way while the follower
        restarted says nothing about the log that it has now.
        """
        registered = self._node.image.brokers.get(replica_id)
        if registered is not None and UNKNOWN_BROKER_EPOCH < broker_epoch < registered.epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has the epoch {registered.epoch}, the fetch {broker_epoch}",
            )
        partition.record_follower_fetch(
            replica_id, fetch_offset, log_start_offset, now_ms, broker_epoch
        )
        if replica_id not in partition.state.isr:
            lag_ms_max = self._node.config.replica_lag_time_max_ms
            self._expand(partition, replica_id)
            partition.note_joining(now_ms, lag_ms_max, self._is_eligible)

    def _is_eligible(self, follower: FollowerProgress) -> bool:
        """Whether the controller would take a follower in, as far as is known here."""
        registered = self._node.image.brokers.get(follower.broker_id)
        return (
            registered is not None
            and registered.is_active
            and follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, registered.epoch)
        )

    def broker_changed(self, broker_id: int) -> None:
        """A broker was registered, fenced or unfenced.

        Its followers may have caught up while it was fenced here. Where nothing is written they
        have no reason to fetch again.
        """
        registered = self._node.image.brokers.get(broker_id)
        if registered is not None and registered.is_active:
            self._look_at_followers(broker_id, list(self._node.partitions))

    def _look_at_followers(self, broker_id: int, partitions: list[Partition]) -> None:
        for partition in partitions[:_PARTITIONS_PER_TURN]:
            state = partition.state
            if broker_id in state.replicas:
                self._expand(partition, broker_id)
        left = partitions[_PARTITIONS_PER_TURN:]
        if left and not self._is_closed:
            self._node.reactor.call_later(0, lambda: self._look_at_followers(broker_id, left))

    def _expand(self, partition: Partition, broker_id: int) -> None:
        proposal = partition.state.propose_expansion(broker_id, self._is_eligible)
        if proposal is not None:
            self._propose(partition, proposal)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        registered = self._node.image.brokers.get(broker_id)
        return registered is not None and not registered.fenced

    # Lag

    def _look_later(self) -> None:
        if not self._is_closed:
            interval_s = max(self._node.config.replica_lag_time_max_ms, 2) / 2000
            self._timer = self._node.reactor.call_later(interval_s, self._look_for_lag)

    def _look_for_lag(self) -> None:
        # Sessions note that a follower was idle and caught up when its partition moves, at the end
        # of a turn; here it may not have come to that.
        self._node.waiting.serve()
        self._look_at([each for each in self._node.partitions if each.state.followers])

    def _look_at(self, partitions: list[Partition]) -> None:
        """A few partitions a turn, so that clients do not wait for all of them."""
        now_ms = int(self._node.world.monotonic() * 1000)
        lag_ms_max = self._node.config.replica_lag_time_max_ms
        for partition in partitions[:_PARTITIONS_PER_TURN]:
            state = partition.state
            if not state.is_leader:
                continue
            proposal = state.propose_shrinking(partition.log_end_offset, now_ms, lag_ms_max)
            if proposal is not None:
                self._propose(partition, proposal)
            if len(state.isr) < len(state.replicas):
                # Those that came back while another proposal was on its way, and are idle since;
                # not those that would be taken out again for their lag.
                end_offset = partition.log_end_offset
                for broker_id, follower in state.followers.items():
                    if follower.is_caught_up(end_offset, now_ms, lag_ms_max):
                        self._expand(partition, broker_id)
                partition.note_joining(now_ms, lag_ms_max, self._is_eligible)
        left = partitions[_PARTITIONS_PER_TURN:]
        if left and not self._is_closed:
            self._timer = self._node.reactor.call_later(0, lambda: self._look_at(left))
        else:
            self._look_later()

    # Proposals

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._node.log.info(
            "isr_proposed",
            partition=f"{partition.topic}-{partition.partition}",
            leader_epoch=proposal.leader_epoch,
            isr=list(partition.isr),
            proposed=list(proposal.isr),
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
        )
        self._waiting[partition.topic_id, partition.partition] = _Proposed(partition, proposal)
        self._send_soon()

    def _send_soon(self) -> None:
        """All proposals of a turn go together."""
        if self._retry is None and not self._is_in_flight and not self._is_closed:
            self._retry = self._node.reactor.call_later(0, self._send)

    def _send_later(self) -> None:
        if not self._is_closed:
            self._retry = self._node.reactor.call_later(_RETRY_S, self._send)

    def _send(self) -> None:
        self._retry = None
        sent = {key: each for key, each in self._waiting.items() if each.is_pending}
        self._waiting = {}
        if not sent or self._is_closed:
            return
        self._is_in_flight = True
        request = self._request(sent.values())
        answer = self._node.controller.ask(request, timeout_s=_ANSWER_S_MAX)
        answer.when_done(lambda answer: self._answered(sent, answer))

    def _request(self, proposed: Iterable[_Proposed]) -> AlterPartitionRequest:
        node = self._node
        topics: dict[bytes, AlterPartitionRequestTopic] = {}
        for partition, proposal in proposed:
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = AlterPartitionRequestTopic(
                    topic_id=partition.topic_id
                )
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        BrokerState(
                            broker_id=broker_id,
                            broker_epoch=node.broker_epoch
                            if broker_id == node.config.node_id
                            else epoch,
                        )
                        for broker_id, epoch in zip(
                            proposal.isr, proposal.broker_epochs, strict=True
                        )
                    ],
                    leader_recovery_state=LeaderRecoveryState.RECOVERED,
                )
            )
        return AlterPartitionRequest(
            broker_id=node.config.node_id,
            broker_epoch=node.broker_epoch,
            topics=list(topics.values()),
        )

    def _answered(
        self, sent: dict[PartitionKey, _Proposed], answer: Promise[AlterPartitionResponse]
    ) -> None:
        self._is_in_flight = False
        response = None if answer.error is not None else answer.result()
        if response is None or response.error_code:
            problem = answer.error if response is None else ErrorCode(response.error_code).name
            self._node.log.warning("isr_change_failed", partitions=len(sent), error=problem)
            self._again(sent)
            self._send_later()
            return
        rows = {
            (topic.topic_id, row.partition_index): row
            for topic in response.topics
            for row in topic.partitions
        }
        again = {
            key: each
            for key, each in sent.items()
            if each.is_pending and not self._carry_out(each, rows.get(key))
        }
        if again:
            self._again(again)
            self._send_later()
        elif self._waiting:
            self._send_soon()

    def _again(self, proposed: dict[PartitionKey, _Proposed]) -> None:
        for key, each in proposed.items():
            self._waiting.setdefault(key, each)

    def _carry_out(self, proposed: _Proposed, row: AlterPartitionResponsePartition | None) -> bool:
        """Do what the controller says of a partition; false when it has to be asked again."""
        if row is None:
            return False
        partition, proposal = proposed
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            if row.partition_epoch == proposal.partition_epoch:
                # It is as it was: no newer epoch is going to come.
                partition.proposal_refused(proposal)
            return True
        self._node.log.warning(
            "isr_change_refused",
            partition=f"{partition.topic}-{partition.partition}",
            proposed=list(proposal.isr),
            error=code.name,
        )
        if code in _NOT_CARRIED_OUT:
            partition.proposal_refused(proposal)
            return True
        return code in _METADATA_TELLS
