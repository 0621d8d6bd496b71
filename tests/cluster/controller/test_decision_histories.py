"""Random histories of decisions: the image, the log and the snapshots always agree."""

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import fence_broker, unfence_broker
from tidelog.cluster.controller.broker_registrations import (
    BrokerRegistration,
    register_broker,
    unregister_broker,
)
from tidelog.cluster.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    incremental_alter_configs,
)
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.elections import PREFERRED_ELECTION, UNCLEAN_ELECTION, elect_leaders
from tidelog.cluster.controller.feature_changes import FeatureUpdate, UpgradeType, update_features
from tidelog.cluster.controller.producer_ids import allocate_producer_ids
from tidelog.cluster.controller.quota_changes import QuotaAlteration, alter_client_quotas
from tidelog.cluster.controller.reassignments import Reassignment, alter_partition_reassignments
from tidelog.cluster.controller.scram_changes import (
    ScramDeletion,
    ScramUpsertion,
    alter_user_scram_credentials,
)
from tidelog.cluster.controller.topic_changes import (
    NewTopic,
    PartitionAddition,
    TopicSelector,
    create_partitions,
    create_topics,
    delete_topics,
)
from tidelog.cluster.metadata.image import (
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    Endpoint,
    MetadataImage,
)
from tidelog.cluster.metadata.metadata_loading import DIRECTORY_NAME
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.snapshotting import SnapshotOptions
from tidelog.protocol.errors import ApiError
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.operating_system.files import OsFiles

BROKERS = st.integers(1, 3)
TOPICS = st.sampled_from(["orders", "payments", "a.b", "a_b"])
VALUES = st.sampled_from(["1000", "2000", "soon", "-1"])


class FastFiles(OsFiles):
    """Histories are not about durability, and syncs are most of their time."""

    def skip_sync(self, _: object, /) -> None:
        pass

    fsync = fdatasync = sync_directory = skip_sync  # type: ignore[assignment]


class DecisionHistory(RuleBasedStateMachine):
    """Every rule is a request; the invariants hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self._root = TemporaryDirectory()
        self._incarnations = itertools.count(1)
        self._ids = itertools.count(1)
        self.settings = ControllerSettings(1)
        self.random = Random(5)
        self.new_id = lambda: next(self._ids).to_bytes(16, "big")
        self.metadata = self._open()
        self.epochs: dict[tuple[bytes, int], tuple[int, int]] = {}

    def _open(self) -> MetadataLog:
        return MetadataLog.open(
            Path(self._root.name) / DIRECTORY_NAME,
            node_id=1,
            directory_id=b"D" * 16,
            world=InlineWorld(FastFiles(), now_ms=1_700_000_000_000),
            options=SnapshotOptions(records_max=40, records_max_at_close=10_000),
        )

    def teardown(self) -> None:
        self.metadata.close()
        self._root.cleanup()

    def _propose(self, decide: Callable[[], object]) -> None:
        try:
            decision = decide()
        except ApiError:
            return
        self.metadata.propose(decision.records).committed.result()  # type: ignore[attr-defined]

    @property
    def image(self) -> MetadataImage:
        return self.metadata.latest

    @initialize()
    def first_broker(self) -> None:
        self.register(1, True)
        self.unfence(1)

    @rule(broker_id=BROKERS, stopped_cleanly=st.booleans())
    def register(self, broker_id: int, stopped_cleanly: bool) -> None:
        known = self.image.brokers.get(broker_id)
        registration = BrokerRegistration(
            broker_id,
            next(self._incarnations).to_bytes(16, "big"),
            (Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),),
            log_dirs=((1000 + broker_id).to_bytes(16, "big"),),
            previous_epoch=known.epoch if known is not None and stopped_cleanly else -1,
        )
        self._propose(
            lambda: register_broker(
                registration,
                self.image,
                self.settings,
                BrokerHeartbeats(),
                now_ms=0,
                next_offset=self.metadata.next_offset,
            )
        )

    @rule(broker_id=BROKERS)
    def unfence(self, broker_id: int) -> None:
        broker = self.image.brokers.get(broker_id)
        epoch = broker.epoch if broker else 0
        self._propose(lambda: unfence_broker(broker_id, epoch, self.image, self.settings))

    @rule(broker_id=BROKERS)
    def fence(self, broker_id: int) -> None:
        self._propose(lambda: fence_broker(broker_id, self.image, self.settings))

    @rule(broker_id=st.integers(2, 3))
    def unregister(self, broker_id: int) -> None:
        self._propose(lambda: unregister_broker(broker_id, self.image, self.settings))

    @rule(name=TOPICS, partitions=st.integers(0, 4), factor=st.integers(-1, 3), retention=VALUES)
    def create_topic(self, name: str, partitions: int, factor: int, retention: str) -> None:
        topic = NewTopic(name, partitions, factor, configs={"retention.ms": retention})
        self._propose(
            lambda: create_topics([topic], self.image, self.settings, self.random, self.new_id)
        )

    @rule(name=TOPICS)
    def delete_topic(self, name: str) -> None:
        self._propose(lambda: delete_topics([TopicSelector(name)], self.image, self.settings))

    @rule(name=TOPICS, count=st.integers(1, 6))
    def add_partitions(self, name: str, count: int) -> None:
        addition = PartitionAddition(name, count)
        self._propose(lambda: create_partitions([addition], self.image, self.random))

    @rule(name=TOPICS, operation=st.integers(0, 3), value=VALUES)
    def change_config(self, name: str, operation: int, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        key = "segment.ms" if operation < 2 else "cleanup.policy"
        change = ConfigChange(
            resource,
            [ConfigOperation(key, operation, value if operation < 2 else "compact")],
        )
        self._propose(lambda: incremental_alter_configs([change], self.image, self.settings))

    @rule(user=st.sampled_from(["a", "b", None]), rate=st.sampled_from([None, 1.0, 5.0]))
    def change_quota(self, user: str | None, rate: float | None) -> None:
        alteration = QuotaAlteration([("user", user)], [("producer_byte_rate", rate)])
        self._propose(lambda: alter_client_quotas([alteration], self.image))

    @rule(user=st.sampled_from(["a", "b"]), delete=st.booleans())
    def change_scram(self, user: str, delete: bool) -> None:
        self._propose(
            lambda: alter_user_scram_credentials(
                [ScramDeletion(user, 1)] if delete else [],
                [] if delete else [ScramUpsertion(user, 1, 4096, b"salt", b"p" * 32)],
                self.image,
            )
        )

    @rule(level=st.integers(0, 2), downgrade=st.booleans())
    def change_feature(self, level: int, downgrade: bool) -> None:
        kind = UpgradeType.SAFE_DOWNGRADE if downgrade else UpgradeType.UPGRADE
        update = FeatureUpdate("transaction.version", level, kind)
        self._propose(lambda: update_features([update], self.image, self.settings))

    @rule()
    def allocate_producer_ids(self) -> None:
        epoch = self.image.brokers[1].epoch
        self._propose(lambda: allocate_producer_ids(1, epoch, self.image))

    @rule(election_type=st.sampled_from([PREFERRED_ELECTION, UNCLEAN_ELECTION]))
    def elect(self, election_type: int) -> None:
        self._propose(lambda: elect_leaders(election_type, None, self.image, self.settings))

    @rule(
        name=TOPICS,
        replicas=st.none() | st.lists(BROKERS, min_size=1, max_size=3, unique=True),
    )
    def reassign(self, name: str, replicas: list[int] | None) -> None:
        wanted = Reassignment(name, 0, replicas)
        self._propose(lambda: alter_partition_reassignments([wanted], self.image, self.settings))

    @rule()
    def snapshot(self) -> None:
        self.metadata.snapshot()

    @rule()
    def restart(self) -> None:
        before = self.metadata.image
        self.metadata.close()
        self.metadata = self._open()
        assert self.metadata.image.at(0, 0, 0) == before.at(0, 0, 0)

    @invariant()
    def what_is_committed_is_what_was_decided(self) -> None:
        assert self.metadata.image is self.metadata.latest
        assert self.metadata.image.offset == self.metadata.next_offset - 1

    @invariant()
    def partitions_are_sound(self) -> None:
        image = self.image
        assert set(image.topics_by_name) == {each.name for each in image.topics_by_id.values()}
        epochs = {}
        for topic in image.topics_by_name.values():
            for index, partition in enumerate(topic.partitions):
                assert partition.partition == index
                eligible = set(partition.eligible_leader_replicas)
                assert set(partition.isr) | eligible <= set(partition.replicas)
                assert not set(partition.isr) & eligible
                assert partition.leader in (*partition.isr, NO_LEADER)
                assert len(partition.directories) == len(partition.replicas)
                now = (partition.leader_epoch, partition.partition_epoch)
                before = self.epochs.get((topic.topic_id, index), (0, 0))
                assert now[0] >= before[0]
                assert now[1] >= before[1]
                epochs[topic.topic_id, index] = now
        self.epochs = epochs


TestDecisionHistory = DecisionHistory.TestCase
TestDecisionHistory.settings = settings(max_examples=40, stateful_step_count=30)
