"""The node: its parts put together, started and stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.cluster.controller import Controller
    from tidelog.cluster.image import MetadataImage
    from tidelog.cluster.metadata_log import MetadataLog
    from tidelog.cluster.partition_registry import PartitionRegistry
    from tidelog.server.config import NodeConfig
    from tidelog.server.delayed import Purgatory
    from tidelog.server.dispatch import Handler
    from tidelog.server.fetch_sessions import FetchSessions
    from tidelog.server.metrics import Metrics
    from tidelog.server.reactor import Reactor
    from tidelog.storage.log_store import LogStore


class Node:
    """One broker and controller in one process, on one event loop.

    The attributes are what handlers work with. All of it belongs to the loop thread; other threads
    reach it by `reactor.post` only.
    """

    config: NodeConfig
    reactor: Reactor
    handlers: dict[int, Handler]
    store: LogStore
    metadata: MetadataLog
    controller: Controller
    partitions: PartitionRegistry
    delayed: Purgatory
    fetch_sessions: FetchSessions
    metrics: Metrics

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata as of now; immutable."""
        return self.metadata.image

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds."""
        return time.time_ns() // 1_000_000
