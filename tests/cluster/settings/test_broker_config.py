"""The table of broker settings against the facts of Kafka 4.3, and against our own code.

`kafka_4_3_broker_settings.tsv` was printed from Kafka's own definitions by a small program: the
name, type and default of each setting, whether it can be altered while the broker runs, and whether
DescribeConfigs shows it without being asked.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.cluster.settings.broker_config import BROKER_SETTINGS, broker_setting_names
from tidelog.cluster.settings.config_schema import ConfigType, Verdict
from tidelog.cluster.settings.topic_config import NOT_KAFKAS, TOPIC_SETTINGS
from tidelog.protocol.errors import ApiError
from tidelog.server.configuration.node_config import _DECLARED, SETTINGS
from tidelog.storage.log_config import LogConfig

SOURCE = Path(__file__).parents[3] / "src" / "tidelog"

# Where the truth here is another one than Kafka's default.
OTHER_DEFAULTS = {
    "group.coordinator.rebalance.protocols",
    "group.coordinator.threads",
    "listeners",
    "metadata.log.max.record.bytes.between.snapshots",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "process.roles",
    "queued.max.request.bytes",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}

# What Kafka can change while it runs and this node cannot, beside what it cannot change at all.
NEEDS_RESTART = {
    "listener.security.protocol.map",
    "listeners",
}


class Fact(NamedTuple):
    name: str
    type: str
    default: str | None
    update_mode: str
    visibility: str


def kafka_facts() -> list[Fact]:
    text = (Path(__file__).parent / "kafka_4_3_broker_settings.tsv").read_text()
    words = {"(none)": None, "(required)": None, "(empty)": ""}
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return [Fact(row[0], row[1], words.get(row[2], row[2]), row[3], row[4]) for row in rows]


FACTS = kafka_facts()


def test_every_setting_of_kafka_is_there_and_no_other() -> None:
    assert BROKER_SETTINGS.names - NOT_KAFKAS == {fact.name for fact in FACTS}
    described = [fact for fact in FACTS if fact.visibility == "described"]
    assert len(described) == 340


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_a_setting_has_kafkas_type_default_and_update_mode(fact: Fact) -> None:
    setting = BROKER_SETTINGS[fact.name]
    assert setting.type is ConfigType[fact.type]
    assert setting.hidden is (fact.visibility == "hidden")
    if fact.name in OTHER_DEFAULTS:
        assert setting.default != fact.default
    else:
        assert setting.default == fact.default
    if setting.verdict in (Verdict.CONSTANT, Verdict.REFUSED) or fact.name in NEEDS_RESTART:
        assert not setting.dynamic
    else:
        assert setting.dynamic is (fact.update_mode != "read-only")
        assert setting.per_broker is (fact.update_mode == "per-broker")


def test_what_is_not_used_says_why() -> None:
    for setting in SETTINGS:
        assert bool(setting.reason) is (setting.verdict is not Verdict.USED), setting.name
        assert setting.reason in setting.description
        assert setting.documentation.endswith("."), setting.name


def sources() -> dict[str, str]:
    """The code that could read a setting: not the tables that only name it."""
    tables = {
        SOURCE / "server" / "configuration" / "node_config.py",
        SOURCE / "cluster" / "settings" / "broker_config.py",
        SOURCE / "cluster" / "settings" / "topic_config.py",
        SOURCE / "cluster" / "settings" / "group_config.py",
        *(SOURCE / "cluster" / "settings" / "broker_settings").iterdir(),
    }
    found = {
        str(path.relative_to(SOURCE)): path.read_text()
        for folder in ("server", "cluster", "storage", "coordinator", "security", "cli")
        for path in (SOURCE / folder).rglob("*.py")
        if path not in tables
    }
    own = "storage/log_config.py"
    return {**found, own: found[own].replace("self.", "config.")}


def is_read(name: str, code: str) -> bool:
    """Whether code reads a setting: as an attribute of a configuration, or by its name."""
    attribute = name.replace(".", "_")
    return bool(re.search(rf"config\.{attribute}\b", code)) or f'"{name}"' in code


def test_every_setting_that_counts_as_used_is_read_somewhere() -> None:
    code = "\n".join(sources().values())
    in_topics = {
        synonym.name: setting.name for setting in TOPIC_SETTINGS for synonym in setting.synonyms
    }
    # These become part of a parsed value, or of another setting, before anything reads them.
    own_configuration = (SOURCE / "server" / "configuration" / "node_config.py").read_text()
    quorum = (
        "election.timeout.ms",
        "fetch.timeout.ms",
        "election.backoff.max.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "fetch.max.bytes",
        "fetch.snapshot.max.bytes",
    )
    indirect = {
        **{
            f"controller.quorum.{name}": f"self.controller_quorum_{name.replace('.', '_')}"
            for name in quorum
        },
        "process.roles": "self.process_roles",
        "broker.id": '"broker.id": "node.id"',
        "log.dir": '"log.dir": "log.dirs"',
        "unstable.feature.versions.enable": "self.unstable_feature_versions_enable",
    }
    unread = []
    for setting in SETTINGS:
        if setting.verdict is not Verdict.USED:
            continue
        if setting.name in indirect:
            assert indirect[setting.name] in own_configuration
        elif not is_read(in_topics.get(setting.name, setting.name), code):
            unread.append(setting.name)
    assert not unread


def test_the_walk_over_the_code_can_fail() -> None:
    assert not is_read("num.partitons", "node.config.num_partitions")
    assert is_read("num.partitions", "node.config.num_partitions")


def test_a_node_declares_only_settings_that_are_used() -> None:
    for declared in _DECLARED:
        assert SETTINGS[declared.name].verdict is Verdict.USED, declared.name


def test_every_setting_of_a_log_is_one_of_a_topic_and_read() -> None:
    topic = {setting.name.replace(".", "_") for setting in TOPIC_SETTINGS}
    names = {field.name for field in fields(LogConfig)}
    assert names - topic == {"producer_id_expiration_ms"}
    code = "\n".join(sources().values())
    assert [name for name in names if not re.search(rf"config\.{name}\b", code)] == []


@pytest.mark.parametrize(
    ("name", "names"),
    [
        (
            "log.retention.minutes",
            ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ),
        ("log.roll.ms", ("log.roll.ms", "log.roll.hours")),
        ("log.flush.interval.ms", ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
        ("log.flush.scheduler.interval.ms", ("log.flush.scheduler.interval.ms",)),
        ("num.partitions", ("num.partitions",)),
        (
            "listener.name.outside.max.connections",
            ("listener.name.outside.max.connections", "max.connections"),
        ),
        (
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
            ("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ),
    ],
)
def test_a_setting_may_have_several_names(name: str, names: tuple[str, ...]) -> None:
    assert broker_setting_names(name) == names


@pytest.mark.parametrize(
    ("name", "kind", "verdict"),
    [
        ("listener.name.a.ssl.keystore.password", ConfigType.PASSWORD, Verdict.MEANINGLESS),
        ("listener.name.a.plain.sasl.jaas.config", ConfigType.PASSWORD, Verdict.MEANINGLESS),
        ("listener.name.a.max.connections", ConfigType.INT, Verdict.USED),
        ("listener.name.a.principal.builder.class", ConfigType.CLASS, Verdict.REFUSED),
        ("super.users", ConfigType.UNKNOWN, Verdict.MEANINGLESS),
        ("inter.broker.protocol.version", ConfigType.UNKNOWN, Verdict.MEANINGLESS),
        ("rsm.config.bucket", ConfigType.UNKNOWN, Verdict.MEANINGLESS),
    ],
)
def test_names_that_cannot_be_listed_are_known_too(
    name: str, kind: ConfigType, verdict: Verdict
) -> None:
    setting = BROKER_SETTINGS[name]
    assert (setting.name, setting.type, setting.verdict) == (name, kind, verdict)
    assert setting.hidden
    assert name not in BROKER_SETTINGS.names


@pytest.mark.parametrize(
    "name",
    ["listener.name.a.num.partitions", "listener.name.a.ssl.keystor", "listener.name.a", "nothing"],
)
def test_other_names_are_not(name: str) -> None:
    assert name not in BROKER_SETTINGS
    with pytest.raises(ApiError, match="Unknown broker config name"):
        BROKER_SETTINGS[name]
