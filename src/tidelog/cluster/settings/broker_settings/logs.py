"""Topics and their logs, besides the defaults of topic settings."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    constant,
    meaningless,
    used,
)

_NO_WAITING = "a start waits for nothing but its own recovery"
_ONE_CLEANER = "one process compacts one log at a time"
_CLEANER_MEMORY = "the cleaner's buffers have a fixed size"
_ONE_CHECKPOINT = "all of it is written every log.flush.offset.checkpoint.interval.ms"
_ONE_MOVE = "logs move one after the other, on one thread each"

LOGS = (
    used("num.partitions", INT, "1", "The partition count of a topic that names none.", minimum=1),
    used(
        "default.replication.factor", INT, "1", "The replication factor of a topic that names none."
    ),
    used(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether asking for a topic that is not there creates it.",
    ),
    used("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    used(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often logs are checked for segments that have to go.",
        minimum=1,
    ),
    used("log.cleaner.enable", BOOLEAN, "true", "Whether compacted topics are compacted."),
    constant(
        "log.cleaner.threads", INT, "1", "How many cleaners work at once.", _ONE_CLEANER, minimum=0
    ),
    used("log.cleaner.dedupe.buffer.size", LONG, "134217728", "The cleaner's memory.", live=True),
    meaningless(
        "log.cleaner.io.buffer.size",
        INT,
        "524288",
        "The cleaner's read buffer.",
        _CLEANER_MEMORY,
        minimum=0,
        live=True,
    ),
    meaningless(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        "0.9",
        "How full the cleaner's table of keys may get.",
        _CLEANER_MEMORY,
        live=True,
    ),
    used(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "What the cleaner reads and writes in a second at most.",
        live=True,
    ),
    used(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How long an idle cleaner sleeps.",
        minimum=0,
        live=True,
    ),
    used(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often recovery points are written.",
        minimum=0,
    ),
    meaningless(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often log start offsets are written.",
        _ONE_CHECKPOINT,
        minimum=0,
    ),
    meaningless(
        "log.initial.task.delay.ms",
        LONG,
        "30000",
        "How long after the start work in the background begins.",
        _NO_WAITING,
        minimum=0,
        hidden=True,
    ),
    used(
        "num.recovery.threads.per.data.dir",
        INT,
        "16",
        "Threads that recover and sync logs.",
        minimum=1,
        live=True,
    ),
    meaningless(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads that move logs between directories.",
        _ONE_MOVE,
    ),
    used(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        "Windows over which the rate of moves between directories is measured.",
        minimum=1,
    ),
    used(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        "1",
        "The length of such a window.",
        minimum=1,
    ),
    used(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        "9223372036854775807",
        "How many bytes a second of logs that move between directories are copied. They are copied "
        "1 MB at a time, so that less is not held exactly.",
        minimum=0,
        live=True,
        hidden=True,
    ),
    used(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "How long a partition remembers an idle producer.",
        minimum=1,
        live=True,
    ),
    used(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "How often partitions look for producers to forget.",
        minimum=1,
        hidden=True,
    ),
)
