"""Incremental fetch sessions (KIP-227): what a consumer wants, kept between its fetches.

A consumer that says nothing new about its partitions sends none, and gets only those rows that
have something new. A session is found by its id and goes from epoch to epoch; the client's epoch
tells what it wants:

    id 0, epoch -1    no session: all partitions are in the request
    id 0, epoch 0     a new session
    id n, epoch 0     a new session in place of n
    id n, epoch -1    the end of n, all partitions are in the request
    id n, epoch e     the next fetch of n

The number of sessions is limited. A new one takes the place of one that was not used for a while,
or of a smaller one that had its time; else the client is told that there is none (id 0) and sends
full requests. Sessions of followers go first: they take the place of a consumer's, and only of one.

A follower's session knows which of its partitions have news (`replication/follower_news.py`), and
only those are looked at; a consumer's looks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.fetch import FetchData, FetchedPartition, FetchPartition
from tidelog.protocol.produce import TopicKey

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.replication.follower_news import FollowerNews

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[TopicKey, int]


class CachedPartition:
    """What a session's client wants of one partition, and what it was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "partition", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        """Where it was found last."""
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_nothing_new(self) -> bool:
        """Whether a fetch would only say again what the client was told last.

        Costs a tenth of reading; most partitions of a consumer of many are like this.
        """
        partition, wanted = self.partition, self.wanted
        return (
            partition is not None
            and partition.high_watermark == wanted.fetch_offset == self.high_watermark
            and partition.is_leader
            and partition.log.log_start_offset == self.log_start_offset
            and wanted.current_leader_epoch in (-1, partition.leader_epoch)
            and wanted.last_fetched_epoch < 0
        )

    def is_all_told(self) -> bool:
        """Whether a follower has all of the partition."""
        partition = self.partition
        return (
            partition is not None
            and partition.is_leader
            and self.wanted.fetch_offset == partition.log.log_end_offset
            and self.high_watermark == partition.high_watermark
            and self.log_start_offset == partition.log.log_start_offset
        )

    def has_records(self) -> bool:
        """Whether there is something for a follower to read."""
        partition = self.partition
        return partition is not None and partition.log.log_end_offset > self.wanted.fetch_offset

    def has_error_or_start(self) -> bool:
        """Whether a follower has to hear of another leader epoch, or of another start of the
        log."""
        partition = self.partition
        return (
            partition is None
            or not partition.is_leader
            or self.wanted.current_leader_epoch not in (-1, partition.leader_epoch)
            or partition.log.log_start_offset != self.log_start_offset
        )

    def note_sent(self, row: FetchedPartition) -> bool:
        """Whether the row says anything new; if so it counts as told."""
        is_new = (
            row.records_size > 0
            or row.error_code != 0
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.preferred_read_replica >= 0
            or row.diverging_epoch is not None
        )
        # After an error the next row must be sent even if nothing else changed.
        is_refused = row.error_code or row.diverging_epoch is not None
        self.high_watermark = -1 if is_refused else row.high_watermark
        self.log_start_offset = row.log_start_offset
        return is_new


class FetchSession:
    """The partitions of one client's fetches, in the order they are read."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "news",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self,
        identifier: int,
        uses_topic_ids: bool,
        now_ms: int,
        news: FollowerNews | None = None,
    ) -> None:
        self.id = identifier
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.news = news
        """Of a follower's session: its partitions that have something to tell."""

    def update(self, data: FetchData) -> None:
        """Take over what the client added, changed and dropped."""
        partitions = self.partitions
        news = self.news
        for topic, wanted_partitions in data.topics:
            for wanted in wanted_partitions:
                key = (topic, wanted.partition)
                cached = partitions.get(key)
                if cached is None:
                    partitions[key] = cached = CachedPartition(wanted)
                else:
                    cached.wanted = wanted
                if news is not None:
                    news.name(key, cached)
        for topic, dropped in data.forgotten:
            for partition in dropped:
                partitions.pop((topic, partition), None)
                if news is not None:
                    news.drop((topic, partition))

    def move_to_end(self, key: PartitionKey) -> None:
        """Read this partition last next time: the others get their turn when space is short."""
        if self.news is not None:
            self.news.read_last(key)
            return
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self.partitions[key] = cached


class FetchContext:
    """One fetch: its partitions, and which rows of the answer are sent."""

    __slots__ = ("is_full", "session")

    def __init__(self, session: FetchSession | None, is_full: bool) -> None:
        self.session = session
        self.is_full = is_full

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def wanted(self, data: FetchData) -> Iterator[tuple[TopicKey, CachedPartition]]:
        """The partitions to read, in order; those of the session, or made for this fetch."""
        if self.session is not None and self.session.news is not None:
            for (topic, _), cached in self.session.news.pending.items():
                yield topic, cached
        elif self.session is None or self.is_full:
            for topic, partitions in data.topics:
                for wanted in partitions:
                    yield topic, CachedPartition(wanted)
        else:
            for (topic, _), cached in self.session.partitions.items():
                yield topic, cached

    def rows_to_send(
        self, rows: list[tuple[TopicKey, FetchedPartition]]
    ) -> list[tuple[TopicKey, FetchedPartition]]:
        """The rows of the answer; of an incremental fetch those that say something new."""
        session = self.session
        if session is None:
            return rows
        sent = []
        for topic, row in rows:
            key = (topic, row.partition)
            cached = session.partitions.get(key)
            is_new = cached is None or cached.note_sent(row)
            if is_new or self.is_full:
                sent.append((topic, row))
            if row.records_size:
                session.move_to_end(key)
            elif session.news is not None:
                session.news.settle(key)
        return sent


class FetchSessions:
    """The sessions of a node."""

    def __init__(
        self,
        slots_max: int,
        eviction_ms: int,
        random: Random,
        make_news: Callable[[int], FollowerNews] | None = None,
    ) -> None:
        """`make_news(replica_id)` is what a follower's session has of its partitions; without it
        such a session looks at all of them."""
        self._make_news = make_news
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._random = random
        # By last use: the session used longest ago comes first.
        self._sessions: dict[int, FetchSession] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, data: FetchData, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        """The context of a fetch; ApiError when it names a session that is not there."""
        session_id, epoch = data.session_id, data.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id:
                self._close(session_id)
            session = None
            if epoch == INITIAL_EPOCH and any(partitions for _, partitions in data.topics):
                session = self._create(data, uses_topic_ids, now_ms)
            return FetchContext(session, is_full=True)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}"
            )
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} was made with{'' if session.uses_topic_ids else 'out'}"
                " topic ids",
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.update(data)
        session.last_used_ms = now_ms
        if not session.partitions:
            self._close(session_id)
            return FetchContext(None, is_full=False)
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return FetchContext(session, is_full=False)

    def _create(self, data: FetchData, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        size = sum(len(partitions) for _, partitions in data.topics)
        is_follower = data.replica_id >= 0
        if len(self._sessions) >= self._slots_max and not self._evict(size, is_follower, now_ms):
            return None
        identifier = 0
        while not identifier or identifier in self._sessions:
            identifier = self._random.randint(1, _EPOCH_MAX)
        news = None
        if is_follower and self._make_news is not None:
            news = self._make_news(data.replica_id)
        session = FetchSession(identifier, uses_topic_ids, now_ms, news)
        session.update(data)
        if news is not None:
            self._supersede(session, news.replica_id)
        self._sessions[identifier] = session
        return session

    def _supersede(self, session: FetchSession, replica_id: int) -> None:
        """A follower has one session for a partition: what it had before is lost to it."""
        for other in tuple(self._sessions.values()):
            if (
                other.news is not None
                and other.news.replica_id == replica_id
                and not other.partitions.keys().isdisjoint(session.partitions)
            ):
                self._close(other.id)

    def finish_waiting(self) -> None:
        """The node stops: fetches of followers that wait are answered with what there is."""
        for session in tuple(self._sessions.values()):
            if session.news is not None and session.news.waiter is not None:
                session.news.waiter.finish()

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.news is not None:
            session.news.close()

    def _evict(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Make room for a session of so many partitions, if one may go for it."""
        victim = next(iter(self._sessions.values()), None)
        if victim is None:
            return False
        if now_ms - victim.last_used_ms < self._eviction_ms:
            consumers = [each for each in self._sessions.values() if each.news is None]
            if is_follower:
                victim = next(iter(consumers), None)
            else:
                had_their_time = (
                    session
                    for session in consumers
                    if now_ms - session.created_ms >= self._eviction_ms
                )
                victim = min(had_their_time, key=lambda each: len(each.partitions), default=None)
                if victim is not None and len(victim.partitions) >= size:
                    victim = None
        if victim is None:
            return False
        self._close(victim.id)
        self.evicted += 1
        return True
