"""Brokers come, serve, are fenced, and go.

A broker registers with a fresh incarnation and gets an epoch, the offset of its registration; it is
fenced until it says that it has caught up. A fenced broker leads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import add_broker, remove_broker
from tidelog.cluster.features import (
    KRAFT_VERSION,
    MV_LOG_DIRECTORIES,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    LevelRange,
)
from tidelog.cluster.metadata.image import BrokerImage, Endpoint, MetadataImage
from tidelog.cluster.metadata.image_records import broker_record
from tidelog.cluster.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

FeatureRanges: TypeAlias = tuple[tuple[str, int, int], ...]


def feature_ranges(supported: Mapping[str, LevelRange]) -> FeatureRanges:
    """Supported features as a broker registers them."""
    return tuple((name, levels.minimum, levels.maximum) for name, levels in supported.items())


class BrokerRegistration(NamedTuple):
    """What a broker says of itself.

    `previous_epoch` is the one it had when it stopped cleanly, -1 after an unclean stop. Then its
    log may have lost what was not synced, so the partitions that it leads get a new leader epoch,
    by which readers notice.
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    features: FeatureRanges = feature_ranges(SUPPORTED_FEATURES)
    previous_epoch: int = -1


class Heartbeat(NamedTuple):
    """What a broker says of itself while it runs; `metadata_offset` is how far its image is."""

    broker_id: int
    epoch: int
    metadata_offset: int
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()


class BrokerState(NamedTuple):
    """What a broker is, for all that the controller knows."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def register_broker(
    registration: BrokerRegistration, image: MetadataImage, next_offset: int
) -> Decision[int]:
    """Registers a broker, fenced; the result is its epoch.

    `next_offset` is the offset at which the first record of this decision will stand. A process
    that has registered already may say something else of itself: its epoch and state stay.
    """
    _check_features(registration, image)
    broker = BrokerImage(
        broker_id=registration.broker_id,
        epoch=next_offset,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        log_dirs=registration.log_dirs if image.metadata_version >= MV_LOG_DIRECTORIES else (),
    )
    known = image.brokers.get(registration.broker_id)
    if known is not None and known.incarnation_id == registration.incarnation_id:
        broker = broker._replace(
            epoch=known.epoch,
            fenced=known.fenced,
            in_controlled_shutdown=known.in_controlled_shutdown,
            cordoned_log_dirs=known.cordoned_log_dirs,
        )
        return Decision([] if broker == known else [broker_record(broker)], known.epoch)
    records: list[Message] = [broker_record(broker)]
    if known is not None and known.epoch != registration.previous_epoch:
        records += _new_leader_epochs(registration.broker_id, image)
    return Decision(records, next_offset)


def _check_features(registration: BrokerRegistration, image: MetadataImage) -> None:
    """Every feature of the cluster has to be one of the broker's, at the finalized level."""
    ranges = {name: LevelRange(lowest, highest) for name, lowest, highest in registration.features}
    for name, level in image.features.items():
        supported = ranges.get(name, NOT_SUPPORTED)
        if name != KRAFT_VERSION and level not in supported:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {supported.minimum} and "
                f"{supported.maximum}, inclusive.",
            )


def _new_leader_epochs(broker_id: int, image: MetadataImage) -> list[Message]:
    return [
        PartitionChangeRecord(
            partition_id=partition.partition, topic_id=topic.topic_id, leader=broker_id
        )
        for topic in image.topics_by_name.values()
        for partition in topic.partitions
        if partition.leader == broker_id
    ]


def heartbeat(
    beat: Heartbeat, image: MetadataImage, settings: ControllerSettings
) -> Decision[BrokerState]:
    """The broker lives: it is fenced and unfenced as it wants, once its image has caught up with
    its registration, and loses what it leads before it shuts down."""
    broker = _registered(beat.broker_id, beat.epoch, image)
    is_caught_up = beat.metadata_offset >= broker.epoch
    is_fenced, is_shutting_down = broker.fenced, broker.in_controlled_shutdown
    online = tuple(each for each in broker.log_dirs if each not in beat.offline_log_dirs)
    records = change_log_dirs(beat.broker_id, beat.epoch, online, image).records
    if beat.wants_shut_down:
        records += shut_down_broker(beat.broker_id, beat.epoch, image, settings).records
        is_shutting_down = True
    elif beat.wants_fence:
        records += fence_broker(beat.broker_id, image, settings).records
        is_fenced = True
    elif is_fenced and is_caught_up:
        records += unfence_broker(beat.broker_id, beat.epoch, image, settings).records
        is_fenced = False
    return Decision(records, BrokerState(is_caught_up, is_fenced, is_shutting_down))


def unfence_broker(
    broker_id: int, broker_epoch: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker serves: partitions that waited for it get a leader."""
    broker = _registered(broker_id, broker_epoch, image)
    if not broker.fenced:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, fenced=-1
    )
    return Decision([change, *add_broker(broker_id, image, settings)], None)


def fence_broker(
    broker_id: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker has not been heard of: others lead what it led."""
    broker = _registered(broker_id, None, image)
    if broker.fenced:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, fenced=1
    )
    return Decision([change, *remove_broker(broker_id, image, settings)], None)


def change_log_dirs(
    broker_id: int, broker_epoch: int, log_dirs: tuple[bytes, ...], image: MetadataImage
) -> Decision[None]:
    """The broker serves from these log directories from now on: one of them has failed."""
    broker = _registered(broker_id, broker_epoch, image)
    if broker.log_dirs == log_dirs:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, log_dirs=list(log_dirs)
    )
    return Decision([change], None)


def shut_down_broker(
    broker_id: int, broker_epoch: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker wants to stop: others take over first, as far as there are others."""
    broker = _registered(broker_id, broker_epoch, image)
    if broker.in_controlled_shutdown:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1
    )
    return Decision([change, *remove_broker(broker_id, image, settings)], None)


def unregister_broker(
    broker_id: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker is gone for good."""
    broker = _registered(broker_id, None, image)
    removal = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return Decision([*remove_broker(broker_id, image, settings), removal], None)


def _registered(broker_id: int, broker_epoch: int | None, image: MetadataImage) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    if broker_epoch is not None and broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"{broker_epoch} is not the epoch of broker {broker_id}"
        )
    return broker
