"""Replicas of one partition on logs of their own, which fetch from each other over the real wire
format and the real fetch sessions, one event after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random

from tidelog.byte_throttle import ByteThrottle
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.replica_fetcher import Answered, FetcherOptions, ReplicaFetcher
from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
from tidelog.cluster.replication.waiting import Waiting
from tidelog.protocol.apis.fetch import FetchRequest, FetchResponse
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.protocol.fetch import (
    FetchData,
    FetchedPartition,
    FetchPartition,
    decode_fetch_request,
    encode_fetch_response,
)
from tidelog.protocol.headers import decode_response
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.testing.inline_world import InlineWorld

NOW = 1_700_000_000_000
TOPIC_ID = b"T" * 16
FETCH, FETCH_VERSION = 1, 17


class Unreachable(Exception):
    """The peer does not answer."""


class LateSink:
    """Makes appends durable, and carries truncations out, when the test says so."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()

    def submit(
        self, log: Log, batches: memoryview, base_offset: int, next_offset: int, leader_epoch: int
    ) -> None:
        self.waiting.append(lambda: log.mark_durable(next_offset))

    def note_truncation(
        self, log: Log, offset: int, noted: Callable[[ApiError | None], None]
    ) -> None:
        self.waiting.append(lambda: noted(None))

    def sync(self) -> None:
        while self.waiting:
            self.waiting.popleft()()


class EventLines:
    """Events by name."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append(event)

    warning = error = info


class Replica:
    """One replica of the partition orders-0 on a node of its own."""

    def __init__(self, replicas: Replicas, node_id: int, directory: Path) -> None:
        self.replicas = replicas
        self.node_id = node_id
        self.directory = directory / f"{node_id}" / "orders-0"
        self.sink = LateSink()
        self.lines = EventLines()
        self.is_reachable = True
        self.corrupts = 0
        self.lost_calls = 0
        self.fetcher: ReplicaFetcher | None = None
        self.throttle = ReplicationThrottle(
            ByteThrottle(11, 1000, lambda: round(replicas.now * 1000), replicas.call_later)
        )
        """Of what it fetches."""
        self._open()
        self._begin(0)

    def _open(self) -> None:
        self.log = open_log(
            self.directory,
            TopicPartition("orders", 0),
            self.replicas.config,
            world=InlineWorld(now_ms=NOW),
            topic_id=TOPIC_ID,
            sink=self.sink,
        )

    def _begin(self, high_watermark: int) -> None:
        replicas = self.replicas
        self.waiting = Waiting(lambda: replicas.now, replicas.call_later, self._bug)
        self.partition = Partition(
            "orders",
            0,
            TOPIC_ID,
            self.node_id,
            self.log,
            self.waiting,
            high_watermark=high_watermark,
        )
        self.sessions = FetchSessions(10, 120_000, Random(self.node_id))

    def _bug(self) -> None:
        raise AssertionError("a waiter has raised")

    def crash(self) -> None:
        """The power goes, and comes back: what was not synced is gone."""
        if self.fetcher is not None:
            self.fetcher.close()
            self.fetcher = None
        self.sink.waiting.clear()
        known = self.partition.high_watermark
        log, durable_offset = self.log, self.log.durable_offset
        log.close()
        self.sink = LateSink()
        self._open()
        self.log.sink = None
        self.log.truncate_to(durable_offset)
        self.log.sink = self.sink
        self._begin(known)

    # As a leader

    def serve(self, message: Message) -> Message:
        if isinstance(message, FetchRequest):
            return self._serve_fetch(message)
        assert isinstance(message, ListOffsetsRequest)
        asked = message.topics[0].partitions[0]
        row = ListOffsetsPartitionResponse(partition_index=0)
        try:
            found = self.partition.list_offset(
                asked.timestamp, current_leader_epoch=asked.current_leader_epoch, is_follower=True
            )
            row.offset = found.offset
        except ApiError as error:
            row.error_code = error.code
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])]
        )

    def _serve_fetch(self, message: FetchRequest) -> Message:
        body = memoryview(bytearray(message.encode(FETCH_VERSION)))
        data = decode_fetch_request(body, FETCH_VERSION)
        try:
            context = self.sessions.open(data, True, NOW)
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        rows = [(topic, self._read(data, cached.wanted)) for topic, cached in context.wanted(data)]
        topics = [(topic, [row]) for topic, row in context.rows_to_send(rows)]
        frame = encode_fetch_response(FETCH_VERSION, 1, 0, 0, context.session_id, topics)
        raw = bytearray(b"".join(frame))  # type: ignore[arg-type]
        records = topics[0][1][0].records if topics else None
        if self.corrupts and isinstance(records, bytes):
            self.corrupts -= 1
            raw[raw.index(records) + len(records) - 2] ^= 0xFF
        return decode_response(FETCH, FETCH_VERSION, memoryview(raw)[4:])[1]

    def _read(self, data: FetchData, wanted: FetchPartition) -> FetchedPartition:
        partition = self.partition
        try:
            found = partition.read(
                wanted.fetch_offset,
                min(wanted.partition_max_bytes, data.max_bytes),
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                replica_id=data.replica_id,
            )
            if found.diverging_epoch is None:
                partition.record_follower_fetch(
                    data.replica_id, wanted.fetch_offset, wanted.log_start_offset, NOW
                )
        except ApiError as error:
            return FetchedPartition(0, error.code)
        file_slice = None if found.slice is None else found.slice.file_slice
        records = b"" if file_slice is None else file_slice.read(self.log.files)
        return FetchedPartition(
            0,
            0,
            partition.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            records or None,
            len(records),
            diverging_epoch=found.diverging_epoch,
        )

    # As a follower

    def call(self, message: Message, done: Answered, *, timeout_s: float) -> None:
        fetcher = self.fetcher
        assert fetcher is not None
        leader = self.replicas[fetcher.leader_id]

        def answer() -> None:
            if not leader.is_reachable:
                self.lost_calls += 1
                if self.lost_calls % 2:
                    leader.serve(message)  # only its answer is lost
                done(None, Unreachable())
                return
            response = leader.serve(message)
            if isinstance(response, FetchResponse) and not _has_news(response):
                # A leader without news takes its time.
                self.replicas.call_later(0.1, lambda: done(response, None))
            else:
                done(response, None)

        self.replicas.call_later(0.001, answer)


def _has_news(response: FetchResponse) -> bool:
    return bool(response.error_code) or any(
        row.records or row.error_code or row.diverging_epoch.end_offset >= 0
        for topic in response.responses
        for row in topic.partitions
    )


class Replicas:
    """All replicas, a clock, and the events to come."""

    def __init__(
        self, directory: Path, node_ids: tuple[int, ...] = (1, 2), config: LogConfig | None = None
    ) -> None:
        self.config = config or LogConfig()
        self.partition_bytes_max = 1 << 20
        """What a fetch asks for at most; it gets one batch at least."""
        self.lag_ms_max = 30_000
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.leader_id = -1
        self._by_id = {node_id: Replica(self, node_id, directory) for node_id in node_ids}

    def __getitem__(self, node_id: int) -> Replica:
        return self._by_id[node_id]

    @property
    def all(self) -> list[Replica]:
        return list(self._by_id.values())

    @property
    def leader(self) -> Replica:
        return self[self.leader_id]

    def elect(self, leader_id: int, isr: tuple[int, ...] | None = None) -> None:
        """The controller names a leader, of a new epoch; all hear of it."""
        self.leader_epoch += 1
        self.partition_epoch += 1
        self.leader_id = leader_id
        replicas = tuple(self._by_id)
        image = PartitionImage(
            0, leader_id, self.leader_epoch, self.partition_epoch, replicas, isr or replicas
        )
        for replica in self.all:
            self._tell(replica, image)

    def _tell(self, replica: Replica, image: PartitionImage) -> None:
        partition, fetcher = replica.partition, replica.fetcher
        if image.leader == replica.node_id:
            if fetcher is not None:
                fetcher.close()
                replica.fetcher = None
            partition.lead(image, NOW)
            return
        partition.follow(image)
        if fetcher is None or fetcher.leader_id != image.leader:
            if fetcher is not None:
                fetcher.close()
            options = FetcherOptions(
                replica.node_id,
                lambda: 7,
                partition_bytes_max=self.partition_bytes_max,
                backoff_s=1.0,
                lag_ms_max=self.lag_ms_max,
            )
            replica.fetcher = fetcher = ReplicaFetcher(
                image.leader,
                replica,
                replica.waiting,
                self.call_later,
                options,
                replica.throttle,
                replica.lines,
            )
        fetcher.follow(partition)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        heappush(self._events, (self.now + seconds, next(self._order), callback))

    def step(self) -> bool:
        """The next event; false when there is none."""
        if not self._events:
            return False
        self.now, _, callback = heappop(self._events)
        callback()
        for replica in self.all:
            replica.waiting.serve()
        return True

    def run(self, events: int = 200, *, syncs: bool = True) -> None:
        """So many events, with disks that sync at once or never."""
        for _ in range(events):
            if syncs:
                self.sync()
            if not self.step():
                return

    def sync(self) -> None:
        for replica in self.all:
            replica.sink.sync()
            replica.waiting.serve()

    def close(self) -> None:
        for replica in self.all:
            replica.sink.sync()
            replica.log.close()


def content(replica: Replica) -> bytes:
    """All bytes of a replica's log, from its start."""
    log = replica.log
    data = bytearray()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        if found.file_slice is None:
            break
        data += found.file_slice.read(log.files)
        offset = found.next_offset
    return bytes(data)
