"""Changes of one partition: who replicates it, who is in sync, who leads.

Every change goes through `PartitionChange`, which takes what is wanted and makes the record for it,
or none when it changes nothing. It keeps the rules that hold for every change:

- A reassignment whose new replicas are in sync is completed.
- The leader is an in-sync replica, or an *eligible leader replica* (ELR, KIP-966) when none is in
  sync; the last known leader or any live replica only where that is counted as unclean. Of several,
  one that has room on its disk, as far as the decision knows.
- While fewer replicas than min.insync.replicas are in sync nothing is committed, so those that
  leave the in-sync set then have all that is committed: they become eligible. When enough are in
  sync again, nobody is eligible any more. A replica whose broker stopped uncleanly may have lost
  records and is in neither set.
- Taking replicas away raises the leader epoch even when the leader stays, so that the ones that
  left are fenced. The partition epoch rises with every record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import UncleanElection
from tidelog.cluster.controller.log_directories import default_directory
from tidelog.cluster.directory_ids import MIGRATING, is_online
from tidelog.cluster.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    MV_ISR_SHRINK_KEEPS_EPOCH,
    MV_LOG_DIRECTORIES,
)
from tidelog.cluster.metadata.image import (
    NO_LEADER,
    BrokerImage,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from tidelog.cluster.metadata.records.topics import NO_LEADER_CHANGE, PartitionChangeRecord
from tidelog.protocol.schema import Message


class Election(Enum):
    PREFERRED = 0  # the first replica, if it is in sync
    ONLINE = 1  # any in-sync replica; the leader of now stays if it can
    UNCLEAN = 2  # any live replica when none is in sync: records may be lost


class Elected(NamedTuple):
    leader: int
    is_unclean: bool


_NOBODY = Elected(NO_LEADER, False)


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker is registered, not fenced and not about to stop."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


class TopicRules(NamedTuple):
    """What a topic's settings say about its partitions."""

    min_insync_replicas: int
    unclean_elections: bool

    @property
    def election(self) -> Election:
        return Election.UNCLEAN if self.unclean_elections else Election.ONLINE


class PartitionRules:
    """What an image says about changes of partitions; settings are looked up once per topic."""

    def __init__(
        self,
        image: MetadataImage,
        settings: ControllerSettings,
        heartbeats: BrokerHeartbeats | None = None,
    ) -> None:
        self.image = image
        self._heartbeats = heartbeats
        level = image.metadata_version
        self.knows_directories = level >= MV_LOG_DIRECTORIES
        self.isr_shrink_raises_epoch = level < MV_ISR_SHRINK_KEEPS_EPOCH
        self.has_eligible_replicas = image.finalized_level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0
        self._topic_setting = settings.topic_settings(image)
        self._topics: dict[str, TopicRules] = {}

    def of(self, topic: str) -> TopicRules:
        rules = self._topics.get(topic)
        if rules is None:
            setting = self._topic_setting
            rules = self._topics[topic] = TopicRules(
                int(setting(topic, "min.insync.replicas")),
                setting(topic, "unclean.leader.election.enable").lower() == "true",
            )
        return rules

    def lacks_room(self, partition: PartitionImage, broker: BrokerImage) -> bool:
        """Whether the disk of the broker's replica is known to be full."""
        heartbeats = self._heartbeats
        return heartbeats is not None and heartbeats.lacks_room(partition, broker)


class PartitionChanges:
    """The records of one decision about partitions, and the unclean elections among them.

    Without `heartbeats` it does not know whose disk is full. A leader whose disk is says so with
    the next of them.
    """

    def __init__(
        self,
        image: MetadataImage,
        settings: ControllerSettings,
        heartbeats: BrokerHeartbeats | None = None,
    ) -> None:
        self.rules = PartitionRules(image, settings, heartbeats)
        self.records: list[Message] = []
        self.unclean_elections: list[UncleanElection] = []

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        """The image with these records, for what the same decision goes on to decide."""
        if not self.records:
            return image
        return image.apply(self.records, image.offset, image.epoch, image.timestamp_ms)[0]

    def add(self, change: PartitionChange) -> PartitionChangeRecord | None:
        """Takes the record of a change in, if it changes anything."""
        record = change.record()
        if record is not None:
            self.take(change, record)
        return record

    def take(self, change: PartitionChange, record: PartitionChangeRecord) -> None:
        """Takes in the record that a change has made."""
        self.records.append(record)
        if change.unclean_election is not None:
            self.unclean_elections.append(change.unclean_election)


@dataclass(slots=True)
class PartitionChange:
    """A partition on its way to another state; what is None stays as it is.

    `can_lead` says of a broker whether it may lead at all, whatever partitions it has.
    """

    topic: TopicImage
    before: PartitionImage
    rules: PartitionRules
    can_lead: Callable[[int], bool] | None = None  # None: active brokers can
    election: Election = Election.ONLINE
    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery: int | None = None
    new_epoch: bool = False  # even where the leader stays
    unclean_shutdowns: Sequence[int] = ()  # brokers that may have lost records
    directories: Mapping[int, bytes] = field(default_factory=dict)  # by replica, where they change
    unclean_election: UncleanElection | None = None

    def record(self) -> PartitionChangeRecord | None:
        """The record that makes the change; None when there is nothing to change.

        Cost: a few microseconds, as a broker that goes takes thousands of these.
        """
        before, rules = self.before, self.rules
        replicas = before.replicas if self.replicas is None else self.replicas
        isr = before.isr if self.isr is None else self.isr
        removing = before.removing_replicas if self.removing is None else self.removing
        adding = before.adding_replicas if self.adding is None else self.adding
        if (removing or adding) and is_complete(replicas, isr, removing, adding):
            replicas = tuple(replica for replica in replicas if replica not in removing)
            isr = tuple(replica for replica in isr if replica not in removing)
            removing = adding = ()
        elr = self._eligible(replicas, isr)
        leader, unclean = self._elect(replicas, isr, elr)
        if unclean:
            isr, elr = (leader,), ()
        elif leader in elr:
            isr = (leader,)
            elr = tuple(replica for replica in elr if replica != leader)
        if not rules.has_eligible_replicas:
            # The last one in sync stays in the set: only it has everything.
            if not isr and before.isr:
                isr = tuple(each for each in before.isr if each in replicas) or replicas[:1]
            elr = () if isr else elr
        leader_change = NO_LEADER_CHANGE
        if leader != before.leader or self._raises_epoch(replicas, isr):
            leader_change = leader

        record = PartitionChangeRecord(partition_id=before.partition, topic_id=self.topic.topic_id)
        changes = self._set_assignment(record, replicas, removing, adding)
        if leader_change != NO_LEADER_CHANGE:
            record.leader = leader_change
            changes = True
        if isr != before.isr:
            record.isr = list(isr)
            changes = True
        if elr != before.eligible_leader_replicas:
            record.eligible_leader_replicas = list(elr)
            changes = True
        last_known = self._last_known_leader(leader_change, is_held=bool(isr or elr))
        if last_known != before.last_known_elr:
            record.last_known_elr = list(last_known)
            changes = True
        recovery = before.leader_recovery_state if self.recovery is None else self.recovery
        if unclean:
            recovery = LeaderRecoveryState.RECOVERING
            self.unclean_election = self._unclean_election(leader)
        if recovery != before.leader_recovery_state:
            record.leader_recovery_state = recovery
            changes = True
        return record if changes else None

    def _raises_epoch(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> bool:
        """Whether a leader that stays gets a new epoch."""
        before = self.before
        if self.new_epoch:
            return True
        if replicas != before.replicas and not set(before.replicas) <= set(replicas):
            return True
        # Brokers before 3.6 needed one for a smaller in-sync set (KAFKA-15021).
        return self.rules.isr_shrink_raises_epoch and not set(before.isr) <= set(isr)

    def _unclean_election(self, leader: int) -> UncleanElection:
        before = self.before
        return UncleanElection(
            self.topic.name,
            before.partition,
            leader,
            before.leader_epoch + 1,
            before.isr,
            leader in before.last_known_elr,
        )

    def _eligible(self, replicas: Sequence[int], isr: Sequence[int]) -> tuple[int, ...]:
        """Who has all that is committed without being in sync, before the election."""
        rules, before = self.rules, self.before
        candidates = set(before.eligible_leader_replicas)
        if rules.has_eligible_replicas:
            min_isr = min(rules.of(self.topic.name).min_insync_replicas, len(replicas))
            if len(isr) >= min_isr:
                return ()
            candidates |= {*before.isr}
        elif isr or before.isr:
            return ()  # else they are left from before the feature was turned off, and all there is
        candidates -= {*isr, *self.unclean_shutdowns}
        # What a finished reassignment takes away has no more to say.
        return tuple(sorted(candidates & {*replicas}))

    def _elect(self, replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int]) -> Elected:
        sound = isr or elr
        current = self.before.leader
        if self.election is Election.PREFERRED:
            preferred = replicas[0]
            if preferred in sound and self._is_acceptable(preferred) and self._has_room(preferred):
                return Elected(preferred, False)
        candidates = (current, *replicas) if current in replicas else replicas
        without_room = NO_LEADER
        for replica in candidates:
            if replica in sound and self._is_acceptable(replica):
                if self._has_room(replica):
                    return Elected(replica, False)
                if without_room == NO_LEADER:
                    without_room = replica
        if without_room != NO_LEADER:
            return Elected(without_room, False)
        if not sound:
            # Known since the in-sync set was empty, which may be from before the feature was
            # turned off.
            last_known = self.before.last_known_elr
            # More than one would be what other software keeps there: not a leader.
            if len(last_known) == 1 and last_known[0] in replicas:
                (last_leader,) = last_known
                if self._is_acceptable(last_leader):
                    return Elected(last_leader, True)
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self._is_acceptable(replica):
                    return Elected(replica, True)
        return _NOBODY

    def _is_acceptable(self, replica: int) -> bool:
        """Whether the replica's broker may lead and its directory is online."""
        image, before = self.rules.image, self.before
        broker = image.brokers.get(replica)
        if broker is None:
            return False
        if not (broker.is_active if self.can_lead is None else self.can_lead(replica)):
            return False
        directory = before.directory_of(replica)
        return directory is None or is_online(directory, broker.log_dirs)

    def _has_room(self, replica: int) -> bool:
        return not self.rules.lacks_room(self.before, self.rules.image.brokers[replica])

    def _last_known_leader(self, leader_change: int, *, is_held: bool) -> tuple[int, ...]:
        """Who led when the partition last had a leader, or else was the last that had everything;
        nobody while it has a leader. `is_held`: somebody has everything that is committed."""
        before = self.before
        if leader_change >= 0:
            return ()
        if not self.rules.has_eligible_replicas or before.last_known_elr:
            return before.last_known_elr
        if leader_change == NO_LEADER and before.leader != NO_LEADER:
            return (before.leader,)
        # The leadership was lost while the feature was off.
        holders = (*before.isr, *before.eligible_leader_replicas)
        if before.leader == NO_LEADER and not is_held and len(holders) == 1:
            return holders
        return ()

    def _set_assignment(
        self,
        record: PartitionChangeRecord,
        replicas: tuple[int, ...],
        removing: tuple[int, ...],
        adding: tuple[int, ...],
    ) -> bool:
        before = self.before
        changes = False
        if replicas != before.replicas:
            record.replicas = list(replicas)
            changes = True
        if self.rules.knows_directories and (changes or self.directories):
            # A partition that is older than directory ids has none.
            old = before.directories or (MIGRATING,) * len(before.replicas)
            known = dict(zip(before.replicas, old, strict=True))
            known.update(self.directories)
            image = self.rules.image
            new = tuple(
                known[replica] if replica in known else default_directory(image, replica)
                for replica in replicas
            )
            if new != old:
                record.directories = list(new)
                changes = True
        if removing != before.removing_replicas:
            record.removing_replicas = list(removing)
            changes = True
        if adding != before.adding_replicas:
            record.adding_replicas = list(adding)
            changes = True
        return changes


def is_complete(
    replicas: Sequence[int], isr: Sequence[int], removing: Sequence[int], adding: Sequence[int]
) -> bool:
    """Whether a reassignment that is under way can end.

    All its new replicas have to be in sync, and, where there will be fewer replicas than before,
    all that stay: otherwise the end could leave fewer in sync than there are now.
    """
    staying = set(isr) - set(removing)
    if (removing and not staying) or not set(adding) <= staying:
        return False
    return len(adding) >= len(removing) or set(replicas) - set(removing) <= staying
