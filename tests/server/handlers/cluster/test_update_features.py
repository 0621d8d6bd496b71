"""UpdateFeatures: levels move within what the software can do."""

import pytest

from tidelog.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(
    wire: WireClient,
    feature: str,
    level: int,
    upgrade_type: int,
    version: int,
    *,
    validate_only: bool = True,
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature=feature,
                max_version_level=level,
                allow_downgrade=version == 0 and upgrade_type == SAFE_DOWNGRADE,
                upgrade_type=upgrade_type,
            )
        ],
        validate_only=validate_only,
    )
    response: UpdateFeaturesResponse = wire.call(request, version)
    # Kafka names the features of a request that succeeds, up to version 1, and none otherwise.
    named = [feature] if version < 2 and not response.error_code else []
    assert [row.feature for row in response.results] == named
    assert bool(response.error_message) is (response.error_code != 0)
    return response


@pytest.mark.parametrize("version", [1, 2])
def test_levels_can_be_tried(wire: WireClient, version: int) -> None:
    assert update(wire, "transaction.version", 2, UPGRADE, version).error_code == 0
    assert update(wire, "transaction.version", 1, SAFE_DOWNGRADE, version).error_code == 0


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level", "reason"),
    [
        ("transaction.version", 99, "Local controller 1 only supports versions 0-2"),
        (
            "transaction.version",
            1,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        ),
        ("no.such.feature", 1, "Local controller 1 does not support this feature."),
        ("share.version", 1, "Local controller 1 does not support this feature."),
    ],
)
def test_wrong_levels_are_refused_in_the_words_of_kafka(
    wire: WireClient, feature: str, level: int, reason: str, version: int
) -> None:
    response = update(wire, feature, level, UPGRADE, version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {feature}. {reason}"
    )
