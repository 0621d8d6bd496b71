"""The settings of a log store that are not a topic's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`cluster_id` None takes the one in the data directories, or makes one up when they are new.

    `sync_threads` sync files side by side in checkpoints, recovery and at the end.
    """

    node_id: int = 1
    cluster_id: str | None = None
    journal_file_bytes: int = 16 << 20
    journal_first_file_bytes: int = 1 << 20
    journal_spares_max: int = 6
    journal_waiting_bytes_max: int = 64 << 20
    direct_sync_bytes: int = 256 << 10
    checkpoint_journal_bytes: int = 64 << 20
    checkpoint_appended_bytes: int = 1 << 30
    checkpoint_interval_ms: int = 60_000
    sync_threads: int = 16
