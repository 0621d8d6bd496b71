"""Broker processes register and get an epoch; brokers that are gone for good are forgotten.

The epoch of an incarnation is the offset of its registration. A broker that comes back may have
lost records, unless it proves with the epoch of its last life that it stopped cleanly: what it led
and was in sync with is cleaned up *before* the registration, which is the last record, so that a
controller that fails in between leaves a broker that has to register again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.leadership import (
    broker_goes,
    broker_lost_records,
    lone_broker_lost_records,
)
from tidelog.cluster.controller.partition_changes import PartitionChanges
from tidelog.cluster.controller.registered_brokers import registered_broker
from tidelog.cluster.directory_ids import is_reserved
from tidelog.cluster.features import (
    METADATA_VERSION,
    MV_LOG_DIRECTORIES,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    LevelRange,
)
from tidelog.cluster.metadata.image import BrokerImage, Endpoint, MetadataImage
from tidelog.cluster.metadata.image_records import broker_record
from tidelog.cluster.metadata.records.brokers import UnregisterBrokerRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import format_uuid

FeatureRanges: TypeAlias = tuple[tuple[str, int, int], ...]


def feature_ranges(supported: Mapping[str, LevelRange]) -> FeatureRanges:
    """Supported features as a broker registers them."""
    return tuple((name, levels.minimum, levels.maximum) for name, levels in supported.items())


class BrokerRegistration(NamedTuple):
    """What a broker says of itself.

    `previous_epoch` is the one it had when it stopped cleanly, -1 after an unclean stop.
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    features: FeatureRanges = feature_ranges(SUPPORTED_FEATURES)
    previous_epoch: int = -1


def register_broker(
    registration: BrokerRegistration,
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats,
    *,
    now_ms: int,
    next_offset: int,
) -> Decision[int]:
    """Registers a broker, fenced; the result is its epoch.

    `next_offset` is the offset at which the first record of this decision will stand. A process
    that has registered already may say something else of itself: its epoch and state stay.
    """
    known = image.brokers.get(registration.broker_id)
    is_same = known is not None and known.incarnation_id == registration.incarnation_id
    if known is not None and not is_same and not heartbeats.may_be_replaced(known, now_ms):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with the broker id {registration.broker_id}. If the "
            "broker was recently restarted this resolves itself when its session expires.",
        )
    _check_directories(registration, image)
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
    if known is not None and is_same:
        broker = broker._replace(
            epoch=known.epoch,
            fenced=known.fenced,
            in_controlled_shutdown=known.in_controlled_shutdown,
            cordoned_log_dirs=known.cordoned_log_dirs,
        )
        return Decision([] if broker == known else [broker_record(broker)], known.epoch)
    changes = PartitionChanges(image, settings)
    _clean_up(registration, known, changes)
    broker = broker._replace(epoch=next_offset + len(changes.records))
    changes.records.append(broker_record(broker))
    return Decision(changes.records, broker.epoch, unclean_elections=changes.unclean_elections)


def _clean_up(
    registration: BrokerRegistration, known: BrokerImage | None, changes: PartitionChanges
) -> None:
    """What the broker's last incarnation leaves behind."""
    broker_id = registration.broker_id
    stopped_cleanly = known is not None and known.epoch == registration.previous_epoch
    image = changes.rules.image
    if image.brokers.keys() == {broker_id}:
        if not stopped_cleanly:
            lone_broker_lost_records(broker_id, changes)
    elif stopped_cleanly:
        broker_goes(broker_id, changes)
    else:
        broker_lost_records(broker_id, changes)


def _check_directories(registration: BrokerRegistration, image: MetadataImage) -> None:
    if image.metadata_version < MV_LOG_DIRECTORIES:
        return
    problem = None
    log_dirs = registration.log_dirs
    if not log_dirs:
        problem = "No directories specified in request"
    elif any(is_reserved(directory) for directory in log_dirs):
        problem = "Reserved directory ID in request"
    elif max(Counter(log_dirs).values()) > 1:
        problem = "Duplicate directory ID in request"
    else:
        for broker in image.brokers.values():
            shared = set(broker.log_dirs) & set(log_dirs)
            if broker.broker_id != registration.broker_id and shared:
                problem = (
                    f"Broker {broker.broker_id} is already registered with directory "
                    f"{format_uuid(min(shared))}"
                )
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def _check_features(registration: BrokerRegistration, image: MetadataImage) -> None:
    """Every feature of the cluster has to be one of the broker's, at the finalized level."""
    ranges = {name: LevelRange(lowest, highest) for name, lowest, highest in registration.features}
    if METADATA_VERSION not in ranges:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"Request features do not contain '{METADATA_VERSION}'",
        )
    levels = {**dict.fromkeys(ranges, 0), **image.features}
    for name, level in levels.items():
        supported = ranges.get(name, NOT_SUPPORTED)
        if level not in supported:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {supported.minimum} and "
                f"{supported.maximum}, inclusive.",
            )


def unregister_broker(
    broker_id: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker is gone for good. As an eligible leader replica it stays where it was: if it ever
    comes back, it has to register, and is then taken to have lost records."""
    broker = registered_broker(broker_id, image)
    changes = PartitionChanges(image, settings)
    broker_goes(broker_id, changes)
    changes.records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(changes.records, None, unclean_elections=changes.unclean_elections)
