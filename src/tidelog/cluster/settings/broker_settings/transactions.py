"""Transactions."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    BOOLEAN,
    FIXED_PAUSE,
    INT,
    SHORT,
    meaningless,
    refused,
    used,
)

_FIXED_PIECES = "logs are read in pieces of a fixed size"
_HAS_TIMEOUT = "transactions always have a timeout"

TRANSACTIONS = (
    used(
        "transaction.max.timeout.ms", INT, "900000", "The longest transaction timeout.", minimum=1
    ),
    used(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "How long an idle transactional id is remembered.",
        minimum=1,
    ),
    used(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "How often transactions are checked for their timeout.",
        minimum=1,
    ),
    used(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "How often transactional ids are checked for expiry.",
        minimum=1,
    ),
    used(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        "Partitions of __transaction_state.",
        minimum=1,
    ),
    used(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        "Replicas of __transaction_state (as many as there are brokers at most).",
        minimum=1,
    ),
    used(
        "transaction.state.log.min.isr",
        INT,
        "2",
        "In-sync replicas that __transaction_state needs (no more than it has).",
        minimum=1,
    ),
    used(
        "transaction.state.log.segment.bytes",
        INT,
        "104857600",
        "Segment size of __transaction_state.",
        minimum=1,
    ),
    meaningless(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        "How much of __transaction_state is read at once on load.",
        _FIXED_PIECES,
        minimum=1,
    ),
    used(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "Whether appends are checked to belong to an open transaction.",
        live=True,
    ),
    refused(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        "Whether a transaction may wait for the decision of another system, without a timeout.",
        _HAS_TIMEOUT,
    ),
    meaningless(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        "20",
        "The first wait before the coordinator is asked again to verify a transaction.",
        FIXED_PAUSE,
        minimum=1,
    ),
    meaningless(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        "100",
        "The longest wait before the coordinator is asked again to verify a transaction.",
        FIXED_PAUSE,
        minimum=0,
    ),
)
