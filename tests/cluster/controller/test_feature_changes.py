from dataclasses import replace

import pytest

from tests.cluster.cluster_host import WITHOUT_ELIGIBLE_REPLICAS, ClusterHost, outcome
from tidelog.cluster.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    incremental_alter_configs,
)
from tidelog.cluster.controller.controller_registrations import register_controller
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.feature_changes import FeatureUpdate, UpgradeType, update_features
from tidelog.cluster.features import (
    METADATA_VERSIONS,
    FeatureError,
    initial_levels,
    parse_metadata_version,
    supported_features,
)
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType, ControllerImage
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.protocol.errors import ApiError

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def update(host: ClusterHost, *updates: FeatureUpdate) -> str:
    return outcome(host.decide(update_features(updates, host.image, host.settings)))


def test_a_new_cluster_has_the_levels_of_kafka_4_3() -> None:
    assert ClusterHost().image.features == {
        "eligible.leader.replicas.version": 1,
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_the_supported_metadata_versions_are_those_that_are_known_by_name() -> None:
    stable, unstable = (
        supported_features(unstable=each)["metadata.version"] for each in (False, True)
    )
    assert list(METADATA_VERSIONS) == list(range(unstable.minimum, unstable.maximum + 1))
    assert METADATA_VERSIONS[stable.maximum][0] == "4.3-IV0"
    assert METADATA_VERSIONS[unstable.maximum][0] == "4.4-IV0"


def test_a_broker_registers_every_feature_with_what_it_supports_of_it() -> None:
    registered = ClusterHost().image.brokers[1].features
    assert {name: (lowest, highest) for name, lowest, highest in registered} == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 0),
        "streams.version": (0, 0),
        "transaction.version": (0, 2),
    }


@pytest.mark.parametrize(
    ("text", "level"),
    [("4.1-IV1", 27), ("4.1", 27), ("4.1.2", 27), ("3.3-IV3", 7), ("30", 30), (" 7 ", 7)],
)
def test_a_metadata_version_has_a_name_a_release_and_a_number(text: str, level: int) -> None:
    assert parse_metadata_version(text) == level


@pytest.mark.parametrize("text", ["4.4-IV0", "4.4", "31"])
def test_an_unstable_metadata_version_is_known_where_it_is_enabled(text: str) -> None:
    assert parse_metadata_version(text, supported_features(unstable=True)) == 31


@pytest.mark.parametrize("text", ["4.4-IV0", "3.3-IV0", "31", "6", "", "latest", "4"])
def test_an_unknown_metadata_version_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(FeatureError) as caught:
        parse_metadata_version(text)
    message = str(caught.value)
    assert message.startswith(
        f"Unknown metadata.version '{text}'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "
    )
    assert message.endswith(", 4.2-IV1, 4.3-IV0")


@pytest.mark.parametrize(
    ("metadata_version", "group", "transaction"),
    [(7, 0, 0), (21, 0, 0), (22, 1, 0), (23, 1, 0), (24, 1, 2), (30, 1, 2)],
)
def test_an_older_metadata_version_starts_with_the_features_of_its_time(
    metadata_version: int, group: int, transaction: int
) -> None:
    levels = initial_levels(metadata_version)
    assert next(iter(levels.items())) == ("metadata.version", metadata_version)
    assert (levels.get("group.version", 0), levels.get("transaction.version", 0)) == (
        group,
        transaction,
    )


def test_levels_of_a_new_cluster_can_be_chosen_one_by_one() -> None:
    levels = initial_levels(30, {"group.version": 0, "transaction.version": 1})
    assert levels == {
        "metadata.version": 30,
        "transaction.version": 1,
        "eligible.leader.replicas.version": 1,
    }
    with pytest.raises(FeatureError, match=r"feature: no\.such\. Supported features are"):
        initial_levels(30, {"no.such": 1})
    with pytest.raises(
        FeatureError, match=r"group\.version with feature level 2; supported is 0-1"
    ):
        initial_levels(30, {"group.version": 2})


def test_levels_go_down_only_when_that_is_said_and_up_again() -> None:
    host = ClusterHost()
    assert update(host, FeatureUpdate("transaction.version", 1)) == (
        "INVALID_UPDATE_VERSION: Invalid update version 1 for feature transaction.version. Can't "
        "downgrade the version of this feature without setting the upgrade type to either safe or "
        "unsafe downgrade."
    )
    assert update(host, FeatureUpdate("transaction.version", 0, SAFE)) == "ok"
    assert "transaction.version" not in host.image.features
    assert host.image.finalized_level("transaction.version") == 0
    assert update(host, FeatureUpdate("transaction.version", 1, SAFE)) == (
        "INVALID_UPDATE_VERSION: Invalid update version 1 for feature transaction.version. "
        "Can't downgrade to a newer version."
    )
    assert update(host, FeatureUpdate("transaction.version", 2)) == "ok"
    assert host.image.finalized_level("transaction.version") == 2


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_either_kind_of_downgrade_lowers_a_feature(kind: UpgradeType) -> None:
    host = ClusterHost()
    assert update(host, FeatureUpdate("group.version", 0, kind)) == "ok"
    assert host.image.finalized_level("group.version") == 0
    assert update(host, FeatureUpdate("group.version", 0, kind)) == "ok"


def test_metadata_is_not_lost_by_a_downgrade() -> None:
    host = ClusterHost()
    refused = "INVALID_UPDATE_VERSION: Unsupported metadata.version downgrade from 30 to 29. "
    assert update(host, FeatureUpdate("metadata.version", 29, SAFE)) == (
        f"{refused}Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
    assert update(host, FeatureUpdate("metadata.version", 29, UNSAFE)) == (
        f"{refused}Unsafe metadata downgrade is not supported in this version."
    )
    assert host.image.metadata_version == 30

    older = ClusterHost(metadata_version=29)
    assert update(older, FeatureUpdate("metadata.version", 23, SAFE)) == "ok"
    assert update(older, FeatureUpdate("metadata.version", 22, SAFE)).startswith("INVALID_UPDATE")
    assert older.image.metadata_version == 23
    assert update(older, FeatureUpdate("metadata.version", 30)) == "ok"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (FeatureUpdate("share.version", 1), "Local controller 1 does not support this feature."),
        (FeatureUpdate("no.such", 1), "Local controller 1 does not support this feature."),
        (FeatureUpdate("no.such", 0, SAFE), "Feature no.such not found."),
        (FeatureUpdate("metadata.version", 31), "Local controller 1 only supports versions 7-30"),
        (FeatureUpdate("metadata.version", 6), "Local controller 1 only supports versions 7-30"),
        (FeatureUpdate("group.version", -1, SAFE), "A feature version cannot be less than 0."),
        (
            FeatureUpdate("group.version", 1, 0),
            "The controller does not support the given upgrade type.",
        ),
        (FeatureUpdate("kraft.version", 0, SAFE), "Can't downgrade the version of this feature."),
    ],
)
def test_a_level_that_cannot_be_is_refused(change: FeatureUpdate, reason: str) -> None:
    host = ClusterHost()
    host.image = host.image.with_kraft_version(1)
    assert update(host, change) == (
        f"INVALID_UPDATE_VERSION: Invalid update version {change.level} for feature {change.name}."
        f" {reason}"
    )


def test_a_feature_that_is_not_there_can_be_set_to_0() -> None:
    """As the tools do that take a release and set everything to its levels."""
    host = ClusterHost()
    names = ("share.version", "streams.version", "eligible.leader.replicas.version")
    assert update(host, *(FeatureUpdate(name, 0, SAFE) for name in names)) == "ok"


def test_a_broker_that_lacks_a_level_holds_it_back() -> None:
    host = ClusterHost()
    broker = host.image.brokers[1]._replace(features=(("metadata.version", 7, 30),))
    host.image = replace(host.image, brokers={1: broker}, features={"metadata.version": 30})
    assert update(host, FeatureUpdate("group.version", 1)).endswith(
        "Broker 1 does not support this feature."
    )


def test_a_feature_waits_for_those_it_depends_on() -> None:
    name = "eligible.leader.replicas.version"
    host = ClusterHost(metadata_version=22)
    assert update(host, FeatureUpdate(name, 1)) == (
        f"INVALID_UPDATE_VERSION: Invalid update version 1 for feature {name}. {name} could not "
        "be set to 1 because it depends on metadata.version level 23"
    )
    # Both in one request: what counts is what the levels will be.
    assert update(host, FeatureUpdate(name, 1), FeatureUpdate("metadata.version", 23)) == "ok"
    assert host.image.finalized_level(name) == 1


def test_all_levels_change_or_none_and_validation_changes_nothing() -> None:
    host = ClusterHost()
    before = host.image
    assert update(
        host, FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("metadata.version", 99)
    ).startswith("INVALID_UPDATE_VERSION")
    assert update(
        host, FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("group.version", 0, SAFE)
    ) == ("INVALID_REQUEST: The feature group.version is named twice.")
    decision = update_features(
        [FeatureUpdate("group.version", 0, SAFE)], host.image, host.settings, validate_only=True
    )
    assert (decision.records, decision.rows) == ([], None)
    assert host.image is before


def test_a_controller_that_lacks_a_level_holds_it_back() -> None:
    host = ClusterHost(features={"group.version": 0})
    change = FeatureUpdate("group.version", 1)

    def update_with_voters(*voter_ids: int) -> str:
        decision = update_features([change], host.image, host.settings, voter_ids)
        return outcome(host.decide(decision))

    assert update_with_voters(1, 2).endswith(
        "controller 2 has not registered, and may not support this feature"
    )
    old = ControllerImage(2, b"2" * 16, (), (("metadata.version", 7, 30),))
    host.decide(register_controller(old, host.image))
    assert update_with_voters(1, 2).endswith("Controller 2 does not support this feature.")
    third = ControllerImage(3, b"3" * 16, (), old.features)
    host.decide(register_controller(third, host.image))
    new = old._replace(features=(("group.version", 0, 1), ("metadata.version", 7, 30)))
    host.decide(register_controller(new, host.image))
    assert not register_controller(new, host.image).records
    # The third has none of it and does not vote.
    assert update_with_voters(1, 2) == "ok"


def test_controllers_register_from_3_7_on() -> None:
    controller = ControllerImage(2, b"2" * 16, ())
    host = ClusterHost(metadata_version=14)
    with pytest.raises(ApiError, match="too old to support controller registrations"):
        register_controller(controller, host.image)


def test_eligible_leader_replicas_need_one_min_insync_replicas_for_all_brokers() -> None:
    settings = ControllerSettings(1, broker_config={"min.insync.replicas": "3"})
    host = ClusterHost(settings=settings, features=WITHOUT_ELIGIBLE_REPLICAS)
    of_one = ConfigRecord(
        resource_type=ConfigResourceType.BROKER,
        resource_name="1",
        name="min.insync.replicas",
        value="2",
    )
    host.submit([of_one])
    assert update(host, FeatureUpdate("eligible.leader.replicas.version", 1)) == "ok"
    assert host.image.cluster_configs() == {"min.insync.replicas": "3"}
    assert host.image.broker_configs(1) == {}


@pytest.mark.parametrize(
    ("resource", "cleared"),
    [
        (ConfigResource(ConfigResourceType.TOPIC, "orders"), ["orders"]),
        (ConfigResource(ConfigResourceType.BROKER, ""), ["orders", "payments"]),
    ],
)
def test_who_is_eligible_is_forgotten_when_min_insync_replicas_change(
    resource: ConfigResource, cleared: list[str]
) -> None:
    host = ClusterHost([1, 2])
    for name in ("orders", "payments"):
        host.create(name, assignments={0: [1, 2]}, configs={"min.insync.replicas": "2"})
    host.fence(2)
    before = {name: host.partition(name) for name in ("orders", "payments")}
    assert {each.eligible_leader_replicas for each in before.values()} == {(2,)}
    change = ConfigChange(resource, [ConfigOperation("min.insync.replicas", 0, "1")])
    host.decide(incremental_alter_configs([change], host.image, host.settings))
    for name, partition in before.items():
        now = host.partition(name)
        assert now.eligible_leader_replicas == (() if name in cleared else (2,))
        assert now.partition_epoch == partition.partition_epoch + (name in cleared)
