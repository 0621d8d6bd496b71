"""Raising and lowering the finalized levels of features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.controller.config_changes import one_min_insync_replicas
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    MV_CONTROLLER_REGISTRATION,
    NOT_SUPPORTED,
    UNSERVED_FEATURES,
    FeatureError,
    LevelRange,
    check_dependencies,
    metadata_changed_between,
)
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def unserved_features_off(image: MetadataImage) -> list[Message]:
    """The records that set to 0 what Kafka has switched on and nobody serves here."""
    return [
        FeatureLevelRecord(name=name, feature_level=0)
        for name in sorted(UNSERVED_FEATURES)
        if image.finalized_level(name)
    ]


def update_features(
    updates: Sequence[FeatureUpdate],
    image: MetadataImage,
    settings: ControllerSettings,
    voter_ids: Collection[int] = (),
    *,
    validate_only: bool = False,
) -> Decision[ApiError | None]:
    """Changes all the levels or, with the error that is the result, none."""
    records: list[Message] = []
    names = [update.name for update in updates]
    proposed = {**image.features, **{update.name: update.level for update in updates}}
    try:
        for update in updates:
            if names.count(update.name) > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The feature {update.name} is named twice."
                )
            records += _update(update, proposed, image, settings, voter_ids)
    except ApiError as error:
        return Decision([], error)
    if proposed.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records = [*one_min_insync_replicas(image, settings), *records]
    return Decision([] if validate_only else records, None)


def _update(
    update: FeatureUpdate,
    proposed: Mapping[str, int],
    image: MetadataImage,
    settings: ControllerSettings,
    voter_ids: Collection[int],
) -> list[Message]:
    if update.upgrade_type not in tuple(UpgradeType):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    _check_supported(update, image, settings, voter_ids)
    current = image.finalized_level(update.name)
    upgrades = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and upgrades:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > current and not upgrades:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.name == METADATA_VERSION:
        _check_metadata_downgrade(update, current)
    elif update.name == KRAFT_VERSION:
        if update.level < current:
            raise _invalid(update, "Can't downgrade the version of this feature.")
        # The quorum's own level is no metadata record: the metadata log raises it.
        return []
    else:
        _check_dependencies(update, proposed)
    if update.level == current:
        return []
    return [FeatureLevelRecord(name=update.name, feature_level=update.level)]


def _check_supported(
    update: FeatureUpdate,
    image: MetadataImage,
    settings: ControllerSettings,
    voter_ids: Collection[int],
) -> None:
    """All brokers have to have the level, and all controllers that vote: one that was taken out of
    the quorum stays registered and counts no more."""
    other_voters = [voter_id for voter_id in voter_ids if voter_id != settings.node_id]
    nodes = {f"Local controller {settings.node_id}": settings.supported_features}
    for broker in image.brokers.values():
        nodes[f"Broker {broker.broker_id}"] = _ranges(broker.features)
    for voter_id in other_voters:
        controller = image.controllers.get(voter_id)
        if controller is not None:
            nodes[f"Controller {voter_id}"] = _ranges(controller.features)
    for node, ranges in nodes.items():
        supported = ranges.get(update.name, NOT_SUPPORTED)
        if update.level in supported:
            continue
        if supported.maximum == 0:
            raise _invalid(update, f"{node} does not support this feature.")
        raise _invalid(update, f"{node} only supports versions {supported}")
    if image.metadata_version >= MV_CONTROLLER_REGISTRATION:
        for voter_id in other_voters:
            if voter_id not in image.controllers:
                raise _invalid(
                    update,
                    f"controller {voter_id} has not registered, and may not support this feature",
                )


def _ranges(features: Sequence[tuple[str, int, int]]) -> dict[str, LevelRange]:
    return {name: LevelRange(lowest, highest) for name, lowest, highest in features}


def _check_metadata_downgrade(update: FeatureUpdate, current: int) -> None:
    if update.level >= current or not metadata_changed_between(update.level, current):
        return
    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    raise ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}",
    )


def _check_dependencies(update: FeatureUpdate, proposed: Mapping[str, int]) -> None:
    if update.name not in FEATURES:
        raise _invalid(update, f"Feature {update.name} not found.")
    try:
        check_dependencies(update.name, update.level, proposed)
    except FeatureError as error:
        raise _invalid(update, str(error)) from None


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )
