"""A metadata image as records: the content of a snapshot.

Replaying the records on an empty image gives the same image. Features come first, because the
metadata.version says how the rest is to be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.cluster.features import KRAFT_VERSION, METADATA_VERSION
from tidelog.cluster.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
)
from tidelog.cluster.metadata.records.brokers import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from tidelog.cluster.metadata.records.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from tidelog.cluster.metadata.records.settings import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from tidelog.cluster.metadata.records.topics import PartitionRecord, TopicRecord
from tidelog.protocol.schema import Message


def image_records(image: MetadataImage) -> Iterator[Message]:
    """The records that make this image from nothing."""
    yield from _features(image)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics_by_name.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield partition_record(topic.topic_id, partition)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    yield from _quotas(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from _security(image)


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    """The record that holds a partition's whole state."""
    return PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _features(image: MetadataImage) -> Iterator[Message]:
    if METADATA_VERSION in image.features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.metadata_version)
    for name, level in image.features.items():
        if name not in (METADATA_VERSION, KRAFT_VERSION):
            yield FeatureLevelRecord(name=name, feature_level=level)


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """The record that holds a broker's whole state."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_end_points(broker.endpoints),
        features=_feature_ranges(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=(
            None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs)
        ),
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """The record that holds a controller's whole state."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=_end_points(controller.endpoints),
        features=_feature_ranges(controller.features),
    )


def _end_points(endpoints: tuple[Endpoint, ...]) -> list[BrokerEndpoint]:
    return [
        BrokerEndpoint(
            name=endpoint.name,
            host=endpoint.host,
            port=endpoint.port,
            security_protocol=endpoint.security_protocol,
        )
        for endpoint in endpoints
    ]


def _feature_ranges(features: tuple[tuple[str, int, int], ...]) -> list[BrokerFeature]:
    return [
        BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, lowest, highest in features
    ]


def _quotas(image: MetadataImage) -> Iterator[Message]:
    for entity, values in image.client_quotas.items():
        for key, value in values.items():
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
            )


def _security(image: MetadataImage) -> Iterator[Message]:
    for (user, mechanism), credential in image.scram.items():
        yield UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
    for token_id, token in image.delegation_tokens.items():
        yield DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            expiration_timestamp=token.expiration_timestamp_ms,
            token_id=token_id,
        )
