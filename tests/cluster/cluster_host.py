"""An image and what decisions on it need, without a log: decisions count at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import (
    BrokerState,
    Heartbeat,
    fence_broker,
    heartbeat,
    unfence_broker,
)
from tidelog.cluster.controller.broker_registrations import BrokerRegistration, register_broker
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, UncleanElection
from tidelog.cluster.controller.topic_changes import NewTopic, create_topics
from tidelog.cluster.features import DEFAULT_METADATA_VERSION, initial_levels
from tidelog.cluster.metadata.image import Endpoint, MetadataDelta, MetadataImage, PartitionImage
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.protocol.errors import ApiError
from tidelog.protocol.schema import Message

Rows = TypeVar("Rows")

WITHOUT_ELIGIBLE_REPLICAS = {"eligible.leader.replicas.version": 0}


def broker_uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


class ClusterHost:
    """`broker_ids` are registered and serve; `racks` are theirs in the same order."""

    def __init__(
        self,
        broker_ids: Sequence[int] = (1,),
        *,
        racks: Sequence[str | None] = (),
        settings: ControllerSettings | None = None,
        metadata_version: int = DEFAULT_METADATA_VERSION,
        features: Mapping[str, int] | None = None,
    ) -> None:
        ids = itertools.count(1000)
        self.settings = settings or ControllerSettings(node_id=broker_ids[0])
        self.random = Random(7)
        self.new_id = lambda: broker_uuid(next(ids))
        self.image = MetadataImage()
        self.delta = MetadataDelta()
        self.records: list[Message] = []
        self.heartbeats = BrokerHeartbeats()
        self.now_ms = 0
        self.unclean_elections: list[UncleanElection] = []
        self.submit(
            [
                FeatureLevelRecord(name=name, feature_level=level)
                for name, level in initial_levels(metadata_version, features).items()
            ]
        )
        for broker_id, rack in itertools.zip_longest(broker_ids, racks):
            self.register(broker_id, rack=rack)
            self.unfence(broker_id)

    def submit(self, records: Sequence[Message]) -> None:
        """What the metadata log would do, without the log."""
        if records:
            self.records += records
            offset = self.image.offset + len(records)
            self.image, self.delta = self.image.apply(records, offset, 1, offset)

    def decide(self, decision: Decision[Rows]) -> Rows:
        """Makes the decision a fact and returns its rows."""
        self.submit(decision.records)
        self.unclean_elections += decision.unclean_elections
        return decision.rows

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        rack: str | None = None,
        stopped_cleanly: bool = True,
        log_dirs: int = 1,
    ) -> int:
        known = self.image.brokers.get(broker_id)
        registration = BrokerRegistration(
            broker_id,
            broker_uuid(incarnation),
            (Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),),
            rack,
            tuple(broker_uuid(100 * broker_id + index) for index in range(log_dirs)),
            previous_epoch=known.epoch if known is not None and stopped_cleanly else -1,
        )
        return self.decide(self.registering(registration))

    def registering(self, registration: BrokerRegistration) -> Decision[int]:
        """The decision on a registration, which is not a fact yet."""
        return register_broker(
            registration,
            self.image,
            self.settings,
            self.heartbeats,
            now_ms=self.now_ms,
            next_offset=self.image.offset + 1,
        )

    def beat(self, broker_id: int, offset: int | None = None, **wants: object) -> BrokerState:
        """A heartbeat; the broker's image is as new as the controller's unless told otherwise."""
        beat = Heartbeat(
            broker_id,
            self.image.brokers[broker_id].epoch,
            self.image.offset if offset is None else offset,
            **wants,  # type: ignore[arg-type]
        )
        return self.decide(
            heartbeat(
                beat,
                self.image,
                self.settings,
                self.heartbeats,
                now_ms=self.now_ms,
                next_offset=self.image.offset + 1,
            )
        )

    def unfence(self, broker_id: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        self.decide(unfence_broker(broker_id, epoch, self.image, self.settings))

    def fence(self, broker_id: int) -> None:
        self.decide(fence_broker(broker_id, self.image, self.settings))

    def create(self, name: str, **arguments: object) -> None:
        topic = NewTopic(name)._replace(**arguments)  # type: ignore[arg-type]
        (row,) = self.decide(
            create_topics([topic], self.image, self.settings, self.random, self.new_id)
        )
        assert row.error is None, row

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        partition = self.image.partition(topic, index)
        assert partition is not None
        return partition

    def describe(self, topic: str, index: int = 0) -> str:
        """One line of a transcript."""
        partition = self.partition(topic, index)
        line = (
            f"{topic}-{index}: leader {partition.leader} at epoch {partition.leader_epoch}, "
            f"replicas {list(partition.replicas)}, isr {list(partition.isr)}"
        )
        if partition.eligible_leader_replicas:
            line += f", eligible {list(partition.eligible_leader_replicas)}"
        if partition.last_known_elr:
            line += f", last led by {list(partition.last_known_elr)}"
        if partition.adding_replicas:
            line += f", adding {list(partition.adding_replicas)}"
        if partition.removing_replicas:
            line += f", removing {list(partition.removing_replicas)}"
        return line


def outcome(error: ApiError | None) -> str:
    """A row's error as a transcript has it."""
    return "ok" if error is None else f"{error.code.name}: {error.message}"
