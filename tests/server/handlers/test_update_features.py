"""UpdateFeatures: levels move within what the software can do."""

import pytest

from tidelog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(wire: WireClient, feature: str, level: int, upgrade_type: int, version: int) -> int:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature=feature,
                max_version_level=level,
                allow_downgrade=version == 0 and upgrade_type == SAFE_DOWNGRADE,
                upgrade_type=upgrade_type,
            )
        ],
        validate_only=True,
    )
    response = wire.call(request, version)
    if version < 2:
        assert [row.feature for row in response.results] == [feature]
    assert bool(response.error_message) is (response.error_code != 0)
    return int(response.error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_levels_can_be_tried(wire: WireClient, version: int) -> None:
    assert update(wire, "transaction.version", 2, UPGRADE, version) == 0
    assert update(wire, "transaction.version", 1, SAFE_DOWNGRADE, version) == 0


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level"),
    [("transaction.version", 99), ("transaction.version", 1), ("no.such.feature", 1)],
)
def test_wrong_levels_are_refused(wire: WireClient, feature: str, level: int, version: int) -> None:
    assert update(wire, feature, level, UPGRADE, version) == ErrorCode.INVALID_UPDATE_VERSION
