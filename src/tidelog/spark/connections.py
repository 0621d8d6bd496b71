"""Connections that outlive a task: the next micro-batch finds them open.

A cluster is lent to one reader at a time, so what is in flight on its connections is that reader's
alone. What was heard of leaders and coordinators is shared by all that have one bootstrap address,
and outlives their connections. Spark's Python workers are forked; a child starts with no
connection.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tidelog.client.cluster import Address, Cluster, ClusterView, PartitionLeader
from tidelog.client.cluster.local import LocalConnection, find_local_address
from tidelog.client.errors import ClientError, ConnectError

_log = logging.getLogger(__name__)

# Brokers close what is idle for ten minutes.
_IDLE_S_MAX = 300.0
_IDLE_COUNT_MAX = 8

# What is kept for the responses of one cluster.
_KEPT_BYTES_MAX = 64 * 1024 * 1024


class ReceiveBuffer:
    """Memory that large responses are received into, one after the other.

    New memory for each would cost a page fault every 4 KB, as much as a copy of it.
    """

    def __init__(self) -> None:
        self._buffer = memoryview(b"")

    def allocate(self, size: int) -> memoryview:
        """Room for a response, until the next is asked for; what is in it is anything."""
        if size > _KEPT_BYTES_MAX:
            return memoryview(bytearray(size))
        if size > len(self._buffer):
            # A little more, as the responses after it are a little larger or smaller.
            self._buffer = memoryview(np.empty(size + size // 16, dtype=np.uint8).data)
        return self._buffer[:size]


@dataclass(slots=True)
class PooledCluster:
    """A cluster, the connections that give files of its nodes, and room for its responses."""

    cluster: Cluster
    buffer: ReceiveBuffer = field(default_factory=ReceiveBuffer)
    idle_since_s: float = 0.0
    _local: dict[Address, LocalConnection | None] = field(default_factory=dict)

    def connect_locally(self, leader: PartitionLeader) -> LocalConnection | None:
        """The connection that gives files in place of records; None if the node gives us none."""
        if leader.address not in self._local:
            self._local[leader.address] = self._open_locally(leader)
        return self._local[leader.address]

    def close(self) -> None:
        self.cluster.close()
        for connection in self._local.values():
            if connection is not None:
                connection.close()
        self._local.clear()

    def _open_locally(self, leader: PartitionLeader) -> LocalConnection | None:
        cluster = self.cluster
        found = find_local_address(cluster.connect(leader.address), leader.node_id)
        if found is None:
            return None
        try:
            return LocalConnection.open_local(
                found, client_id=cluster.client_id, timeout_s=cluster.timeout_s
            )
        except ClientError as error:
            # It runs on another machine, in a container, or as another user.
            _log.debug("records come over TCP: %s", error)
            return None


_Key = tuple[str, str, float]
_idle: dict[_Key, list[PooledCluster]] = {}
_views: dict[str, ClusterView] = {}
_lock = threading.Lock()


@contextmanager
def lent_cluster(
    bootstrap: str, client_id: str = "tidelog-spark", timeout_s: float = 10.0
) -> Iterator[PooledCluster]:
    """A cluster, connected or not yet, for the time of the `with` block.

    It is kept for the next one that asks, and closed if the block ends with an exception. Nothing
    may be in flight on its connections when the block ends well.
    """
    key = (bootstrap, client_id, timeout_s)
    pooled = _take(key)
    if pooled is None:
        view = _views.setdefault(bootstrap, ClusterView())
        cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s, view=view)
        pooled = PooledCluster(cluster)
    try:
        yield pooled
    except BaseException as error:
        pooled.close()
        if isinstance(error, ConnectError):
            # The broker went away: those that idle have lost it too.
            _close(_take_all(key))
        raise
    _keep(key, pooled)


def close_idle_clusters() -> None:
    """Close every connection that nobody uses now."""
    for key in list(_idle):
        _close(_take_all(key))


def _take_all(key: _Key) -> list[PooledCluster]:
    with _lock:
        return _idle.pop(key, [])


def _close(clusters: Iterable[PooledCluster]) -> None:
    for each in clusters:
        each.close()


def _take(key: _Key) -> PooledCluster | None:
    with _lock:
        now_s = time.monotonic()
        clusters = _idle.get(key, [])
        old = [each for each in clusters if now_s - each.idle_since_s > _IDLE_S_MAX]
        fresh = [each for each in clusters if now_s - each.idle_since_s <= _IDLE_S_MAX]
        taken = fresh.pop() if fresh else None
        _idle[key] = fresh
    _close(old)
    return taken


def _keep(key: _Key, pooled: PooledCluster) -> None:
    with _lock:
        clusters = _idle.setdefault(key, [])
        pooled.idle_since_s = time.monotonic()
        clusters.append(pooled)
        surplus = clusters[:-_IDLE_COUNT_MAX]
        del clusters[:-_IDLE_COUNT_MAX]
    _close(surplus)


def _forget() -> None:
    """In a child: the sockets are its parent's, and the lock may be held by a thread of it."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
