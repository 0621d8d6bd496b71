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
full requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.fetch import FetchData, FetchedPartition, FetchPartition
from tidelog.protocol.produce import TopicKey

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition

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
        self.high_watermark = -1 if row.error_code else row.high_watermark
        self.log_start_offset = row.log_start_offset
        return is_new


class FetchSession:
    """The partitions of one client's fetches, in the order they are read."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, identifier: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = identifier
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}

    def update(self, data: FetchData) -> None:
        """Take over what the client added, changed and dropped."""
        partitions = self.partitions
        for topic, wanted_partitions in data.topics:
            for wanted in wanted_partitions:
                cached = partitions.get((topic, wanted.partition))
                if cached is None:
                    partitions[topic, wanted.partition] = CachedPartition(wanted)
                else:
                    cached.wanted = wanted
        for topic, dropped in data.forgotten:
            for partition in dropped:
                partitions.pop((topic, partition), None)

    def move_to_end(self, key: PartitionKey) -> None:
        """Read this partition last next time: the others get their turn when space is short."""
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
        if self.session is None or self.is_full:
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
        return sent


class FetchSessions:
    """The sessions of a node."""

    def __init__(self, slots_max: int, eviction_ms: int, random: Random) -> None:
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
                self._sessions.pop(session_id, None)
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
        del self._sessions[session_id]
        if not session.partitions:
            return FetchContext(None, is_full=False)
        self._sessions[session_id] = session
        return FetchContext(session, is_full=False)

    def _create(self, data: FetchData, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        size = sum(len(partitions) for _, partitions in data.topics)
        if len(self._sessions) >= self._slots_max and not self._evict(size, now_ms):
            return None
        identifier = 0
        while not identifier or identifier in self._sessions:
            identifier = self._random.randint(1, _EPOCH_MAX)
        session = FetchSession(identifier, uses_topic_ids, now_ms)
        session.update(data)
        self._sessions[identifier] = session
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of so many partitions, if one may go for it."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim: FetchSession | None = oldest
        if now_ms - oldest.last_used_ms < self._eviction_ms:
            had_their_time = (
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms >= self._eviction_ms
            )
            victim = min(had_their_time, key=lambda each: len(each.partitions), default=None)
            if victim is None or len(victim.partitions) >= size:
                return False
        assert victim is not None
        del self._sessions[victim.id]
        self.evicted += 1
        return True
