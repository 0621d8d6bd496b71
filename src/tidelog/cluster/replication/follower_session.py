"""The fetch session of a follower (KIP-227): a request names what the leader does not know yet.

The leader keeps what each partition's last row asked for, and reads that again when a request does
not mention the partition. A lost or unclear answer ends the session: the next request names all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[bytes, int]
"""Topic id and number."""


class WantedPartition(NamedTuple):
    """What a follower asks of one partition: records from `fetch_offset` on. All below is durable
    here, and the last of it was written at `last_fetched_epoch`."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowerSession:
    """One session with one leader's node, over all its lives there."""

    def __init__(self, partition_bytes_max: int) -> None:
        self._partition_bytes_max = partition_bytes_max
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._told: dict[PartitionKey, WantedPartition] = {}
        """What the leader's node keeps, once the request in flight is answered."""

    @property
    def is_new(self) -> bool:
        """Whether the next request names all partitions."""
        return self._id == _NO_SESSION

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[PartitionKey, WantedPartition],
        changed: Iterable[PartitionKey],
    ) -> None:
        """Put the session, and what it does not know, into a request.

        `changed` are the partitions that may be wanted otherwise than in the request before, or not
        any more. Costs nothing for the others, unless the session is new.
        """
        request.session_id = self._id
        request.session_epoch = self._epoch
        if self._id == _NO_SESSION:
            self._told = {}
            changed = wanted
        told = self._told
        rows: dict[bytes, list[FetchPartition]] = {}
        forgotten: dict[bytes, list[int]] = {}
        for key in changed:
            each = wanted.get(key)
            if each is None:
                if told.pop(key, None) is not None:
                    forgotten.setdefault(key[0], []).append(key[1])
            elif told.get(key) != each:
                told[key] = each
                rows.setdefault(key[0], []).append(self._row(key[1], each))
        request.topics = [
            FetchTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in rows.items()
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in forgotten.items()
        ]

    def _row(self, partition: int, wanted: WantedPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition,
            current_leader_epoch=wanted.leader_epoch,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            log_start_offset=wanted.log_start_offset,
            partition_max_bytes=self._partition_bytes_max,
        )

    def answered(self, response: FetchResponse) -> None:
        """The request in flight was served; a leader without room for a session names none."""
        if response.session_id == _NO_SESSION:
            self.lose()
            return
        is_first = self._id == _NO_SESSION
        self._id = response.session_id
        self._epoch = 1 if is_first or self._epoch == _EPOCH_MAX else self._epoch + 1

    def lose(self) -> None:
        """Nobody knows what the leader keeps."""
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._told = {}
