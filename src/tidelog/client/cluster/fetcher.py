"""A reader of partitions: one fetch per leader for all that it leads, sent ahead of the decoder.

As soon as an answer is here the next fetch goes out: where it begins is known from the headers of
the batches, so the broker reads while this side decodes. Brokers that go away and leaders that move
are waited for.
"""

import select
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.connection import WireConnection
from tidelog.client.cluster.offsets import EARLIEST
from tidelog.client.cluster.retrying import RETRY_BACKOFF, Stale, is_retriable
from tidelog.client.cluster.view import Address, PartitionLeader
from tidelog.client.errors import (
    BrokerError,
    ConnectError,
    ConsumeError,
    RetriableError,
    RetriesExhausted,
)
from tidelog.protocol.apis.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import BatchHeader, check_crc, iterate_headers
from tidelog.protocol.records import Record, decode_records
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID

_MAX_WAIT_MS = 500
_READ_COMMITTED = 1
# The newest version that names topics, for brokers whose metadata has no topic ids.
_NAMES_UP_TO = 12
# How long brokers may not know a topic before it is believed to be deleted.
_TOPIC_TIMEOUT_S = 10.0
# In a fetch it is not damage on the way: the broker's disk has it so.
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})
_TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How partitions are read.

    `reset` is where reading goes on when the position is not in the log (EARLIEST, LATEST; None is
    an error). `timeout_s` is how long brokers may be away.
    """

    read_committed: bool = True
    reset: int | None = EARLIEST
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition in the order of their offsets."""

    partition: TopicPartition
    records: list[Record]


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A fetch in flight: what was asked for, and under which names."""

    connection: WireConnection
    offsets: Mapping[TopicPartition, int]
    names: Mapping[bytes, str]


@dataclass(slots=True)
class _Failure:
    """Why a partition is not read for the moment, and when it is tried again."""

    since_s: float
    retry_s: float = 0.0
    count: int = 0
    gone_since_s: float | None = None
    """Since when brokers do not know the topic, if that is so."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The batches of one partition from `position` on, not decoded yet."""

    partition: TopicPartition
    position: int
    batches: memoryview
    aborted: list[AbortedTransaction]


class Fetcher:
    """Reads the partitions that it is assigned. Not safe to share between threads."""

    def __init__(self, client: ClusterClient, settings: FetchSettings) -> None:
        self._client = client
        # Fetches stay in flight while the client asks other things.
        self._cluster = client.cluster.sibling()
        self._settings = settings
        self._positions: dict[TopicPartition, int] = {}
        self._at_end: set[TopicPartition] = set()
        self._fetches: dict[Address, _Fetch] = {}
        self._failures: dict[TopicPartition, _Failure] = {}

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """For each partition that is read the offset after what `poll` gave out."""
        return self._positions

    @property
    def at_end(self) -> frozenset[TopicPartition]:
        """Those that had nothing more when they were last fetched."""
        return frozenset(self._at_end)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        for fetch in self._fetches.values():
            self._cluster.drop(fetch.connection)
        self._fetches.clear()
        self._positions = dict(positions)
        self._at_end.clear()
        self._failures.clear()

    def remove(self, partition: TopicPartition) -> None:
        """Read a partition no further."""
        self._positions.pop(partition, None)
        self._at_end.discard(partition)
        self._failures.pop(partition, None)

    def poll(self, timeout_s: float) -> Iterator[Fetched]:
        """What comes next, or nothing within the time; what is not taken of it is lost.

        RetriesExhausted for a partition that could not be read for too long, BrokerError and
        ConsumeError for one that cannot be read at all.
        """
        deadline_s = time.monotonic() + timeout_s
        answers: list[_Answer] = []
        while not answers:
            self._send_fetches()
            left_s = max(deadline_s - time.monotonic(), 0.0)
            for address in self._ready(left_s):
                answers += self._receive(address)
            if not left_s:
                break
        for answer in answers:
            if answer.partition in self._positions:
                yield Fetched(answer.partition, self._decode(answer))

    # Fetches

    def _send_fetches(self) -> None:
        """Fetch from every leader of which no answer is to come."""
        now_s = time.monotonic()
        in_flight = {name for fetch in self._fetches.values() for name in fetch.offsets}
        due = [
            name
            for name in self._positions
            if name not in in_flight
            and (name not in self._failures or self._failures[name].retry_s <= now_s)
        ]
        self._find_leaders(due)
        by_leader: dict[Address, dict[TopicPartition, PartitionLeader]] = {}
        for name in due:
            leader = self._cluster.view.leaders.get(name)
            if leader is not None and leader.address not in self._fetches:
                by_leader.setdefault(leader.address, {})[name] = leader
        for address, leaders in by_leader.items():
            self._send_fetch(address, leaders)

    def _send_fetch(
        self, address: Address, leaders: Mapping[TopicPartition, PartitionLeader]
    ) -> None:
        topics: dict[bytes | str, FetchTopic] = {}
        has_ids = all(leader.topic_id != ZERO_UUID for leader in leaders.values())
        for name, leader in leaders.items():
            topic = topics.setdefault(
                name.topic, FetchTopic(topic=name.topic, topic_id=leader.topic_id)
            )
            topic.partitions.append(
                FetchPartition(
                    partition=name.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=self._positions[name],
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._settings.max_bytes,
            isolation_level=_READ_COMMITTED if self._settings.read_committed else 0,
            topics=list(topics.values()),
        )
        try:
            connection = self._cluster.connect(address)
            connection.send(request, version_max=None if has_ids else _NAMES_UP_TO)
        except ConnectError as error:
            self._lose(address, leaders, error)
            return
        self._fetches[address] = _Fetch(
            connection,
            {name: self._positions[name] for name in leaders},
            {leader.topic_id: name.topic for name, leader in leaders.items()},
        )

    def _find_leaders(self, names: Iterable[TopicPartition]) -> None:
        """Ask for leaders that are not known."""
        known = self._cluster.view.leaders
        missing = {name for name in names if name not in known}
        if not missing:
            return
        try:
            answer = self._cluster.metadata(sorted({name.topic for name in missing}))
        except ConnectError as error:
            self._fail(missing, error)
            return
        codes = {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
        for name in missing:
            code = codes[name.topic]
            if code and not is_retriable(code, Stale.METADATA):
                raise BrokerError(code, name.topic)
            if name not in known:
                code = code or ErrorCode.LEADER_NOT_AVAILABLE
                self._fail([name], RetriableError(code, str(name)))

    def _lose(self, address: Address, names: Iterable[TopicPartition], error: ConnectError) -> None:
        fetch = self._fetches.pop(address, None)
        if fetch is not None:
            self._cluster.drop(fetch.connection)
        self._cluster.view.invalidate_broker(address)
        self._fail(names, error)

    def _fail(self, names: Iterable[TopicPartition], error: ConnectError | RetriableError) -> None:
        """Try partitions again after a pause; RetriesExhausted if that has not helped for long."""
        now_s = time.monotonic()
        code = error.code if isinstance(error, RetriableError) else ErrorCode.NONE
        for name in names:
            failure = self._failures.setdefault(name, _Failure(now_s))
            failure.count += 1
            failure.retry_s = now_s + RETRY_BACKOFF.pause_s(failure.count)
            if code not in _TOPIC_IS_GONE:
                failure.gone_since_s = None
            elif failure.gone_since_s is None:
                failure.gone_since_s = now_s
            elif now_s - failure.gone_since_s > _TOPIC_TIMEOUT_S:
                raise BrokerError(code, str(name))
            timeout_s = self._settings.timeout_s
            if now_s - failure.since_s > timeout_s:
                raise RetriesExhausted(f"{name}: nothing was read for {timeout_s:g} s: {error}")

    # Answers

    def _ready(self, timeout_s: float) -> Iterable[Address]:
        """The brokers whose answers begin to come; none when something is to be tried again."""
        now_s = time.monotonic()
        for failure in self._failures.values():
            # One whose time has come waits for its leader's answer, as all others do.
            if failure.retry_s > now_s:
                timeout_s = min(timeout_s, failure.retry_s - now_s)
        addresses = {fetch.connection.fileno(): each for each, fetch in self._fetches.items()}
        poll = select.poll()
        for number in addresses:
            poll.register(number, select.POLLIN)
        return [addresses[number] for number, _ in poll.poll(timeout_s * 1000)]

    def _receive(self, address: Address) -> list[_Answer]:
        """The records of an answer; the next fetch is sent."""
        fetch = self._fetches[address]
        try:
            response = fetch.connection.receive(FetchResponse)
        except ConnectError as error:
            self._lose(address, fetch.offsets, error)
            return []
        del self._fetches[address]
        if response.error_code:
            raise BrokerError(ErrorCode(response.error_code), f"fetching from {address}")
        answers: list[_Answer] = []
        for topic in response.responses:
            for row in topic.partitions:
                topic_name = topic.topic or fetch.names.get(topic.topic_id, "")
                name = TopicPartition(topic_name, row.partition_index)
                if name in fetch.offsets and name in self._positions:
                    answers += self._take(name, row)
        self._send_fetches()
        return answers

    def _take(self, name: TopicPartition, row: PartitionData) -> list[_Answer]:
        """What a row has to decode; moves the position."""
        position = self._positions[name]
        if row.error_code:
            self._refused(name, ErrorCode(row.error_code))
            return []
        self._failures.pop(name, None)
        batches = memoryview(row.records or b"")
        answers: list[_Answer] = []
        next_offset = position
        if batches:
            next_offset = self._next_offset(name, batches)
            answers.append(_Answer(name, position, batches, row.aborted_transactions or []))
            # Those that had their turn come last in the next fetch: an answer may not hold all.
            del self._positions[name]
            self._positions[name] = next_offset
        end = row.last_stable_offset if self._settings.read_committed else row.high_watermark
        if next_offset >= end:
            self._at_end.add(name)
        else:
            self._at_end.discard(name)
        return answers

    def _next_offset(self, name: TopicPartition, batches: memoryview) -> int:
        position = next_offset = self._positions[name]
        try:
            for _, header in iterate_headers(batches, allow_partial=True):
                next_offset = header.next_offset
        except ApiError as error:
            raise ConsumeError(f"{name}: {error.message} (offset {next_offset})") from None
        if next_offset <= position:
            raise ConsumeError(
                f"{name}: a fetch of offset {position} brought {len(batches)} bytes without a"
                " whole batch that reaches it"
            )
        return next_offset

    def _refused(self, name: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(name)
        elif code in _NOT_RETRIED or not is_retriable(code, Stale.METADATA):
            raise BrokerError(code, str(name))
        else:
            self._cluster.view.invalidate_leader(name, code)
            self._fail([name], RetriableError(code, str(name)))

    def _reset(self, name: TopicPartition) -> None:
        position, reset = self._positions[name], self._settings.reset
        if reset is None:
            raise ConsumeError(f"{name}: offset {position} is not in the log")
        (found,) = self._client.list_offsets(
            [{name: reset}], read_committed=self._settings.read_committed
        )
        if name not in found:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(name))
        self._positions[name] = found[name]

    # Records

    def _decode(self, answer: _Answer) -> list[Record]:
        """The data records, without those of aborted transactions where they are not wanted."""
        aborted = _Aborted(answer.aborted)
        records: list[Record] = []
        try:
            for at, header in iterate_headers(answer.batches, allow_partial=True):
                batch = answer.batches[at : at + header.size_bytes]
                check_crc(batch, 0, header.size_bytes)
                is_aborted = aborted.covers(header, batch)
                if header.is_control or (is_aborted and self._settings.read_committed):
                    continue
                decoded = decode_records(batch, header)
                if header.base_offset < answer.position:
                    decoded = [each for each in decoded if each.offset >= answer.position]
                records += decoded
        except ApiError as error:
            raise ConsumeError(f"{answer.partition}: {error.message}") from None
        return records


class _Aborted:
    """Which batches of one answer belong to aborted transactions; asked in their order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def covers(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._producers.add(self._to_come.pop().producer_id)
        if header.is_control:
            for record in decode_records(batch, header):
                marker = decode_control(record)
                if isinstance(marker, EndMarker) and not marker.is_commit:
                    self._producers.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._producers
