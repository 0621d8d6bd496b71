"""Random histories of a controller with brokers: nothing that is committed is lost.

The same histories have to find mistakes that are planted in the rules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.cluster.controller.cluster_model import BROKERS, ClusterModel
from tidelog.cluster.controller import (
    broker_registrations,
    config_changes,
    isr_changes,
)
from tidelog.cluster.controller.leadership import broker_goes
from tidelog.cluster.controller.partition_changes import Elected, PartitionChange
from tidelog.cluster.metadata.image import NO_LEADER
from tidelog.cluster.metadata.records.topics import NO_LEADER_CHANGE
from tidelog.cluster.replication.replication_state import ReplicationState

BROKER = st.sampled_from(BROKERS)


class ClusterHistory(RuleBasedStateMachine):
    """Steps of the model in any order; `replicate` and `settle` are many at once, as in a cluster
    in which most goes well."""

    model: ClusterModel

    HAS_ELIGIBLE_REPLICAS = True

    @initialize(min_insync_replicas=st.integers(1, 3))
    def create(self, min_insync_replicas: int) -> None:
        self.model = ClusterModel(
            min_insync_replicas, has_eligible_replicas=self.HAS_ELIGIBLE_REPLICAS
        )
        self.replicate(without=None, delivers=True)

    @rule(broker_id=BROKER)
    def fence(self, broker_id: int) -> None:
        self.model.fence(broker_id)

    @rule(broker_id=BROKER, keeps=st.none() | st.integers(0, 6))
    def crash(self, broker_id: int, keeps: int | None) -> None:
        self.model.crash(broker_id, keeps)

    @rule(broker_id=BROKER, serves=st.booleans())
    def restart(self, broker_id: int, serves: bool) -> None:
        self.model.restart(broker_id)
        if serves:
            self.model.heartbeat(broker_id)

    @rule(broker_id=BROKER)
    def shut_down(self, broker_id: int) -> None:
        for _ in range(3):
            self.model.heartbeat(broker_id, wants_shut_down=True)
            for other in BROKERS:
                self.model.take_in(other, everything=True)
                if other != broker_id:
                    self.model.heartbeat(other)

    @rule()
    def heartbeats(self) -> None:
        for broker_id in BROKERS:
            self.model.take_in(broker_id, everything=True)
            self.model.heartbeat(broker_id)

    @rule(broker_id=BROKER, everything=st.booleans())
    def take_in(self, broker_id: int, everything: bool) -> None:
        self.model.take_in(broker_id, everything=everything)

    @rule(broker_id=BROKER)
    def produce(self, broker_id: int) -> None:
        self.model.produce(broker_id)

    @rule(broker_id=BROKER, records_max=st.integers(0, 3))
    def fetch(self, broker_id: int, records_max: int) -> None:
        self.model.fetch(broker_id, records_max)

    @rule(broker_id=BROKER)
    def shrink(self, broker_id: int) -> None:
        self.model.produce(broker_id)
        self.model.shrink(broker_id)

    @rule(index=st.integers(0, 3))
    def deliver(self, index: int) -> None:
        self.model.deliver(index)

    @rule(without=st.none() | BROKER, delivers=st.booleans())
    def replicate(self, without: int | None, delivers: bool) -> None:
        """All brokers but one follow the controller, and the leader's log; what the leader proposes
        may be on its way for a while."""
        model = self.model
        for _ in range(2):
            for broker_id in BROKERS:
                if broker_id != without:
                    model.take_in(broker_id, everything=True)
                    model.produce(broker_id)
            for broker_id in BROKERS * 2:
                if broker_id != without:
                    model.fetch(broker_id, 9)
            if delivers:
                model.deliver(0)

    @rule(broker_ids=st.lists(BROKER, min_size=1, max_size=2, unique=True))
    def lose_sight_of(self, broker_ids: list[int]) -> None:
        """Brokers are fenced for a moment, one after the other; their leader wants to have them in
        sync again."""
        for broker_id in broker_ids:
            self.model.fence(broker_id)
            self.heartbeats()
            self.replicate(without=None, delivers=False)

    @rule(broker_id=BROKER, keeps=st.none() | st.integers(0, 6), serves=st.booleans())
    def bounce(self, broker_id: int, keeps: int | None, serves: bool) -> None:
        """A crash with a quick restart, before the controller has noticed."""
        self.model.crash(broker_id, keeps)
        self.restart(broker_id, serves)

    @rule()
    def elect_preferred(self) -> None:
        self.model.elect_preferred()

    @rule(replicas=st.none() | st.lists(BROKER, min_size=1, max_size=3, unique=True))
    def reassign(self, replicas: list[int] | None) -> None:
        self.model.reassign(replicas)

    @rule(count=st.integers(1, 3))
    def set_min_insync_replicas(self, count: int) -> None:
        self.model.set_min_insync_replicas(count)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "model"):
            self.model.check()


class OldClusterHistory(ClusterHistory):
    """The same where eligible.leader.replicas.version is 0."""

    HAS_ELIGIBLE_REPLICAS = False


class ToggledClusterHistory(OldClusterHistory):
    """The same where it is turned on and off."""

    @rule(level=st.integers(0, 1))
    def set_eligible_replicas(self, level: int) -> None:
        self.model.set_eligible_replicas(level)


TestClusterHistory = ClusterHistory.TestCase
TestClusterHistory.settings = settings(max_examples=150, stateful_step_count=50)
TestOldClusterHistory = OldClusterHistory.TestCase
TestOldClusterHistory.settings = settings(max_examples=60, stateful_step_count=50)
TestToggledClusterHistory = ToggledClusterHistory.TestCase
TestToggledClusterHistory.settings = settings(max_examples=60, stateful_step_count=50)


def finds(examples_max: int = 400) -> bool:
    """Whether random histories meet something that must not be."""
    try:
        run_state_machine_as_test(
            ClusterHistory,
            settings=settings(
                max_examples=examples_max,
                stateful_step_count=50,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                print_blob=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except AssertionError:
        return True
    return False


def keeps_unclean_replicas_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker_registrations, "broker_lost_records", broker_goes)


def lets_anybody_into_the_in_sync_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr_changes, "_why_ineligible", lambda *_: None)


def commits_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    advance = ReplicationState.advance
    patch.setattr(
        ReplicationState,
        "advance",
        lambda self, durable_offset, min_insync_replicas: advance(self, durable_offset, 1),
    )


def keeps_eligible_replicas_when_min_insync_replicas_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config_changes, "_cleared_eligible_replicas", lambda *_: [])


def keeps_replicas_eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionChange,
        "_eligible",
        lambda self, replicas, isr: tuple(
            each
            for each in sorted({*self.before.isr, *self.before.eligible_leader_replicas})
            if each in replicas and each not in isr and each not in self.unclean_shutdowns
        ),
    )


def forgets_who_left_the_in_sync_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionChange, "_eligible", lambda self, replicas, isr: ())


def counts_only_who_is_confirmed_to_be_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicationState, "awaits", lambda self, broker_id: broker_id in self.isr)


def elects_any_live_replica(patch: pytest.MonkeyPatch) -> None:
    def elect(
        self: PartitionChange,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        elr: tuple[int, ...],
    ) -> Elected:
        live = [each for each in replicas if self._is_acceptable(each)]
        sound = [each for each in live if each in isr]
        return Elected((sound or live or [NO_LEADER])[0], False)

    patch.setattr(PartitionChange, "_elect", elect)


def takes_proposals_of_an_older_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    checked = isr_changes._checked

    def check(change, broker_id, image):  # type: ignore[no-untyped-def]
        partition = image.topics_by_id[change.topic_id].partitions[change.partition]
        newest = max(change.partition_epoch, partition.partition_epoch)
        return checked(change._replace(partition_epoch=newest), broker_id, image)

    patch.setattr(isr_changes, "_checked", check)


def ends_reassignments_without_a_new_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    record = PartitionChange.record

    def without_epoch(self: PartitionChange):  # type: ignore[no-untyped-def]
        made = record(self)
        if made is not None and made.leader == self.before.leader:
            made.leader = NO_LEADER_CHANGE
        return made

    patch.setattr(PartitionChange, "record", without_epoch)


@pytest.mark.parametrize(
    "mistake",
    [
        commits_with_too_few_in_sync,
        counts_only_who_is_confirmed_to_be_in_sync,
        elects_any_live_replica,
        ends_reassignments_without_a_new_leader_epoch,
        forgets_who_left_the_in_sync_set,
        keeps_eligible_replicas_when_min_insync_replicas_change,
        keeps_replicas_eligible_for_ever,
        keeps_unclean_replicas_eligible,
        lets_anybody_into_the_in_sync_set,
        takes_proposals_of_an_older_partition_epoch,
    ],
)
def test_the_histories_find_a_rule_that(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert finds()
