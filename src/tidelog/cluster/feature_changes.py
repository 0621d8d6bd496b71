"""Raising and lowering the finalized levels of features."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.decision import Decision
from tidelog.cluster.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    metadata_changed_between,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records.settings import FeatureLevelRecord
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


def update_features(
    updates: Sequence[FeatureUpdate], image: MetadataImage, *, validate_only: bool = False
) -> Decision[ApiError | None]:
    """Changes all the levels or, with the error that is the result, none."""
    records: list[Message] = []
    names = [update.name for update in updates]
    try:
        for update in updates:
            if names.count(update.name) > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The feature {update.name} is named twice."
                )
            records += _update(update, image)
    except ApiError as error:
        return Decision([], error)
    return Decision([] if validate_only else records, None)


def _update(update: FeatureUpdate, image: MetadataImage) -> list[Message]:
    if update.upgrade_type not in tuple(UpgradeType):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    _check_supported(update, image)
    current = image.features.get(update.name, 0)
    upgrades = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and upgrades:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > current and not upgrades:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.level == current:
        return []
    if update.name == KRAFT_VERSION:
        raise _invalid(update, "The version of the quorum is fixed when it is made.")
    if update.name == METADATA_VERSION and update.level < current:
        _check_metadata_downgrade(update, current)
    return [FeatureLevelRecord(name=update.name, feature_level=update.level)]


def _check_supported(update: FeatureUpdate, image: MetadataImage) -> None:
    supported = SUPPORTED_FEATURES.get(update.name)
    if supported is None:
        raise _invalid(update, "The controller does not support the given feature.")
    if update.level not in supported:
        raise _invalid(
            update,
            f"The controller supports the levels {supported.minimum} to {supported.maximum}.",
        )
    for broker in image.brokers.values():
        ranges = {name: (lowest, highest) for name, lowest, highest in broker.features}
        lowest, highest = ranges.get(update.name, (0, 0))
        if not lowest <= update.level <= highest:
            raise _invalid(
                update,
                f"Broker {broker.broker_id} supports the levels {lowest} to {highest}.",
            )


def _check_metadata_downgrade(update: FeatureUpdate, current: int) -> None:
    if not metadata_changed_between(update.level, current):
        return
    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        raise _invalid(update, "Unsafe metadata downgrade is not supported in this version.")
    raise _invalid(
        update,
        "Refusing to perform the requested downgrade because it might delete metadata information.",
    )


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )
