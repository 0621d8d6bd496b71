"""From one metadata image to the next: the meaning of every metadata record.

Each mapping of the old image is copied when the first record touches it, so that any number of
records costs one copy; partitions of a topic that is touched are collected in a dict and become a
tuple again at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidelog.cluster.features import KRAFT_VERSION, METADATA_VERSION
from tidelog.cluster.metadata.image import (
    AclEntry,
    BrokerImage,
    ConfigResource,
    ConfigResourceType,
    ControllerImage,
    DelegationToken,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    ScramCredential,
    TopicImage,
)
from tidelog.cluster.metadata.records import brokers, log_control, security, settings, topics
from tidelog.errors import TidelogError
from tidelog.protocol.schema import Message
from tidelog.protocol.uuids import format_uuid

Key = TypeVar("Key")
Value = TypeVar("Value")


class MetadataReplayError(TidelogError):
    """A metadata record speaks of something that is not there: the log is not whole."""


def _tuple(values: list[int] | None) -> tuple[int, ...]:
    return tuple(values) if values else ()


class ImageChanges:
    """Collects the effect of records; `finish` makes the new image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._delta = MetadataDelta()
        self._owned: set[int] = set()  # ids of the mappings that are copies of ours
        # By topic id: the partitions of topics that changed, or None for topics that went.
        self._partitions: dict[bytes, dict[int, PartitionImage] | None] = {}
        self._names: dict[bytes, str] = {}  # of the topics in _partitions
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs = image.configs
        self._features = image.features
        self._next_producer_id = image.next_producer_id
        self._client_quotas = image.client_quotas
        self._scram = image.scram
        self._acls = image.acls
        self._delegation_tokens = image.delegation_tokens

    def replay(self, record: Message) -> None:
        """Takes in one record, in the order of the log."""
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise MetadataReplayError(f"{type(record).__name__} is not a metadata record")
        replay(self, record)

    def finish(
        self, offset: int, epoch: int, timestamp_ms: int
    ) -> tuple[MetadataImage, MetadataDelta]:
        by_name, by_id = self._finish_topics()
        image = MetadataImage(
            topics_by_name=by_name,
            topics_by_id=by_id,
            brokers=self._brokers,
            controllers=self._controllers,
            configs=self._configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
            client_quotas=self._client_quotas,
            scram=self._scram,
            acls=self._acls,
            delegation_tokens=self._delegation_tokens,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
        )
        return image, self._delta

    def _finish_topics(self) -> tuple[Mapping[str, TopicImage], Mapping[bytes, TopicImage]]:
        if not self._partitions:
            return self._image.topics_by_name, self._image.topics_by_id
        by_name = dict(self._image.topics_by_name)
        by_id = dict(self._image.topics_by_id)
        # Removals first: a name may have gone and come back, with another id, in the same records.
        for topic_id, partitions in self._partitions.items():
            if partitions is None and topic_id in by_id:
                topic = by_id.pop(topic_id)
                del by_name[topic.name]
                self._delta.deleted_topics.append(topic)
        for topic_id, partitions in self._partitions.items():
            if partitions is None:
                continue
            name = self._names[topic_id]
            if partitions.keys() != set(range(len(partitions))):
                raise MetadataReplayError(
                    f"topic {name} has the partitions {sorted(partitions)}: some are missing"
                )
            topic = TopicImage(
                name, topic_id, tuple(partitions[index] for index in range(len(partitions)))
            )
            before = by_id.get(topic_id)
            if before is None:
                self._delta.created_topics.append(topic)
            else:
                self._delta.changed_topics.append((before, topic))
            by_id[topic_id] = by_name[name] = topic
        return by_name, by_id

    def _own(self, mapping: Mapping[Key, Value]) -> dict[Key, Value]:
        """The mapping itself when it is a copy already, else a copy that may be changed."""
        if isinstance(mapping, dict) and id(mapping) in self._owned:
            return mapping
        copy = dict(mapping)
        self._owned.add(id(copy))
        return copy

    # Topics

    def _partitions_of(self, topic_id: bytes) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is not None:
            return partitions
        topic = None if topic_id in self._partitions else self._image.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataReplayError(f"there is no topic with id {format_uuid(topic_id)}")
        partitions = {partition.partition: partition for partition in topic.partitions}
        self._partitions[topic_id] = partitions
        self._names[topic_id] = topic.name
        return partitions

    def _replay_topic(self, record: topics.TopicRecord) -> None:
        self._partitions[record.topic_id] = {}
        self._names[record.topic_id] = record.name

    def _replay_remove_topic(self, record: topics.RemoveTopicRecord) -> None:
        self._partitions_of(record.topic_id)
        name = self._names[record.topic_id]
        if record.topic_id in self._image.topics_by_id:
            self._partitions[record.topic_id] = None
        else:
            del self._partitions[record.topic_id]
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        if resource in self._configs:
            configs = self._configs = self._own(self._configs)
            del configs[resource]
            self._delta.configs.add(resource)

    def _replay_partition(self, record: topics.PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = PartitionImage(
            partition=record.partition_id,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            directories=tuple(record.directories),
            eligible_leader_replicas=_tuple(record.eligible_leader_replicas),
            last_known_elr=_tuple(record.last_known_elr),
        )

    def _replay_partition_change(self, record: topics.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        before = partitions.get(record.partition_id)
        if before is None:
            raise MetadataReplayError(
                f"topic {self._names[record.topic_id]} has no partition {record.partition_id}"
            )
        partitions[record.partition_id] = merge_partition(before, record)

    def _replay_clear_elr(self, record: topics.ClearElrRecord) -> None:
        names = dict(self._names)
        names |= {topic.topic_id: topic.name for topic in self._image.topics_by_id.values()}
        wanted = [
            topic_id
            for topic_id, name in names.items()
            if record.topic_name in ("", name) and not self._is_removed(topic_id)
        ]
        if record.topic_name and not wanted:
            raise MetadataReplayError(f"there is no topic {record.topic_name}")
        for topic_id in wanted:
            known = self._partitions.get(topic_id)
            now = self._image.topics_by_id[topic_id].partitions if known is None else known.values()
            if not any(each.eligible_leader_replicas or each.last_known_elr for each in now):
                continue
            partitions = self._partitions_of(topic_id)
            for index, partition in partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    partitions[index] = partition._replace(
                        partition_epoch=partition.partition_epoch + 1,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )

    def _is_removed(self, topic_id: bytes) -> bool:
        if topic_id in self._image.topics_by_id:
            return self._partitions.get(topic_id, {}) is None
        return topic_id not in self._partitions

    # Brokers and controllers

    def _replay_register_broker(self, record: brokers.RegisterBrokerRecord) -> None:
        copy = self._brokers = self._own(self._brokers)
        copy[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_feature_ranges(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=(
                None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
            ),
        )
        self._delta.brokers.add(record.broker_id)

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataReplayError(f"there is no broker {broker_id} with epoch {epoch}")
        return broker

    def _change_broker(self, broker: BrokerImage) -> None:
        copy = self._brokers = self._own(self._brokers)
        copy[broker.broker_id] = broker
        self._delta.brokers.add(broker.broker_id)

    def _replay_unregister_broker(self, record: brokers.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        copy = self._brokers = self._own(self._brokers)
        del copy[record.broker_id]
        self._delta.brokers.add(record.broker_id)

    def _replay_fence_broker(self, record: brokers.FenceBrokerRecord) -> None:
        self._change_broker(self._broker(record.id, record.epoch)._replace(fenced=True))

    def _replay_unfence_broker(self, record: brokers.UnfenceBrokerRecord) -> None:
        self._change_broker(self._broker(record.id, record.epoch)._replace(fenced=False))

    def _replay_broker_change(self, record: brokers.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._change_broker(broker)

    def _replay_register_controller(self, record: brokers.RegisterControllerRecord) -> None:
        copy = self._controllers = self._own(self._controllers)
        copy[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_feature_ranges(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )
        self._delta.controllers.add(record.controller_id)

    # Settings

    def _replay_config(self, record: settings.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        values = dict(self._configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        configs = self._configs = self._own(self._configs)
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self._delta.configs.add(resource)

    def _replay_feature_level(self, record: settings.FeatureLevelRecord) -> None:
        if record.name == KRAFT_VERSION:
            return  # older Kafka wrote it by mistake; what counts is a control record (KAFKA-18979)
        copy = self._features = self._own(self._features)
        if record.feature_level or record.name == METADATA_VERSION:
            copy[record.name] = record.feature_level
        else:
            copy.pop(record.name, None)
        self._delta.features.add(record.name)

    def _replay_client_quota(self, record: settings.ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(
            sorted(
                ((part.entity_type, part.entity_name) for part in record.entity),
                key=lambda part: part[0],
            )
        )
        values = dict(self._client_quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        copy = self._client_quotas = self._own(self._client_quotas)
        if values:
            copy[entity] = values
        else:
            copy.pop(entity, None)
        self._delta.quotas.add(entity)

    def _replay_producer_ids(self, record: settings.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    # Security

    def _replay_scram(self, record: security.UserScramCredentialRecord) -> None:
        copy = self._scram = self._own(self._scram)
        key = (record.name, record.mechanism)
        copy[key] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        self._delta.scram.add(key)

    def _replay_remove_scram(self, record: security.RemoveUserScramCredentialRecord) -> None:
        copy = self._scram = self._own(self._scram)
        key = (record.name, record.mechanism)
        copy.pop(key, None)
        self._delta.scram.add(key)

    def _replay_acl(self, record: security.AccessControlEntryRecord) -> None:
        copy = self._acls = self._own(self._acls)
        copy[record.id] = AclEntry(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._delta.acls.add(record.id)

    def _replay_remove_acl(self, record: security.RemoveAccessControlEntryRecord) -> None:
        copy = self._acls = self._own(self._acls)
        copy.pop(record.id, None)
        self._delta.acls.add(record.id)

    def _replay_delegation_token(self, record: security.DelegationTokenRecord) -> None:
        copy = self._delegation_tokens = self._own(self._delegation_tokens)
        copy[record.token_id] = DelegationToken(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def _replay_remove_token(self, record: security.RemoveDelegationTokenRecord) -> None:
        copy = self._delegation_tokens = self._own(self._delegation_tokens)
        copy.pop(record.token_id, None)

    def _replay_nothing(self, record: Message) -> None:
        """Records about the log itself; the metadata log has dealt with transactions."""


def merge_partition(before: PartitionImage, record: topics.PartitionChangeRecord) -> PartitionImage:
    """A partition after a change: what the record leaves out stays."""
    elects = record.leader != topics.NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        partition=before.partition,
        leader=record.leader if elects else before.leader,
        leader_epoch=before.leader_epoch + 1 if elects else before.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
        replicas=_changed(record.replicas, before.replicas),
        isr=_changed(record.isr, before.isr),
        removing_replicas=_changed(record.removing_replicas, before.removing_replicas),
        adding_replicas=_changed(record.adding_replicas, before.adding_replicas),
        leader_recovery_state=(
            before.leader_recovery_state if recovery == topics.NO_RECOVERY_CHANGE else recovery
        ),
        directories=_changed(record.directories, before.directories),
        eligible_leader_replicas=_changed(
            record.eligible_leader_replicas, before.eligible_leader_replicas
        ),
        last_known_elr=_changed(record.last_known_elr, before.last_known_elr),
    )


def _changed(values: list[Value] | None, before: tuple[Value, ...]) -> tuple[Value, ...]:
    return before if values is None else tuple(values)


def _endpoints(end_points: list[brokers.BrokerEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(point.name, point.host, point.port, point.security_protocol)
        for point in end_points
    )


def _feature_ranges(features: list[brokers.BrokerFeature]) -> tuple[tuple[str, int, int], ...]:
    return tuple(
        (feature.name, feature.min_supported_version, feature.max_supported_version)
        for feature in features
    )


_REPLAY: dict[type[Message], Callable[[ImageChanges, Any], None]] = {
    brokers.BrokerRegistrationChangeRecord: ImageChanges._replay_broker_change,
    brokers.FenceBrokerRecord: ImageChanges._replay_fence_broker,
    brokers.RegisterBrokerRecord: ImageChanges._replay_register_broker,
    brokers.RegisterControllerRecord: ImageChanges._replay_register_controller,
    brokers.UnfenceBrokerRecord: ImageChanges._replay_unfence_broker,
    brokers.UnregisterBrokerRecord: ImageChanges._replay_unregister_broker,
    log_control.AbortTransactionRecord: ImageChanges._replay_nothing,
    log_control.BeginTransactionRecord: ImageChanges._replay_nothing,
    log_control.EndTransactionRecord: ImageChanges._replay_nothing,
    log_control.NoOpRecord: ImageChanges._replay_nothing,
    log_control.ZkMigrationStateRecord: ImageChanges._replay_nothing,
    security.AccessControlEntryRecord: ImageChanges._replay_acl,
    security.DelegationTokenRecord: ImageChanges._replay_delegation_token,
    security.RemoveAccessControlEntryRecord: ImageChanges._replay_remove_acl,
    security.RemoveDelegationTokenRecord: ImageChanges._replay_remove_token,
    security.RemoveUserScramCredentialRecord: ImageChanges._replay_remove_scram,
    security.UserScramCredentialRecord: ImageChanges._replay_scram,
    settings.ClientQuotaRecord: ImageChanges._replay_client_quota,
    settings.ConfigRecord: ImageChanges._replay_config,
    settings.FeatureLevelRecord: ImageChanges._replay_feature_level,
    settings.ProducerIdsRecord: ImageChanges._replay_producer_ids,
    topics.ClearElrRecord: ImageChanges._replay_clear_elr,
    topics.PartitionChangeRecord: ImageChanges._replay_partition_change,
    topics.PartitionRecord: ImageChanges._replay_partition,
    topics.RemoveTopicRecord: ImageChanges._replay_remove_topic,
    topics.TopicRecord: ImageChanges._replay_topic,
}
