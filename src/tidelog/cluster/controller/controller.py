"""The controller: it decides what becomes of the cluster, and does nothing else.

Every method takes an image and says what should happen as a `Decision`; there is no state here, no
clock and no I/O. Decide on `MetadataLog.latest` and hand the records to `MetadataLog.submit` before
the next decision, so that each sees the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from tidelog.cluster.controller import (
    broker_lifecycle,
    config_changes,
    elections,
    feature_changes,
    partition_changes,
    producer_ids,
    quota_changes,
    reassignments,
    scram_changes,
    topic_changes,
)
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import random_uuid


class Controller:
    """The decisions by area; each area is a module of its own."""

    def __init__(
        self,
        settings: ControllerSettings,
        random: Random,
        *,
        new_id: Callable[[], bytes] | None = None,
    ) -> None:
        self.settings = settings
        self._random = random
        self._new_id = new_id or partial(random_uuid, random)

    # Topics and partitions

    def create_topics(
        self,
        topics: Sequence[topic_changes.NewTopic],
        image: MetadataImage,
        *,
        validate_only: bool = False,
        charge: topic_changes.ChargePartitions = topic_changes.charge_nobody,
    ) -> Decision[list[topic_changes.CreatedTopic]]:
        return topic_changes.create_topics(
            topics,
            image,
            self.settings,
            self._random,
            self._new_id,
            validate_only=validate_only,
            charge=charge,
        )

    def delete_topics(
        self,
        topics: Sequence[topic_changes.TopicSelector],
        image: MetadataImage,
        *,
        charge: topic_changes.ChargePartitions = topic_changes.charge_nobody,
    ) -> Decision[list[topic_changes.DeletedTopic]]:
        return topic_changes.delete_topics(topics, image, self.settings, charge=charge)

    def create_partitions(
        self,
        additions: Sequence[topic_changes.PartitionAddition],
        image: MetadataImage,
        *,
        validate_only: bool = False,
        charge: topic_changes.ChargePartitions = topic_changes.charge_nobody,
    ) -> Decision[list[topic_changes.TopicRow]]:
        return topic_changes.create_partitions(
            additions, image, self._random, validate_only=validate_only, charge=charge
        )

    def alter_partitions(
        self,
        changes: Sequence[partition_changes.IsrChange],
        broker_id: int,
        broker_epoch: int,
        image: MetadataImage,
    ) -> Decision[list[partition_changes.IsrRow]]:
        return partition_changes.alter_partitions(changes, broker_id, broker_epoch, image)

    def elect_leaders(
        self,
        election_type: int,
        partitions: Sequence[TopicPartition] | None,
        image: MetadataImage,
    ) -> Decision[list[elections.PartitionRow]]:
        return elections.elect_leaders(election_type, partitions, image)

    def alter_partition_reassignments(
        self,
        wanted: Sequence[reassignments.Reassignment],
        image: MetadataImage,
        *,
        allow_replication_factor_change: bool = True,
    ) -> Decision[list[elections.PartitionRow]]:
        return reassignments.alter_partition_reassignments(
            wanted,
            image,
            self.settings,
            allow_replication_factor_change=allow_replication_factor_change,
        )

    # Settings

    def alter_configs(
        self,
        replacements: Sequence[config_changes.ConfigReplacement],
        image: MetadataImage,
        *,
        validate_only: bool = False,
    ) -> Decision[list[config_changes.ConfigRow]]:
        return config_changes.alter_configs(
            replacements, image, self.settings, validate_only=validate_only
        )

    def incremental_alter_configs(
        self,
        changes: Sequence[config_changes.ConfigChange],
        image: MetadataImage,
        *,
        validate_only: bool = False,
    ) -> Decision[list[config_changes.ConfigRow]]:
        return config_changes.incremental_alter_configs(
            changes, image, self.settings, validate_only=validate_only
        )

    def alter_client_quotas(
        self,
        alterations: Sequence[quota_changes.QuotaAlteration],
        image: MetadataImage,
        *,
        validate_only: bool = False,
    ) -> Decision[list[quota_changes.QuotaRow]]:
        return quota_changes.alter_client_quotas(alterations, image, validate_only=validate_only)

    def alter_user_scram_credentials(
        self,
        deletions: Sequence[scram_changes.ScramDeletion],
        upsertions: Sequence[scram_changes.ScramUpsertion],
        image: MetadataImage,
    ) -> Decision[list[scram_changes.ScramRow]]:
        return scram_changes.alter_user_scram_credentials(deletions, upsertions, image)

    def update_features(
        self,
        updates: Sequence[feature_changes.FeatureUpdate],
        image: MetadataImage,
        *,
        validate_only: bool = False,
    ) -> Decision[ApiError | None]:
        return feature_changes.update_features(
            updates, image, self.settings, validate_only=validate_only
        )

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, image: MetadataImage
    ) -> Decision[producer_ids.ProducerIdBlock]:
        return producer_ids.allocate_producer_ids(broker_id, broker_epoch, image)

    # Brokers

    def register_broker(
        self,
        registration: broker_lifecycle.BrokerRegistration,
        image: MetadataImage,
        next_offset: int,
    ) -> Decision[int]:
        return broker_lifecycle.register_broker(registration, image, next_offset)

    def unfence_broker(
        self, broker_id: int, broker_epoch: int, image: MetadataImage
    ) -> Decision[None]:
        return broker_lifecycle.unfence_broker(broker_id, broker_epoch, image, self.settings)

    def fence_broker(self, broker_id: int, image: MetadataImage) -> Decision[None]:
        return broker_lifecycle.fence_broker(broker_id, image, self.settings)

    def change_log_dirs(
        self,
        broker_id: int,
        broker_epoch: int,
        log_dirs: tuple[bytes, ...],
        image: MetadataImage,
    ) -> Decision[None]:
        return broker_lifecycle.change_log_dirs(broker_id, broker_epoch, log_dirs, image)

    def shut_down_broker(
        self, broker_id: int, broker_epoch: int, image: MetadataImage
    ) -> Decision[None]:
        return broker_lifecycle.shut_down_broker(broker_id, broker_epoch, image, self.settings)

    def unregister_broker(self, broker_id: int, image: MetadataImage) -> Decision[None]:
        return broker_lifecycle.unregister_broker(broker_id, image, self.settings)
