"""The node's cleaner of compacted topics: when it works, and on which thread."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node
    from tidelog.storage.compaction.cleaner import Cleaner
    from tidelog.storage.log import Log

# While a pass or the checkpoint that it needs is under way, how soon the next is looked for.
_BUSY_INTERVAL_S = 0.25


class LogCleaning:
    """`node.cleaning`. Start it once the node's partitions are there.

    The cleaner itself comes into being with the first compacted log: a start has no time for it.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timer: Timer | None = None
        self._abandoned = 0
        self._checkpointed_s: dict[Path, float] = {}  # when that was last asked for here
        self._waits_for_checkpoint = False
        self.cleaner: Cleaner | None = None

    def start(self) -> None:
        if self._node.config.log_cleaner_enable:
            self._wait(self._node.config.log_cleaner_backoff_ms / 1000)

    def look_anew(self) -> None:
        """The pause between two looks has changed: the one that waits now ends at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._wait(0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.cleaner is not None:
            self.cleaner.close()

    def _look(self) -> None:
        """Cleans one log after the other while there are dirty ones, then rests."""
        node = self._node
        if self.cleaner is None and any(
            log.config.is_compacted for log in node.store.logs.values()
        ):
            self.cleaner = self._make_cleaner()
        backoff_s = node.config.log_cleaner_backoff_ms / 1000
        if self.cleaner is None:
            self._wait(backoff_s)
            return
        config = node.config
        self.cleaner.dedupe_buffer_bytes = config.log_cleaner_dedupe_buffer_size
        self.cleaner.bytes_per_second_max = config.log_cleaner_io_max_bytes_per_second
        self._waits_for_checkpoint = False
        is_busy = self.cleaner.tick(node.now_ms()) or self._waits_for_checkpoint
        # A disk that is full now is so a moment later too.
        abandoned, self._abandoned = self._abandoned, self.cleaner.counts.abandoned_passes
        goes_well = abandoned == self._abandoned
        self._wait(min(_BUSY_INTERVAL_S, backoff_s) if is_busy and goes_well else backoff_s)

    def _make_cleaner(self) -> Cleaner:
        from tidelog.storage.compaction.cleaner import Cleaner
        from tidelog.storage.compaction.compaction import failed_pass, run_task

        node = self._node
        return Cleaner(
            node.store.logs,
            node.world.start_isolated(run_task, failed_pass, node.reactor.post),
            node.world.start_worker("cleaner-disk", node.crash),
            node.world.files,
            post=node.reactor.post,
            last_stable_offset=self._last_stable_offset,
            want_synced=self._checkpoint_for,
        )

    def _checkpoint_for(self, log: Log) -> None:
        """What is timed comes too late for a topic with a short `max.compaction.lag.ms`; but one
        checkpoint of a directory in the time of a backoff is enough for all its logs."""
        node = self._node
        if node.store.is_checkpointing(log):
            self._waits_for_checkpoint = True
            return
        directory = log.directory.parent
        due_s = (
            self._checkpointed_s.get(directory, float("-inf"))
            + node.config.log_cleaner_backoff_ms / 1000
        )
        if node.reactor.now >= due_s:
            self._checkpointed_s[directory] = node.reactor.now
            self._waits_for_checkpoint = True
            node.store.checkpoint_of(log)

    def _wait(self, seconds: float) -> None:
        self._timer = self._node.reactor.call_later(seconds, self._look)

    def _last_stable_offset(self, log: Log) -> int:
        partition = self._node.partitions.get(*log.topic_partition)
        return 0 if partition is None else partition.last_stable_offset
