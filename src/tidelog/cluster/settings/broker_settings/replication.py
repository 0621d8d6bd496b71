"""Replication and leadership."""

from __future__ import annotations

from typing import Any

from tidelog.cluster.settings.broker_settings.rows import (
    BOOLEAN,
    INT,
    LONG,
    ONE_LOOP,
    STRING,
    meaningless,
    used,
)

_ONE_CHECKPOINT = "all of it is written every log.flush.offset.checkpoint.interval.ms"

_SELECTORS = ("LeaderSelector", "RackAwareReplicaSelector")
_SELECTOR_PACKAGE = "org.apache.kafka.common.replica."


def _replica_selector(value: Any) -> str | None:
    if not value or value.removeprefix(_SELECTOR_PACKAGE) in _SELECTORS:
        return None
    return f"There is no such selector here; there are {' and '.join(_SELECTORS)}"


REPLICATION = (
    used(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "After how long a follower that has not caught up is out of sync.",
    ),
    used(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "How long a follower waits after a failed fetch.",
        minimum=0,
    ),
    used(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "A follower's fetch per partition.",
        minimum=0,
    ),
    used("replica.fetch.min.bytes", INT, "1", "A follower's least fetch."),
    used("replica.fetch.wait.max.ms", INT, "500", "A follower's longest wait."),
    used("replica.fetch.response.max.bytes", INT, "10485760", "A follower's fetch.", minimum=0),
    meaningless(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written.",
        _ONE_CHECKPOINT,
    ),
    used(
        "replica.selector.class",
        STRING,
        None,
        "The class that chooses which replica a consumer reads from: RackAwareReplicaSelector for "
        "one in the consumer's rack, else the leader.",
        validator=_replica_selector,
    ),
    meaningless(
        "replica.socket.receive.buffer.bytes",
        INT,
        "65536",
        "SO_RCVBUF of followers.",
        "the kernel sizes the buffers of connections to other nodes",
    ),
    used(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "After how long a leader's node that does not answer a follower is given up.",
    ),
    meaningless(
        "num.replica.fetchers",
        INT,
        "1",
        "Fetchers per leader.",
        ONE_LOOP,
        minimum=1,
        live=True,
    ),
    used(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership goes back to preferred leaders.",
    ),
    used(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often leadership is compared with the preferred leaders.",
        minimum=1,
    ),
    used(
        "unclean.leader.election.interval.ms",
        LONG,
        "300000",
        "How often partitions without a leader are looked at.",
        minimum=1,
        hidden=True,
    ),
    used(
        "replication.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of throttled replication is measured.",
        minimum=1,
    ),
    used(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "The length of such a window.",
        minimum=1,
    ),
    used(
        "leader.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "How many bytes a second a node sends to followers of the partitions that it leads and "
        "that are among leader.replication.throttled.replicas. Followers that are in sync are not "
        "held back. Less than 1 MB, which one answer may bring of a partition, is not held "
        "exactly.",
        minimum=0,
        live=True,
        hidden=True,
    ),
    used(
        "follower.replication.throttled.rate",
        LONG,
        "9223372036854775807",
        "How many bytes a second a node fetches for the partitions that it follows and that are "
        "among follower.replication.throttled.replicas. Replicas that are in sync are not held "
        "back. Less than 1 MB, which one answer may bring of a partition, is not held exactly.",
        minimum=0,
        live=True,
        hidden=True,
    ),
)
