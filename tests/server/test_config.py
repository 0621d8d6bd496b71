"""The configuration: sources, types, and errors that help."""

from pathlib import Path

import pytest

from tidelog.server.config import SETTINGS, ConfigError, NodeConfig


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        """
        num.partitions = 2
        "log.retention.ms" = 1000
        listeners = ["PLAINTEXT://127.0.0.1:0"]
        rack = "a"
        [auto.create.topics]
        enable = false
        """
    )
    config = NodeConfig.load(
        file=file,
        environment={"TIDELOG_NUM_PARTITIONS": "3", "HOME": "/root", "TIDELOG_NODE_ID": "4"},
        flags=["node.id=5"],
    )
    assert config.num_partitions == 3
    assert config.node_id == 5
    assert config.broker_rack == "a"
    assert config.auto_create_topics_enable is False
    assert config.explicit["log.retention.ms"] == "1000"
    assert config.parsed_listeners[0].port == 0


def test_defaults_hold_without_any_source() -> None:
    config = NodeConfig()
    assert config.num_partitions == 1
    assert config.durability == "fsync"
    assert config.auto_create_topics_enable is True
    assert config.parsed_listeners[0].port == 9092


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.partitons": "3"}, "num.partitons. Did you mean num.partitions?"),
        ({"num.partitions": "many"}, "num.partitions"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"durability": "always"}, "fsync, page-cache"),
        ({"listeners": "PLAINTEXT://here"}, "HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT is there twice"),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER is not one of listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address that clients"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "NAME:NUMBER"),
        ({"log.dirs": ""}, "log.dirs"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], message: str) -> None:
    if "listeners" in settings and "here" in settings["listeners"]:
        settings = {"listeners": "PLAINTEXT://here:port"}
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert message in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        NodeConfig.load(file=tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("= 3")
    with pytest.raises(ConfigError, match=r"broken\.toml: is not TOML"):
        NodeConfig.load(file=broken)


def test_a_flag_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="name=value"):
        NodeConfig.load(flags=["num.partitions"])


def test_every_setting_is_documented_and_has_a_default_of_its_type() -> None:
    for setting in SETTINGS:
        assert setting.documentation, setting.name
        if setting.default is not None:
            setting.parse(setting.default)


def test_dynamic_settings_go_over_static_ones() -> None:
    config = NodeConfig({"num.partitions": "2"})
    changed = config.changed({"log.retention.ms": "5"})
    assert changed.num_partitions == 2
    assert changed.explicit["log.retention.ms"] == "5"
    assert "log.retention.ms" not in config.explicit


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({}, {"metadata.version": 30, "group.version": 1, "transaction.version": 2}),
        ({"initial.metadata.version": "3.9"}, {"metadata.version": 21}),
        ({"initial.metadata.version": "23"}, {"metadata.version": 23, "group.version": 1}),
        (
            {"initial.feature.levels": "group.version=0, transaction.version=1"},
            {"metadata.version": 30, "transaction.version": 1},
        ),
        (
            {"initial.metadata.version": "4.1-IV1", "initial.feature.levels": "kraft.version=1"},
            {"metadata.version": 27, "group.version": 1, "transaction.version": 2},
        ),
    ],
)
def test_the_levels_of_a_new_cluster_can_be_chosen(
    settings: dict[str, str], levels: dict[str, int]
) -> None:
    assert NodeConfig(settings).initial_levels == levels


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"initial.metadata.version": "9.9"},
            "initial.metadata.version: Unknown metadata.version '9.9'. Supported metadata.version "
            "are: 3.3-IV3, 3.4-IV0,",
        ),
        ({"initial.feature.levels": "group.version"}, "group.version is not NAME=LEVEL"),
        ({"initial.feature.levels": "group.version=x"}, "group.version=x is not NAME=LEVEL"),
        ({"initial.feature.levels": "no.such=1"}, "Unsupported feature: no.such"),
        ({"initial.feature.levels": "share.version=1"}, "share.version with feature level 1"),
        ({"initial.feature.levels": "kraft.version=0"}, "kraft.version with feature level 0"),
        (
            {"initial.metadata.version": "3.7-IV1", "log.dirs": "/a,/b"},
            "Multiple log directories (aka JBOD) are not supported in metadata.version 3.7-IV1. "
            "Need 3.7-IV2 or higher.",
        ),
    ],
)
def test_levels_that_no_cluster_can_start_with_are_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig(settings)
    assert message in str(caught.value)
