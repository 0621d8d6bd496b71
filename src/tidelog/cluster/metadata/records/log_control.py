"""Metadata records that are about the metadata log itself.

Tidelog puts each decision into one batch and so needs no transactions of its own; a log that Kafka
wrote has them around its first records.
"""

from __future__ import annotations

from tidelog.protocol.schema import INT8, STRING, Message, field


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """Only moves the end of the log."""


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    """The records up to the end of the transaction count together or not at all."""

    name: str | None = field(STRING, "0+", nullable="0+", default=None, tag=0, tagged="0+")


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """The records of the transaction count."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    """The records of the transaction do not count."""

    reason: str | None = field(STRING, "0+", nullable="0+", default=None, tag=0, tagged="0+")


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    """Left in logs of clusters that came from ZooKeeper; it changes nothing any more."""

    zk_migration_state: int = field(INT8, "0+")
