"""What a follower's fetch session has to tell, without looking at all of its partitions.

A node may lead thousands of partitions that another one follows, in one session and with hundreds
of fetches a second, and most of them have nothing new most of the time. So the session watches its
partitions: one that has moved since the follower was told of it is *pending*, and a fetch looks at
those only. A partition leaves when the follower has all of it:

    not pending  ⇒  fetch offset = log end, and high watermark and log start are as told

which is also what makes it right to say, when such a partition moves, that its follower was caught
up until its last fetch: nobody has to note that for every partition at every fetch.

A partition that the leader's throttle keeps from the follower is not pending either, but *held
back*: what is appended to it wakes nobody and is not looked at. It is pending again when the
throttle has room, when its follower is in sync or names it, or when there is something else to tell
than records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
    from tidelog.cluster.replication.waiting import Waiting
    from tidelog.protocol.produce import TopicKey
    from tidelog.server.fetch_sessions import CachedPartition

PartitionKey = tuple["TopicKey", int]


class FollowerNews:
    """The pending partitions of one follower's session, in the order they are read."""

    __slots__ = (
        "_throttle",
        "_waiting",
        "_watches",
        "held_back",
        "last_fetch_ms",
        "pending",
        "replica_id",
        "waiter",
    )

    def __init__(self, waiting: Waiting, throttle: ReplicationThrottle, replica_id: int) -> None:
        self._waiting = waiting
        self._throttle = throttle
        self._watches: dict[PartitionKey, _Watch] = {}
        self.replica_id = replica_id
        self.pending: dict[PartitionKey, CachedPartition] = {}
        self.held_back: dict[PartitionKey, CachedPartition] = {}
        """Partitions that have records which the throttle keeps from the follower."""
        self.last_fetch_ms = 0
        """When the follower fetched last, in monotonic milliseconds."""
        self.waiter: FollowerWaiter | None = None
        """The fetch that waits for news."""

    def name(self, key: PartitionKey, cached: CachedPartition) -> None:
        """The follower's request names the partition."""
        self.pending[key] = cached
        if self.held_back:
            self.held_back.pop(key, None)

    def drop(self, key: PartitionKey) -> None:
        """The follower does not want the partition any more."""
        self.pending.pop(key, None)
        self.held_back.pop(key, None)
        watch = self._watches.pop(key, None)
        if watch is not None:
            self._waiting.unwatch(watch.partition, watch)

    def watch(self, key: PartitionKey, cached: CachedPartition) -> None:
        """Hear when the partition moves, now that it is known where it is."""
        partition = cached.partition
        known = self._watches.get(key)
        if known is not None:
            if known.partition is partition and known.cached is cached:
                return
            self._waiting.unwatch(known.partition, known)
            del self._watches[key]
        if partition is not None:
            self._watches[key] = watch = _Watch(self, key, cached, partition)
            self._waiting.watch(partition, watch)

    def read_last(self, key: PartitionKey) -> None:
        """The others get their turn when space is short."""
        cached = self.pending.pop(key, None)
        if cached is not None:
            self.pending[key] = cached

    def settle(self, key: PartitionKey) -> None:
        """The follower was told of the partition: does it have all of it?"""
        cached = self.pending.get(key)
        if cached is not None and cached.is_all_told():
            del self.pending[key]

    def hold_back(self, key: PartitionKey) -> None:
        """The follower gets nothing of the partition until the throttle has room."""
        cached = self.pending.pop(key, None)
        if cached is not None:
            self.held_back[key] = cached
            self._throttle.bytes.when_open(self.look_at_held_back)

    def look_at_held_back(self) -> None:
        """Those that the follower may have by now, or has to hear of, are pending again."""
        held_back = self.held_back
        freed = {key: each for key, each in held_back.items() if not self._is_held_back(each)}
        for key in freed:
            del held_back[key]
        self.pending.update(freed)
        if held_back:
            self._throttle.bytes.when_open(self.look_at_held_back)
        for cached in freed.values():
            if self.waiter is not None:
                self.waiter.look_at(cached)

    def _is_held_back(self, cached: CachedPartition) -> bool:
        partition = cached.partition
        return (
            not cached.has_error_or_start()
            and partition is not None
            and self._throttle.holds_back_follower(partition, self.replica_id)
        )

    def close(self) -> None:
        """The session has ended."""
        for watch in self._watches.values():
            self._waiting.unwatch(watch.partition, watch)
        self._watches.clear()
        self.pending.clear()
        self.held_back.clear()
        if self.waiter is not None:
            self.waiter.finish()

    def moved(self, watch: _Watch) -> None:
        """A partition has moved in this turn."""
        cached = watch.cached
        if self.held_back and watch.key in self.held_back:
            if self._is_held_back(cached):
                return
            self.pending[watch.key] = self.held_back.pop(watch.key)
        if watch.key not in self.pending:
            follower = watch.partition.state.followers.get(self.replica_id)
            if follower is not None:
                follower.fetched_nothing_new(self.last_fetch_ms)
            self.pending[watch.key] = cached
        if self.waiter is not None:
            self.waiter.look_at(cached)


class _Watch:
    """A watcher of one partition for one session."""

    __slots__ = ("cached", "key", "news", "partition")

    def __init__(
        self, news: FollowerNews, key: PartitionKey, cached: CachedPartition, partition: Partition
    ) -> None:
        self.news = news
        self.key = key
        self.cached = cached
        self.partition = partition

    def moved(self) -> None:
        self.news.moved(self)


class FollowerWaiter:
    """A follower's fetch that waits for news worth an answer: records, an error, another start.

    A high watermark that has moved is none: it goes along with the next answer. `has_enough()` says
    whether the records of all partitions are enough; `done()` answers, once.
    """

    __slots__ = ("_done", "_has_enough", "_news")

    def __init__(
        self, news: FollowerNews, has_enough: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        self._news = news
        self._has_enough = has_enough
        self._done: Callable[[], None] | None = done
        if news.waiter is not None:
            news.waiter.finish()
        news.waiter = self

    def look_at(self, cached: CachedPartition) -> None:
        """A partition has moved."""
        if cached.has_error_or_start() or (cached.has_records() and self._has_enough()):
            self.finish()

    def finish(self) -> None:
        """Answer with what there is."""
        done = self._done
        if self.cancel():
            assert done is not None
            done()

    def cancel(self) -> bool:
        """Forget it; says whether it still waited."""
        if self._done is None:
            return False
        self._done = None
        if self._news.waiter is self:
            self._news.waiter = None
        return True
