"""Brokers are fenced, serve, and stop, as their heartbeats and their silence say.

A registered broker is fenced until its image has its own registration and it wants to serve. One
that wants to stop loses what it leads first; it is told to stop when it leads nothing and every
active broker's image shows that, for until then clients may still be sent to it. A broker that has
not been heard of for the session timeout is fenced, and one whose connection has closed and cannot
be made again at once. A fenced broker leads nothing and is in no in-sync set.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.directory_changes import (
    directories_cordoned,
    directories_failed,
    leave_full_directories,
)
from tidelog.cluster.controller.leadership import broker_comes, broker_goes, leads_anything
from tidelog.cluster.controller.partition_changes import PartitionChanges
from tidelog.cluster.controller.registered_brokers import check_broker_epoch, registered_broker
from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
from tidelog.cluster.metadata.records.brokers import BrokerRegistrationChangeRecord


class Heartbeat(NamedTuple):
    """What a broker says of itself while it runs; `metadata_offset` is how far its image is."""

    broker_id: int
    epoch: int
    metadata_offset: int
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None  # None: it does not know yet
    full_log_dirs: tuple[bytes, ...] = ()


class BrokerState(NamedTuple):
    """What a broker is, for all that the controller knows."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class _Next(Enum):
    """What becomes of a broker after a heartbeat."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def heartbeat(
    beat: Heartbeat,
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats,
    *,
    now_ms: int,
    next_offset: int,
) -> Decision[BrokerState]:
    """The broker lives; it is fenced, serves or stops as it wants and as far as that is safe.

    `next_offset` is the offset at which the first record of this decision will stand.
    """
    broker = check_broker_epoch(beat.broker_id, beat.epoch, image)
    heartbeats.heard_of(broker, beat.metadata_offset, now_ms, beat.full_log_dirs)
    changed = _change_directories(beat, broker, image, settings)
    # What follows is decided without the directories that have failed.
    image = changed.applied_to(image)
    broker = image.brokers[beat.broker_id]
    is_caught_up = beat.metadata_offset >= broker.epoch
    becomes = _next_state(beat, broker, image, heartbeats, is_caught_up=is_caught_up)
    changes = PartitionChanges(image, settings, heartbeats)
    if becomes in (_Next.FENCED, _Next.SHUTDOWN_NOW):
        if not broker.fenced:
            _fence(broker, changes)
    elif becomes is _Next.UNFENCED:
        if broker.fenced:
            _unfence(broker, changes)
        elif beat.full_log_dirs:
            leave_full_directories(broker, changes)
    else:
        _shut_down(broker, changes)
        records = len(changed.records) + len(changes.records)
        heartbeats.begin_shutdown(broker, next_offset + records - 1)
    if becomes is _Next.SHUTDOWN_NOW:
        heartbeats.end_session(broker.broker_id)
    state = BrokerState(
        is_caught_up,
        is_fenced=becomes in (_Next.FENCED, _Next.SHUTDOWN_NOW),
        should_shut_down=becomes is _Next.SHUTDOWN_NOW,
    )
    return Decision(
        changed.records + changes.records,
        state,
        unclean_elections=[*changed.unclean_elections, *changes.unclean_elections],
    )


def _next_state(
    beat: Heartbeat,
    broker: BrokerImage,
    image: MetadataImage,
    heartbeats: BrokerHeartbeats,
    *,
    is_caught_up: bool,
) -> _Next:
    if broker.fenced:
        if beat.wants_shut_down:
            return _Next.SHUTDOWN_NOW
        # One that was fenced on its way down can only go down.
        stays = beat.wants_fence or broker.in_controlled_shutdown or not is_caught_up
        return _Next.FENCED if stays else _Next.UNFENCED
    if broker.in_controlled_shutdown:
        offset = heartbeats.shutdown_offset(broker)
        if (
            offset is not None
            and offset <= heartbeats.lowest_active_offset(image)
            and not leads_anything(broker.broker_id, image)
        ):
            return _Next.SHUTDOWN_NOW
        return _Next.CONTROLLED_SHUTDOWN
    if beat.wants_fence:
        return _Next.SHUTDOWN_NOW if beat.wants_shut_down else _Next.FENCED
    if beat.wants_shut_down:
        leads = leads_anything(broker.broker_id, image)
        return _Next.CONTROLLED_SHUTDOWN if leads else _Next.SHUTDOWN_NOW
    return _Next.UNFENCED


def _change_directories(
    beat: Heartbeat, broker: BrokerImage, image: MetadataImage, settings: ControllerSettings
) -> PartitionChanges:
    changes = PartitionChanges(image, settings)
    if beat.offline_log_dirs:
        directories_failed(broker, beat.offline_log_dirs, changes)
    changes.records += directories_cordoned(broker, beat.cordoned_log_dirs, image)
    return changes


def _fence(broker: BrokerImage, changes: PartitionChanges) -> None:
    broker_goes(broker.broker_id, changes)
    changes.records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=1
        )
    )


def _unfence(broker: BrokerImage, changes: PartitionChanges) -> None:
    changes.records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1
        )
    )
    broker_comes(broker.broker_id, changes)


def _shut_down(broker: BrokerImage, changes: PartitionChanges) -> None:
    if not broker.in_controlled_shutdown:
        changes.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
        )
    broker_goes(broker.broker_id, changes)


def unfence_broker(
    broker_id: int, broker_epoch: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker serves: partitions that waited for it get a leader."""
    broker = check_broker_epoch(broker_id, broker_epoch, image)
    changes = PartitionChanges(image, settings)
    if broker.fenced:
        _unfence(broker, changes)
    return Decision(changes.records, None, unclean_elections=changes.unclean_elections)


def fence_broker(
    broker_id: int, image: MetadataImage, settings: ControllerSettings
) -> Decision[None]:
    """The broker is gone: others lead what it led."""
    broker = registered_broker(broker_id, image)
    changes = PartitionChanges(image, settings)
    if not broker.fenced:
        _fence(broker, changes)
    return Decision(changes.records, None, unclean_elections=changes.unclean_elections)


def fence_expired_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats,
    *,
    now_ms: int,
) -> Decision[int | None]:
    """Fences one broker whose session has expired; the result is its id, None when there is none.

    To be asked again until then: each is decided on an image in which the one before is fenced.
    """
    broker_id = heartbeats.expired(image, now_ms)
    if broker_id is None:
        return Decision([], None)
    heartbeats.end_session(broker_id)
    return fence_broker(broker_id, image, settings).answering(broker_id)


def fence_unreachable_broker(
    broker_id: int,
    broker_epoch: int,
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats,
) -> Decision[None]:
    """The connection of this incarnation has closed and cannot be made again: its session need not
    be waited for. Another incarnation that has registered since is left alone."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return Decision([], None)
    heartbeats.end_session(broker_id)
    return fence_broker(broker_id, image, settings)
