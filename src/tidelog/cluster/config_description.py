"""What DescribeConfigs says: every setting with its value, where the value comes from, and what
else would have stood there.

Values of a broker are layered: what was set for this broker in the metadata, for all brokers, in
the node's own configuration, and the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.broker_config import BROKER_SETTINGS
from tidelog.cluster.client_metrics_config import CLIENT_METRICS_SETTINGS
from tidelog.cluster.config_schema import ConfigType, Schema, Setting
from tidelog.cluster.group_config import GROUP_SETTINGS
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.topic_config import TOPIC_SETTINGS


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting; a sensitive one hides its value."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str
    read_only: bool
    sensitive: bool
    synonyms: Sequence[ConfigSynonym] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class BrokerConfigLayers(NamedTuple):
    """A broker's settings, layer by layer, by Kafka's broker names."""

    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]

    @classmethod
    def of(
        cls, image: MetadataImage, broker_id: int, static: Mapping[str, str]
    ) -> BrokerConfigLayers:
        return cls(image.broker_configs(broker_id), image.cluster_configs(), static)

    def synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """All the values that a broker setting has, the one that holds first."""
        for values, source in (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if name in values:
                yield ConfigSynonym(name, values[name], source)
        setting = BROKER_SETTINGS.get(name)
        if setting is not None and setting.default is not None:
            yield ConfigSynonym(name, setting.default, ConfigSource.DEFAULT_CONFIG)


def describe_topic_config(
    overrides: Mapping[str, str], broker: BrokerConfigLayers
) -> list[ConfigEntry]:
    """Every setting of a topic that has `overrides` of its own."""
    return _describe(TOPIC_SETTINGS, overrides, ConfigSource.TOPIC_CONFIG, broker)


def describe_group_config(
    overrides: Mapping[str, str], broker: BrokerConfigLayers
) -> list[ConfigEntry]:
    """Every setting of a group."""
    return _describe(GROUP_SETTINGS, overrides, ConfigSource.GROUP_CONFIG, broker)


def describe_client_metrics_config(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a client metrics subscription."""
    nothing = BrokerConfigLayers({}, {}, {})
    return _describe(
        CLIENT_METRICS_SETTINGS, overrides, ConfigSource.CLIENT_METRICS_CONFIG, nothing
    )


def describe_broker_config(broker: BrokerConfigLayers) -> list[ConfigEntry]:
    """Every setting of a broker."""
    return [
        _entry(setting, list(broker.synonyms(setting.name)), read_only=not setting.dynamic)
        for setting in BROKER_SETTINGS
    ]


def describe_cluster_config(image: MetadataImage) -> list[ConfigEntry]:
    """The settings that were made for all brokers: there are no others to tell of."""
    return [
        _entry(
            BROKER_SETTINGS[name],
            [ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)],
            read_only=False,
        )
        for name, value in sorted(image.cluster_configs().items())
        if name in BROKER_SETTINGS
    ]


def _describe(
    schema: Schema,
    overrides: Mapping[str, str],
    source: ConfigSource,
    broker: BrokerConfigLayers,
) -> list[ConfigEntry]:
    return [
        _entry(setting, _synonyms(setting, overrides, source, broker), read_only=False)
        for setting in schema
    ]


def _synonyms(
    setting: Setting,
    overrides: Mapping[str, str],
    source: ConfigSource,
    broker: BrokerConfigLayers,
) -> list[ConfigSynonym]:
    found = []
    if setting.name in overrides:
        found.append(ConfigSynonym(setting.name, overrides[setting.name], source))
    for synonym in setting.synonyms:
        found += broker.synonyms(synonym.name)
    # A default comes after everything that somebody has set, under whichever of the names.
    found.sort(key=lambda each: each.source is ConfigSource.DEFAULT_CONFIG)
    return found


def _entry(setting: Setting, synonyms: list[ConfigSynonym], *, read_only: bool) -> ConfigEntry:
    value, source = setting.default, ConfigSource.DEFAULT_CONFIG
    if synonyms and synonyms[0].source is not ConfigSource.DEFAULT_CONFIG:
        first = synonyms[0]
        value, source = first.value, first.source
        factor = next((each.factor for each in setting.synonyms if each.name == first.name), 1)
        if factor != 1 and value is not None:
            value = str(int(value) * factor)
    if setting.sensitive:
        value = None
        synonyms = [each._replace(value=None) for each in synonyms]
    return ConfigEntry(
        name=setting.name,
        value=value,
        source=source,
        type=setting.type,
        documentation=setting.documentation,
        read_only=read_only,
        sensitive=setting.sensitive,
        synonyms=synonyms,
    )
