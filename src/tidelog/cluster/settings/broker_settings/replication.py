"""Replication and leadership."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    ALONE,
    BOOLEAN,
    INT,
    LONG,
    STRING,
    meaningless,
)

_ONE_CHECKPOINT = "all of it is written every log.flush.offset.checkpoint.interval.ms"

REPLICATION = (
    meaningless(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "After how long a follower that has not caught up is out of sync.",
        ALONE,
    ),
    meaningless(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "How long a follower waits after a failed fetch.",
        ALONE,
        minimum=0,
    ),
    meaningless(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "A follower's fetch per partition.",
        ALONE,
        minimum=0,
    ),
    meaningless("replica.fetch.min.bytes", INT, "1", "A follower's least fetch.", ALONE),
    meaningless("replica.fetch.wait.max.ms", INT, "500", "A follower's longest wait.", ALONE),
    meaningless(
        "replica.fetch.response.max.bytes", INT, "10485760", "A follower's fetch.", ALONE, minimum=0
    ),
    meaningless(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written.",
        _ONE_CHECKPOINT,
    ),
    meaningless(
        "replica.selector.class",
        STRING,
        None,
        "The class that chooses which replica a consumer reads from.",
        ALONE,
    ),
    meaningless(
        "replica.socket.receive.buffer.bytes", INT, "65536", "SO_RCVBUF of followers.", ALONE
    ),
    meaningless(
        "replica.socket.timeout.ms", INT, "30000", "The socket timeout of followers.", ALONE
    ),
    meaningless(
        "num.replica.fetchers", INT, "1", "Fetchers per leader.", ALONE, minimum=1, live=True
    ),
    meaningless(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership goes back to preferred leaders.",
        ALONE,
    ),
    meaningless(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often leadership is compared with the preferred leaders.",
        ALONE,
        minimum=1,
    ),
    meaningless(
        "unclean.leader.election.interval.ms",
        LONG,
        "300000",
        "How often partitions without a leader are looked at.",
        ALONE,
        minimum=1,
        hidden=True,
    ),
    meaningless(
        "replication.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of replication is measured.",
        ALONE,
        minimum=1,
    ),
    meaningless(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "The length of such a window.",
        ALONE,
        minimum=1,
    ),
    meaningless(
        "leader.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "How fast a leader serves throttled replicas.",
        ALONE,
        minimum=0,
        live=True,
        hidden=True,
    ),
    meaningless(
        "follower.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "How fast a follower fetches throttled replicas.",
        ALONE,
        minimum=0,
        live=True,
        hidden=True,
    ),
)
