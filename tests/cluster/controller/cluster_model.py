"""A controller and the replicas of one partition, without network, disk and clock.

The controller is the decisions of `cluster/controller` on an image; a replica is the real
`ReplicationState` on a log that is a list. Messages are steps: a broker takes in the next image, a
follower fetches, a proposal of a leader arrives. So every order of them can be tried. Broker
processes stop cleanly, crash, and lose the end of their logs in a crash.

`check` holds what must always be true. A *committed* record is one below a leader's high watermark,
of whichever leader and whoever knows of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.cluster_host import WITHOUT_ELIGIBLE_REPLICAS, ClusterHost, broker_uuid
from tidelog.cluster.controller.broker_lifecycle import Heartbeat, fence_broker, heartbeat
from tidelog.cluster.controller.broker_registrations import BrokerRegistration
from tidelog.cluster.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    incremental_alter_configs,
)
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import PREFERRED_ELECTION, elect_leaders
from tidelog.cluster.controller.feature_changes import FeatureUpdate, UpgradeType, update_features
from tidelog.cluster.controller.isr_changes import IsrChange, alter_partitions
from tidelog.cluster.controller.reassignments import Reassignment, alter_partition_reassignments
from tidelog.cluster.metadata.image import (
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    Endpoint,
    MetadataImage,
    PartitionImage,
)
from tidelog.cluster.replication.follower_progress import FollowerProgress
from tidelog.cluster.replication.replication_state import IsrProposal, ReplicationState
from tidelog.protocol.errors import ApiError, ErrorCode

TOPIC = "orders"
BROKERS = (1, 2, 3, 4)
Entry = tuple[int, int]  # leader epoch, value

_LONG_MS = 1_000_000
_LAG_MS_MAX = 1000


@dataclass
class Broker:
    """A broker with its replica. Without `state` its process does not run."""

    broker_id: int
    epoch: int
    image: MetadataImage
    state: ReplicationState | None
    log: list[Entry] = field(default_factory=list)
    high_watermark: int = 0  # as it was when the process ended
    stopped_cleanly: bool = False

    def partition(self) -> PartitionImage:
        return partition_of(self.image)

    def end_of_epoch(self, epoch: int) -> Entry:
        """The largest epoch up to this one that the log has, and where it ends."""
        for offset in range(len(self.log), 0, -1):
            if self.log[offset - 1][0] <= epoch:
                return self.log[offset - 1][0], offset
        return -1, 0


@dataclass
class Proposal:
    """An AlterPartition request on its way."""

    broker: Broker
    state: ReplicationState
    isr_change: IsrChange
    proposal: IsrProposal
    broker_epoch: int


def partition_of(image: MetadataImage) -> PartitionImage:
    partition = image.partition(TOPIC, 0)
    assert partition is not None
    return partition


class ClusterModel:
    """Each method is a step; one that cannot be taken now does nothing."""

    def __init__(self, min_insync_replicas: int = 2, *, has_eligible_replicas: bool = True) -> None:
        """Without eligible leader replicas nothing helps against the loss of records in a crash."""
        self.has_eligible_replicas = has_eligible_replicas
        features = {} if has_eligible_replicas else WITHOUT_ELIGIBLE_REPLICAS
        self.host = ClusterHost(BROKERS, features=features)
        self.host.create(
            TOPIC,
            assignments={0: [1, 2, 3]},
            configs={"min.insync.replicas": str(min_insync_replicas)},
        )
        self.images = [self.host.image]
        self.brokers = {
            broker_id: Broker(
                broker_id,
                self.host.image.brokers[broker_id].epoch,
                self.host.image,
                ReplicationState(broker_id, 0),
            )
            for broker_id in BROKERS
        }
        for broker in self.brokers.values():
            self._take_role(broker)
        self.committed: list[Entry] = []
        self.proposals: list[Proposal] = []
        self.lossy: set[int] = set()  # have lost records, and the controller has not heard of it
        self.is_disturbed = False  # something took replicas away that were in sync
        self.was_toggled = False
        self._values = 0
        self._incarnations = 1

    @property
    def image(self) -> MetadataImage:
        return self.host.image

    @property
    def partition(self) -> PartitionImage:
        return partition_of(self.image)

    # The controller

    def _decide(
        self, decision: Decision[Any], proposed: Sequence[int] = (), restarts: int = NO_LEADER
    ) -> None:
        """The decision becomes a fact; `proposed` are those whom a leader found to be in sync,
        `restarts` is a broker whose log does not count any more."""
        before = self.partition
        self.host.decide(decision)
        if not decision.records:
            return
        self.images.append(self.image)
        after = self.partition
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch >= before.partition_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        if after._replace(partition_epoch=0) != before._replace(partition_epoch=0):
            assert after.partition_epoch > before.partition_epoch
        if set(before.replicas) - set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
        if after.leader not in (before.leader, NO_LEADER):
            if not decision.unclean_elections:
                sound = {*before.isr, *before.eligible_leader_replicas, *proposed}
                assert after.leader in sound
            else:
                # Only when nobody is known to have everything.
                sound = {*before.isr, *before.eligible_leader_replicas}
                assert not sound - {restarts}
                self._lost_records(after, decision)

    def _lost_records(self, after: PartitionImage, decision: Decision[Any]) -> None:
        """The last leader was elected without having everything."""
        (election,) = decision.unclean_elections
        assert election.was_last_leader
        pairs = zip(self.brokers[after.leader].log, self.committed, strict=False)
        kept = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        del self.committed[len(kept) :]

    def fence(self, broker_id: int) -> None:
        """Its session expires; the process may live on."""
        broker = self.image.brokers[broker_id]
        if not broker.fenced:
            self.host.heartbeats.end_session(broker_id)
            self._decide(fence_broker(broker_id, self.image, self.host.settings))

    def elect_preferred(self) -> None:
        self._decide(elect_leaders(PREFERRED_ELECTION, None, self.image, self.host.settings))

    def reassign(self, replicas: list[int] | None) -> None:
        wanted = [Reassignment(TOPIC, 0, replicas)]
        self.is_disturbed = True
        self._decide(alter_partition_reassignments(wanted, self.image, self.host.settings))

    def set_min_insync_replicas(self, count: int) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        change = ConfigChange(resource, [ConfigOperation("min.insync.replicas", 0, str(count))])
        self.is_disturbed = True
        self._decide(incremental_alter_configs([change], self.image, self.host.settings))

    def set_eligible_replicas(self, level: int) -> None:
        """The feature is turned on or off."""
        name = "eligible.leader.replicas.version"
        current = self.image.finalized_level(name)
        kind = UpgradeType.SAFE_DOWNGRADE if level < current else UpgradeType.UPGRADE
        self.was_toggled = self.is_disturbed = True
        update = FeatureUpdate(name, level, kind)
        self._decide(update_features([update], self.image, self.host.settings))

    def deliver(self, index: int) -> None:
        """One of the proposals on their way arrives and is answered."""
        if not self.proposals:
            return
        sent = self.proposals.pop(index % len(self.proposals))
        error: ApiError | None
        try:
            decision = alter_partitions(
                [sent.isr_change],
                sent.broker.broker_id,
                sent.broker_epoch,
                self.image,
                self.host.settings,
            )
        except ApiError as refusal:
            error = refusal
        else:
            error = decision.rows[0].error
            self._decide(decision, sent.isr_change.isr)
        if error is not None and error.code is not ErrorCode.NEW_LEADER_ELECTED:
            sent.state.proposal_refused(sent.proposal)

    # Brokers

    def take_in(self, broker_id: int, *, everything: bool) -> None:
        """The broker's image follows the controller's."""
        broker = self.brokers[broker_id]
        if broker.state is None:
            return
        behind = [image for image in self.images if image.offset > broker.image.offset]
        for image in behind if everything else behind[:1]:
            broker.image = image
            self._take_role(broker)
            self._advance(broker)

    def _take_role(self, broker: Broker) -> None:
        partition, state = broker.partition(), broker.state
        assert state is not None
        if broker.broker_id not in partition.replicas:
            state.stop()
            broker.log = []
            broker.state = ReplicationState(broker.broker_id, 0)
        elif partition.leader == broker.broker_id:
            state.lead(partition, len(broker.log), self.host.now_ms)
        else:
            state.follow(partition)

    def heartbeat(self, broker_id: int, *, wants_shut_down: bool = False) -> None:
        broker = self.brokers[broker_id]
        if broker.state is None or self.image.brokers[broker_id].epoch != broker.epoch:
            return
        beat = Heartbeat(
            broker_id, broker.epoch, broker.image.offset, wants_shut_down=wants_shut_down
        )
        decision = heartbeat(
            beat,
            self.image,
            self.host.settings,
            self.host.heartbeats,
            now_ms=self.host.now_ms,
            next_offset=self.image.offset + 1,
        )
        self._decide(decision)
        if decision.rows.should_shut_down:
            self._end(broker)
            broker.stopped_cleanly = True

    def crash(self, broker_id: int, keeps: int | None) -> None:
        """The process ends; of its log only the first `keeps` records are left, None for all.

        Records are lost only while somebody else is known to have everything: nothing can help
        against the loss of the last copy.
        """
        broker = self.brokers[broker_id]
        if broker.state is None:
            return
        self._end(broker)
        broker.stopped_cleanly = False
        if keeps is None or keeps >= len(broker.log) or not self.has_eligible_replicas:
            return
        partition = self.partition
        holders = {*partition.isr, *partition.eligible_leader_replicas}
        if broker_id in holders and not holders - self.lossy - {broker_id}:
            return
        self.lossy.add(broker_id)
        del broker.log[keeps:]
        broker.high_watermark = min(broker.high_watermark, keeps)

    def _end(self, broker: Broker) -> None:
        assert broker.state is not None
        broker.high_watermark = broker.state.high_watermark
        broker.state = None
        self.host.heartbeats.end_session(broker.broker_id)

    def restart(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.state is not None:
            return
        self._incarnations += 1
        if not broker.stopped_cleanly:
            self.is_disturbed = True
        registration = BrokerRegistration(
            broker_id,
            broker_uuid(self._incarnations),
            (Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),),
            log_dirs=self.image.brokers[broker_id].log_dirs,
            previous_epoch=broker.epoch if broker.stopped_cleanly else -1,
        )
        decision = self.host.registering(registration)
        self._decide(decision, restarts=broker_id)
        self.lossy.discard(broker_id)
        broker.epoch = decision.rows
        broker.image = self.image
        broker.state = ReplicationState(broker_id, min(broker.high_watermark, len(broker.log)))
        self._take_role(broker)

    # Replication

    def produce(self, broker_id: int) -> None:
        """Whoever takes itself for the leader takes records."""
        broker = self.brokers[broker_id]
        state = broker.state
        if state is not None and state.is_leader:
            self._values += 1
            broker.log.append((state.leader_epoch, self._values))
            self._advance(broker)

    def fetch(self, follower_id: int, records_max: int) -> None:
        """A follower asks whom it takes for its leader."""
        follower = self.brokers[follower_id]
        if follower.state is None or follower_id not in follower.partition().replicas:
            return
        leader = self.brokers.get(follower.state.leader)
        if leader is None or leader is follower or leader.state is None:
            return
        state = leader.state
        if not state.is_leader or state.leader_epoch != follower.state.leader_epoch:
            return
        if follower_id not in state.followers or self._truncates(follower, leader):
            return
        offset = len(follower.log)
        state.follower_fetched(
            follower_id, offset, 0, len(leader.log), self.host.now_ms, follower.epoch
        )
        self._advance(leader)

        def is_eligible(replica: FollowerProgress) -> bool:
            known = leader.image.brokers.get(replica.broker_id)
            return known is not None and known.is_active and known.epoch == replica.broker_epoch

        self._send(leader, state.propose_expansion(follower_id, is_eligible))
        follower.log += leader.log[offset : offset + records_max]
        follower.state.leader_said(state.high_watermark, 0, len(follower.log))

    def _truncates(self, follower: Broker, leader: Broker) -> bool:
        if not follower.log:
            return False
        last_epoch = follower.log[-1][0]
        epoch, end_offset = leader.end_of_epoch(last_epoch)
        if epoch == last_epoch and end_offset >= len(follower.log):
            return False
        own_end_offset = follower.end_of_epoch(epoch)[1]
        del follower.log[min(end_offset, own_end_offset) :]
        assert follower.state is not None
        follower.state.truncated(0, len(follower.log))
        return True

    def shrink(self, broker_id: int) -> None:
        """Time passes, and a leader looks who has kept up."""
        broker = self.brokers[broker_id]
        if broker.state is not None and broker.state.is_leader:
            self.host.now_ms += _LONG_MS
            self._send(
                broker,
                broker.state.propose_shrinking(len(broker.log), self.host.now_ms, _LAG_MS_MAX),
            )

    def _send(self, broker: Broker, proposal: IsrProposal | None) -> None:
        if proposal is None:
            return
        assert broker.state is not None
        change = IsrChange(
            self.image.topics_by_name[TOPIC].topic_id,
            0,
            proposal.leader_epoch,
            proposal.partition_epoch,
            proposal.isr,
            isr_epochs=proposal.broker_epochs,
        )
        self.proposals.append(Proposal(broker, broker.state, change, proposal, broker.epoch))

    def _advance(self, broker: Broker) -> None:
        state = broker.state
        assert state is not None
        if state.advance(len(broker.log), min_insync_replicas(broker.image)):
            end, known = state.high_watermark, len(self.committed)
            common = min(end, known)
            assert broker.log[:common] == self.committed[:common], "two logs are committed"
            self.committed += broker.log[known:end]

    # What is always true

    def check(self) -> None:
        partition = self.partition
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
        replicas = set(partition.replicas)
        assert len(partition.isr) == len(isr)
        assert isr | elr <= replicas
        assert not isr & elr, "a replica is in sync and eligible"
        assert partition.leader == NO_LEADER or partition.leader in isr
        if partition.leader != NO_LEADER:
            assert self.image.brokers[partition.leader].is_active
        if self.was_toggled:
            pass  # sets may be left as the other level makes them
        elif self.has_eligible_replicas:
            for replica in isr:
                assert self.image.brokers[replica].is_active, "in sync and not active"
            enough = min(min_insync_replicas(self.image), len(replicas))
            assert len(isr) < enough or not elr
            if not self.is_disturbed:
                assert len(isr | elr) >= enough, "too few are known to have everything"
        else:
            assert isr
            assert not elr
            if partition.leader == NO_LEADER:
                assert len(isr) == 1, "one that is not in sync could lead"
        for replica in (isr | elr) - self.lossy:
            log = self.brokers[replica].log
            assert log[: len(self.committed)] == self.committed, "a candidate lacks records"
        self._check_leader(partition, isr, elr)

    def _check_leader(self, partition: PartitionImage, isr: set[int], elr: set[int]) -> None:
        """The leader waits for everyone whom the controller could elect."""
        if partition.leader == NO_LEADER:
            return
        leader = self.brokers[partition.leader]
        state = leader.state
        if state is None or not state.is_leader or state.leader_epoch != partition.leader_epoch:
            return
        counted = {each for each in state.replicas if state.awaits(each)}
        assert counted >= isr, "the leader does not wait for one that is in sync"
        enough = min(min_insync_replicas(leader.image), len(state.replicas))
        if len(state.isr) >= enough:
            assert counted >= elr, "the leader does not wait for one that is eligible"


def min_insync_replicas(image: MetadataImage) -> int:
    return int(image.topic_configs(TOPIC)["min.insync.replicas"])
