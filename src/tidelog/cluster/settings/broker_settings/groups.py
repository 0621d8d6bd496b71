"""Classic and consumer groups, and committed offsets."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    INT,
    LIST,
    LONG,
    ONE_LOOP,
    SHORT,
    STRING,
    constant,
    meaningless,
    used,
)
from tidelog.cluster.settings.config_schema import each_of

_RESOLVED = "expressions are resolved whenever topics change"
_WRITTEN_TOGETHER = "what is decided in one turn of the event loop is written together"
_FIXED_PIECES = "logs are read in pieces of a fixed size"
_UNCOMPRESSED = "records of coordinators are not compressed"

GROUPS = (
    used("group.min.session.timeout.ms", INT, "6000", "The shortest session timeout."),
    used("group.max.session.timeout.ms", INT, "1800000", "The longest session timeout."),
    used(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a new group waits for more members.",
    ),
    used("group.max.size", INT, "2147483647", "The most members of a classic group.", minimum=1),
    used(
        "group.consumer.session.timeout.ms",
        INT,
        "45000",
        "KIP-848: after how long without a heartbeat a member is removed.",
        minimum=1,
    ),
    used(
        "group.consumer.min.session.timeout.ms",
        INT,
        "45000",
        "KIP-848: the shortest session timeout a group may have.",
        minimum=1,
    ),
    used(
        "group.consumer.max.session.timeout.ms",
        INT,
        "60000",
        "KIP-848: the longest session timeout a group may have.",
        minimum=1,
    ),
    used(
        "group.consumer.heartbeat.interval.ms",
        INT,
        "5000",
        "KIP-848: how often members send heartbeats.",
        minimum=1,
    ),
    used(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        "5000",
        "KIP-848: the shortest heartbeat interval a group may have.",
        minimum=1,
    ),
    used(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        "15000",
        "KIP-848: the longest heartbeat interval a group may have.",
        minimum=1,
    ),
    used(
        "group.consumer.max.size",
        INT,
        "2147483647",
        "KIP-848: the most members of a group.",
        minimum=1,
    ),
    used(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        "KIP-848: the assignors of the server, the default one first.",
    ),
    used(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "KIP-848: whether live groups may change their protocol.",
    ),
    used(
        "group.consumer.assignment.interval.ms",
        INT,
        "1000",
        "KIP-848: how long a group keeps its assignment at least before it is computed anew.",
        minimum=0,
        live=True,
    ),
    used(
        "group.consumer.min.assignment.interval.ms",
        INT,
        "0",
        "KIP-848: the shortest assignment interval a group may have.",
        minimum=0,
    ),
    used(
        "group.consumer.max.assignment.interval.ms",
        INT,
        "15000",
        "KIP-848: the longest assignment interval a group may have.",
        minimum=0,
    ),
    meaningless(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        "600000",
        "How often expressions are resolved to topics again.",
        _RESOLVED,
        minimum=10000,
        hidden=True,
    ),
    used(
        "group.coordinator.rebalance.protocols",
        LIST,
        "classic,consumer",
        "The group protocols that are served.",
        validator=each_of("classic", "consumer"),
    ),
    constant(
        "group.coordinator.threads",
        INT,
        "1",
        "Threads of the group coordinator.",
        ONE_LOOP,
        minimum=1,
    ),
    meaningless(
        "group.coordinator.background.threads",
        INT,
        "2",
        "Threads for longer work of the group coordinator.",
        ONE_LOOP,
        minimum=1,
    ),
    meaningless(
        "group.coordinator.append.linger.ms",
        INT,
        "-1",
        "How long the group coordinator waits for more records before it writes.",
        _WRITTEN_TOGETHER,
        minimum=-1,
    ),
    meaningless(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        "1048588",
        "The largest buffer that the group coordinator keeps.",
        _WRITTEN_TOGETHER,
        minimum=524288,
        live=True,
    ),
    used("offset.metadata.max.bytes", INT, "4096", "The longest metadata of a commit."),
    used(
        "offsets.commit.timeout.ms", INT, "5000", "How long a commit may wait to commit.", minimum=1
    ),
    meaningless(
        "offsets.load.buffer.size",
        INT,
        "5242880",
        "How much is read at once on load.",
        _FIXED_PIECES,
        minimum=1,
    ),
    used(
        "offsets.retention.minutes",
        INT,
        "10080",
        "How long committed offsets outlive their group.",
        minimum=1,
    ),
    used(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often that is checked.",
        minimum=1,
    ),
    used("offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets.", minimum=1),
    used(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "Replicas of __consumer_offsets (as many as there are brokers at most).",
        minimum=1,
    ),
    used(
        "offsets.topic.segment.bytes",
        INT,
        "104857600",
        "Segment size of __consumer_offsets.",
        minimum=1,
    ),
    constant(
        "offsets.topic.compression.codec",
        INT,
        "0",
        "How __consumer_offsets is compressed; 0 is not at all.",
        _UNCOMPRESSED,
    ),
)
