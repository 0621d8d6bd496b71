"""The settings of brokers, under Kafka's names.

The table is for those who describe and check them (DescribeConfigs, AlterConfigs, the node's
configuration file); the node's own configuration object holds the values. It has every setting of a
Kafka broker, also those that a node does nothing with: then it says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.cluster.settings.broker_settings.connections import CONNECTIONS
from tidelog.cluster.settings.broker_settings.groups import GROUPS
from tidelog.cluster.settings.broker_settings.logs import LOGS
from tidelog.cluster.settings.broker_settings.node import NODE
from tidelog.cluster.settings.broker_settings.remote_storage import REMOTE_STORAGE
from tidelog.cluster.settings.broker_settings.replication import REPLICATION
from tidelog.cluster.settings.broker_settings.sasl import SASL
from tidelog.cluster.settings.broker_settings.security import SECURITY
from tidelog.cluster.settings.broker_settings.share_and_streams_groups import (
    SHARE_AND_STREAMS_GROUPS,
)
from tidelog.cluster.settings.broker_settings.transactions import TRANSACTIONS
from tidelog.cluster.settings.config_schema import (
    ConfigType,
    Schema,
    Setting,
    Verdict,
    parse_list,
)
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS

INT, LONG = ConfigType.INT, ConfigType.LONG

# Synonyms of topic settings whose type or default is not that of the topic setting.
_OTHER_DEFAULTS: dict[str, tuple[ConfigType, str | None]] = {
    "log.flush.interval.ms": (LONG, None),
    "log.retention.hours": (INT, "168"),
    "log.retention.minutes": (INT, None),
    "log.retention.ms": (LONG, None),
    "log.roll.hours": (INT, "168"),
    "log.roll.jitter.hours": (INT, "0"),
    "log.roll.jitter.ms": (LONG, None),
    "log.roll.ms": (LONG, None),
}

# One setting under several names, the one that counts first. The scheduler's interval only stands
# in for the other one.
_NAMES_OF_ONE_SETTING = {
    synonym.name: tuple(each.name for each in setting.synonyms)
    for setting in TOPIC_SETTINGS
    for synonym in setting.synonyms
    if len(setting.synonyms) > 1 and synonym.name != "log.flush.scheduler.interval.ms"
}

LISTENER_PREFIX = "listener.name."
LIMITS_OF_ADDRESSES = ("max.connections.per.ip", "max.connections.per.ip.overrides")

# What a listener may have for itself, besides everything about TLS and SASL.
_LISTENER_SETTINGS = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "num.network.threads",
        "principal.builder.class",
    }
)

# What each SASL mechanism of a listener may have for itself, with its name in front.
_MECHANISM_SETTINGS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

# Kafka lets these be changed for a listener only, by its prefix.
_CHANGED_PER_LISTENER = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.key.password",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# Settings that are not Kafka's own but stand in its files: those of its authorizer, and those that
# Kafka 4.0 has removed.
_NO_AUTHORIZER = "there is no authorizer"
_REMOVED = "Kafka 4.0 has removed it"
_NOT_KAFKAS = {
    "allow.everyone.if.no.acl.found": _NO_AUTHORIZER,
    "super.users": _NO_AUTHORIZER,
    "auto.include.jmx.reporter": _REMOVED,
    "broker.id.generation.enable": _REMOVED,
    "control.plane.listener.name": _REMOVED,
    "controlled.shutdown.max.retries": _REMOVED,
    "controlled.shutdown.retry.backoff.ms": _REMOVED,
    "delegation.token.master.key": _REMOVED,
    "inter.broker.protocol.version": _REMOVED,
    "leader.imbalance.per.broker.percentage": _REMOVED,
    "log.message.downconversion.enable": _REMOVED,
    "log.message.format.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": _REMOVED,
    "password.encoder.secret": _REMOVED,
    "reserved.broker.max.id": _REMOVED,
    "zookeeper.connect": _REMOVED,
    "zookeeper.connection.timeout.ms": _REMOVED,
    "zookeeper.max.in.flight.requests": _REMOVED,
    "zookeeper.metadata.migration.enable": _REMOVED,
    "zookeeper.session.timeout.ms": _REMOVED,
    "zookeeper.set.acl": _REMOVED,
    "offsets.commit.required.acks": _REMOVED,
}
_PLUGIN_PREFIXES = {
    "config.providers.": "there are no config providers",
    "rlmm.config.": "there is no remote storage",
    "rsm.config.": "there is no remote storage",
}


def broker_setting_names(name: str) -> tuple[str, ...]:
    """All the names under which a broker setting may be made, the one that counts first."""
    names = _NAMES_OF_ONE_SETTING.get(name)
    if names is None:
        base = listener_setting_base(name)
        names = (name,) if base is None else (name, base)
    return names


def listener_setting_base(name: str) -> str | None:
    """What `listener.name.<listener>.<setting>` sets for one listener; None: it is no such name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    base = name[len(LISTENER_PREFIX) :].partition(".")[2]
    of_mechanism = (each for each in _MECHANISM_SETTINGS if base.endswith("." + each))
    return next(of_mechanism, base)


def needs_listener_prefix(name: str) -> bool:
    """Whether a setting can be changed for a listener only, not for all of them."""
    return name in _CHANGED_PER_LISTENER


def keeps_everybody_out(broker_config: Mapping[str, str]) -> bool:
    """Whether settings of a broker let no address connect, so that nobody could change them."""
    limit, overrides = (broker_config.get(name, "").strip() for name in LIMITS_OF_ADDRESSES)
    digits = limit.lstrip("+-")
    return digits.isdecimal() and int(digits) == 0 and not parse_list(overrides)


def _outside_the_table(name: str) -> Setting | None:
    base = listener_setting_base(name)
    if base is not None:
        if base.startswith(("ssl.", "sasl.")) or base in _LISTENER_SETTINGS:
            setting = BROKER_SETTINGS.get(base)
            return None if setting is None else setting._replace(name=name, hidden=True)
        return None
    reason = _NOT_KAFKAS.get(name)
    if reason is None:
        prefixes = (prefix for prefix in _PLUGIN_PREFIXES if name.startswith(prefix))
        reason = _PLUGIN_PREFIXES.get(next(prefixes, ""))
    if reason is None:
        return None
    return Setting(
        name,
        ConfigType.UNKNOWN,
        None,
        "No setting of a Kafka 4 broker.",
        hidden=True,
        verdict=Verdict.MEANINGLESS,
        reason=reason,
    )


def _topic_defaults() -> Iterator[Setting]:
    for setting in TOPIC_SETTINGS:
        for position, synonym in enumerate(setting.synonyms):
            kind, default = _OTHER_DEFAULTS.get(synonym.name, (setting.type, setting.default))
            unit = "" if synonym.factor == 1 else f", counted in {synonym.factor} ms"
            yield Setting(
                synonym.name,
                kind,
                default,
                f"The default of the topic setting {setting.name}{unit}. {setting.documentation}",
                setting.validator if synonym.factor == 1 else None,
                dynamic=position == 0,
                verdict=setting.verdict,
                reason=setting.reason,
            )


BROKER_SETTINGS = Schema(
    "broker",
    sorted(
        (
            *_topic_defaults(),
            *NODE,
            *CONNECTIONS,
            *SECURITY,
            *SASL,
            *LOGS,
            *GROUPS,
            *SHARE_AND_STREAMS_GROUPS,
            *TRANSACTIONS,
            *REPLICATION,
            *REMOTE_STORAGE,
        ),
        key=lambda setting: setting.name,
    ),
    _outside_the_table,
)
