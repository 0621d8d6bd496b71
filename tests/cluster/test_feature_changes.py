import pytest

from tests.cluster.cluster_host import ClusterHost, outcome
from tidelog.cluster.feature_changes import FeatureUpdate, UpgradeType
from tidelog.cluster.features import METADATA_VERSIONS, SUPPORTED_FEATURES

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def update(host: ClusterHost, *updates: FeatureUpdate) -> str:
    return outcome(host.decide(host.controller.update_features(updates, host.image)))


def test_a_new_cluster_has_the_levels_of_kafka_4() -> None:
    assert ClusterHost().image.features == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_the_supported_metadata_versions_are_those_that_are_known_by_name() -> None:
    supported = SUPPORTED_FEATURES["metadata.version"]
    assert list(METADATA_VERSIONS) == list(range(supported.minimum, supported.maximum + 1))


def test_levels_go_down_only_when_that_is_said_and_up_again() -> None:
    host = ClusterHost()
    assert update(host, FeatureUpdate("transaction.version", 1)) == (
        "INVALID_UPDATE_VERSION: Invalid update version 1 for feature transaction.version. Can't "
        "downgrade the version of this feature without setting the upgrade type to either safe or "
        "unsafe downgrade."
    )
    assert update(host, FeatureUpdate("transaction.version", 0, SAFE)) == "ok"
    assert "transaction.version" not in host.image.features
    assert update(host, FeatureUpdate("transaction.version", 1, SAFE)) == (
        "INVALID_UPDATE_VERSION: Invalid update version 1 for feature transaction.version. "
        "Can't downgrade to a newer version."
    )
    assert update(host, FeatureUpdate("transaction.version", 2)) == "ok"
    assert host.image.features["transaction.version"] == 2


def test_metadata_is_not_lost_by_a_downgrade() -> None:
    host = ClusterHost()
    assert update(host, FeatureUpdate("metadata.version", 23, SAFE)) == "ok"
    refused = update(host, FeatureUpdate("metadata.version", 22, SAFE))
    assert refused.endswith("because it might delete metadata information.")
    refused = update(host, FeatureUpdate("metadata.version", 22, UNSAFE))
    assert refused.endswith("Unsafe metadata downgrade is not supported in this version.")
    assert host.image.metadata_version == 23
    assert update(host, FeatureUpdate("metadata.version", 25)) == "ok"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (FeatureUpdate("share.version", 1), "does not support the given feature"),
        (FeatureUpdate("metadata.version", 26), "supports the levels 7 to 25"),
        (FeatureUpdate("group.version", -1, SAFE), "cannot be less than 0"),
        (FeatureUpdate("group.version", 1, 0), "does not support the given upgrade type"),
        (FeatureUpdate("kraft.version", 0, SAFE), "is fixed when it is made"),
    ],
)
def test_a_level_that_cannot_be_is_refused(change: FeatureUpdate, reason: str) -> None:
    host = ClusterHost()
    host.image = host.image.with_kraft_version(1)
    answer = update(host, change)
    assert answer.startswith("INVALID_UPDATE_VERSION: ")
    assert reason in answer


def test_all_levels_change_or_none_and_validation_changes_nothing() -> None:
    host = ClusterHost()
    before = host.image
    assert update(
        host, FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("metadata.version", 99)
    ).startswith("INVALID_UPDATE_VERSION")
    assert update(
        host, FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("group.version", 0, SAFE)
    ) == ("INVALID_REQUEST: The feature group.version is named twice.")
    decision = host.controller.update_features(
        [FeatureUpdate("group.version", 0, SAFE)], host.image, validate_only=True
    )
    assert (decision.records, decision.rows) == ([], None)
    assert host.image is before
