"""Listeners, connections, requests and client quotas."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    INT,
    LIST,
    LONG,
    NO_SHARE_GROUPS,
    ONE_LOOP,
    STRING,
    constant,
    meaningless,
    refused,
    used,
)
from tidelog.cluster.settings.config_schema import numbers_by_name

_ALL_TOGETHER = "all listeners start together"
_ONLY_PLAINTEXT = (
    "connections are not encrypted or authenticated, and nothing must look as if they were"
)
_BY_SIZE = "queued.max.request.bytes bounds what waits, by size"
_OWN_DEADLINES = "requests between nodes have deadlines of their own"
_LEAVE_AT_ONCE = "finished requests leave at once"

CONNECTIONS = (
    used(
        "listeners",
        LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Where the node listens. A change needs a restart, other than in Kafka.",
    ),
    used("advertised.listeners", LIST, None, "Where clients are told to connect."),
    used(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name.",
    ),
    meaningless(
        "early.start.listeners",
        LIST,
        None,
        "Listeners that start before the others.",
        _ALL_TOGETHER,
    ),
    used(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener that other brokers use; the first one that is no controller's unless set.",
    ),
    refused(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "How brokers talk to each other.",
        _ONLY_PLAINTEXT,
    ),
    used("connections.max.idle.ms", LONG, "600000", "When an idle connection is closed."),
    used(
        "max.connections",
        INT,
        "2147483647",
        "How many connections there may be.",
        minimum=0,
        live=True,
    ),
    used(
        "max.connections.per.ip",
        INT,
        "2147483647",
        "How many connections may come from one address.",
        minimum=0,
        live=True,
    ),
    used(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "max.connections.per.ip of single addresses.",
        validator=numbers_by_name,
        live=True,
    ),
    used(
        "max.connection.creation.rate",
        INT,
        "2147483647",
        "How many connections may be made in a second; above it, they wait.",
        minimum=1,
        live=True,
    ),
    used("socket.request.max.bytes", INT, "104857600", "The largest request.", minimum=1),
    used("socket.send.buffer.bytes", INT, "-1", "SO_SNDBUF; -1 leaves it."),
    used("socket.receive.buffer.bytes", INT, "-1", "SO_RCVBUF; -1 leaves it."),
    used(
        "socket.listen.backlog.size",
        INT,
        "1024",
        "How many connections wait for accept.",
        minimum=1,
    ),
    meaningless(
        "socket.connection.setup.timeout.ms",
        LONG,
        "10000",
        "How long connecting to another node may take at first.",
        _OWN_DEADLINES,
    ),
    meaningless(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        "30000",
        "How long connecting to another node may take at most.",
        _OWN_DEADLINES,
    ),
    used(
        "queued.max.request.bytes",
        LONG,
        "268435456",
        "How many bytes of requests may be in work before reading stops; -1 is no limit.",
    ),
    meaningless(
        "queued.max.requests",
        INT,
        "500",
        "How many requests may wait for a thread.",
        _BY_SIZE,
        minimum=1,
    ),
    used("fetch.max.bytes", INT, "57671680", "The most that one fetch answers.", minimum=1024),
    used(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "How many incremental fetch sessions are kept.",
        minimum=0,
    ),
    used(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "How many partitions one DescribeTopicPartitions answers.",
        minimum=1,
    ),
    meaningless(
        "request.timeout.ms",
        INT,
        "30000",
        "How long the broker waits for others.",
        _OWN_DEADLINES,
    ),
    constant(
        "num.network.threads",
        INT,
        "1",
        "Threads that read requests and send answers.",
        ONE_LOOP,
        minimum=1,
    ),
    constant("num.io.threads", INT, "1", "Threads that process requests.", ONE_LOOP, minimum=1),
    meaningless(
        "background.threads",
        INT,
        "10",
        "Threads for work in the background.",
        ONE_LOOP,
        minimum=1,
        live=True,
    ),
    meaningless(
        "fetch.purgatory.purge.interval.requests",
        INT,
        "1000",
        "After how many finished fetches their places are tidied up.",
        _LEAVE_AT_ONCE,
    ),
    meaningless(
        "producer.purgatory.purge.interval.requests",
        INT,
        "1000",
        "After how many finished produce requests their places are tidied up.",
        _LEAVE_AT_ONCE,
    ),
    meaningless(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        "1",
        "After how many finished deletions their places are tidied up.",
        _LEAVE_AT_ONCE,
    ),
    meaningless(
        "share.fetch.purgatory.purge.interval.requests",
        INT,
        "1000",
        "After how many finished share fetches their places are tidied up.",
        NO_SHARE_GROUPS,
    ),
    used("quota.window.num", INT, "11", "Windows over which rates are measured.", minimum=1),
    used("quota.window.size.seconds", INT, "1", "The length of such a window.", minimum=1),
    used(
        "controller.quota.window.num",
        INT,
        "11",
        "Windows over which changes of topics may be saved up.",
        minimum=1,
    ),
    used(
        "controller.quota.window.size.seconds", INT, "1", "The length of such a window.", minimum=1
    ),
)
