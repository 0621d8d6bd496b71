"""What DescribeConfigs says: every setting with its value, where the value comes from, and what
else would have stood there.

Values of a broker are layered: what was set for this broker in the metadata, for all brokers, in
the node's own configuration, and the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.settings.broker_config import BROKER_SETTINGS, broker_setting_names
from tidelog.cluster.settings.client_metrics_config import CLIENT_METRICS_SETTINGS
from tidelog.cluster.settings.config_schema import ConfigType, Schema, Setting, Verdict
from tidelog.cluster.settings.group_config import GROUP_SETTINGS
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS


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
    schema: Schema = BROKER_SETTINGS

    @classmethod
    def of(
        cls,
        image: MetadataImage,
        broker_id: int,
        static: Mapping[str, str],
        schema: Schema = BROKER_SETTINGS,
    ) -> BrokerConfigLayers:
        return cls(image.broker_configs(broker_id), image.cluster_configs(), static, schema)

    def synonyms(self, name: str) -> list[ConfigSynonym]:
        """The values that a broker setting has under its name and, after those, under others."""
        return list(dropwhile(lambda each: each.name != name, self.values(name)))

    def values(self, name: str) -> list[ConfigSynonym]:
        """All the values that a broker setting has, the one that holds first."""
        names = broker_setting_names(name)
        found = []
        for values, source in (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if values:
                for each in names:
                    if each in values:
                        found.append(ConfigSynonym(each, values[each], source))
        for each in names:
            if each in self.schema.names:
                default = self.schema[each].default
                if default is not None:
                    found.append(ConfigSynonym(each, default, ConfigSource.DEFAULT_CONFIG))
        return found

    def is_set(self, name: str) -> bool:
        """Whether somebody has made this setting."""
        return name in self.dynamic or name in self.dynamic_default or name in self.static


def describe_topic_config(
    overrides: Mapping[str, str], broker: BrokerConfigLayers
) -> list[ConfigEntry]:
    """Every setting of a topic that has `overrides` of its own."""
    return _describe(TOPIC_SETTINGS, overrides, ConfigSource.TOPIC_CONFIG, broker)


def describe_group_config(
    overrides: Mapping[str, str], broker: BrokerConfigLayers
) -> list[ConfigEntry]:
    """Every setting of a group."""
    entries = _describe(GROUP_SETTINGS, overrides, ConfigSource.GROUP_CONFIG, broker)
    # Those that have no counterpart among the broker's settings have a default of their own.
    return [
        entry
        if GROUP_SETTINGS[entry.name].synonyms
        else entry._replace(synonyms=[*entry.synonyms, _default(GROUP_SETTINGS[entry.name])])
        for entry in entries
    ]


def describe_client_metrics_config(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a client metrics subscription."""
    nothing = BrokerConfigLayers({}, {}, {})
    return _describe(
        CLIENT_METRICS_SETTINGS, overrides, ConfigSource.CLIENT_METRICS_CONFIG, nothing
    )


def describe_broker_config(broker: BrokerConfigLayers) -> list[ConfigEntry]:
    """Every setting of a broker, and whatever else was set for it."""
    listed = [
        _entry(setting, _broker_synonyms(setting, broker), read_only=not setting.dynamic)
        for setting in broker.schema
        if not setting.hidden or broker.is_set(setting.name)
    ]
    made = {*broker.dynamic, *broker.dynamic_default, *broker.static}
    return listed + [
        _entry(_unlisted(name, broker.schema), broker.synonyms(name), read_only=True)
        for name in sorted(made - broker.schema.names)
    ]


def describe_cluster_config(image: MetadataImage) -> list[ConfigEntry]:
    """The settings that were made for all brokers: there are no others to tell of."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _entry(
            _unlisted(name, BROKER_SETTINGS),
            [ConfigSynonym(name, value, source)],
            read_only=name not in BROKER_SETTINGS.names,
        )
        for name, value in sorted(image.cluster_configs().items())
    ]


def _unlisted(name: str, schema: Schema) -> Setting:
    """A setting by a name that anybody may have made up."""
    return schema.get(name) or Setting(name, ConfigType.UNKNOWN, None, "Not known to this node.")


def _broker_synonyms(setting: Setting, broker: BrokerConfigLayers) -> list[ConfigSynonym]:
    if setting.verdict is Verdict.CONSTANT:
        return [_default(setting)]
    return broker.synonyms(setting.name)


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
    if setting.synonyms:
        name = setting.synonyms[0].name
        values = broker.values(name)
        # A default in another unit is no value that somebody has chosen.
        is_chosen = bool(values) and values[0].source is not ConfigSource.DEFAULT_CONFIG
        found += values if is_chosen else dropwhile(lambda each: each.name != name, values)
    return found


def _default(setting: Setting) -> ConfigSynonym:
    return ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)


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
        documentation=setting.description,
        read_only=read_only,
        sensitive=setting.sensitive,
        synonyms=synonyms,
    )
