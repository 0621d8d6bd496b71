"""A range of offsets of one partition, read from its leader as Arrow batches.

The next fetch is sent as soon as the response before it is here: where it begins is known from the
headers of the batches, so the broker reads while this side decodes. A broker on the same machine
hands over the files that the records lie in (`tidelog.client.cluster.local`): then there is nothing
to send or receive. A broker that goes away, a leader that moves, and metadata that is behind are
waited for; what makes no progress for `timeout_s` fails.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa

from tidelog.client.cluster import (
    RETRY_BACKOFF,
    PartitionLeader,
    Retries,
    Stale,
    WireConnection,
    is_retriable,
)
from tidelog.client.cluster.local import LocalConnection
from tidelog.client.errors import BrokerError, ConnectError, RetriableError, RetriesExhausted
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.spark.connections import PooledCluster, ReceiveBuffer, lent_cluster
from tidelog.spark.decode import AbortedTransactions, FetchedBatches, RangeDecoder
from tidelog.spark.errors import DataLossError, SparkError
from tidelog.spark.offsets import EARLIEST, LATEST, OffsetRange
from tidelog.spark.source.options import INT32_MAX
from tidelog.spark.source.topic_identity import is_other_topic

_log = logging.getLogger(__name__)

_MAX_WAIT_MS = 500
_PAUSE_S = 0.02
_BACKOFF = replace(RETRY_BACKOFF, first_s=_PAUSE_S, longest_s=1.0)
_CALL_TIMEOUT_S_MAX = 10.0
_READ_COMMITTED = 1
_EARLIEST_LOCAL = -4
_EARLIEST_LOCAL_FROM = 8
# The newest version that names topics, for brokers whose metadata has no topic ids.
_NAMES_UP_TO = 12
# What an offset is taken to have in bytes until a fetch has shown it.
_BYTES_PER_OFFSET = 4096
_MARGIN = 1.125
_FETCH_BYTES_MIN = 64 * 1024
# Responses without records before a range is believed to hold no more of them.
_EMPTY_RESPONSES_MAX = 3
# Of a file so many times more is asked for at once: it takes no memory.
_FILE_TIMES = 4
# How often reading files may fail before records come over TCP for the rest of a range.
_LOCAL_FAILURES_MAX = 2

# Worth another try where failing costs all that the task has read; so does Kafka's own consumer.
_ALSO_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})
# In a fetch it is not damage on the way: the broker's disk has it so.
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})
_TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a partition is read.

    `max_bytes` is what one fetch may bring, `rows_max` the rows of one Arrow batch, and
    `timeout_s` how long a broker may be away, or silent, before the read fails. With `local_reads`
    the files of a broker on the same machine are read, if it hands them over.
    """

    bootstrap: str
    client_id: str = "tidelog-spark"
    read_committed: bool = True
    include_headers: bool = False
    fail_on_data_loss: bool = True
    max_bytes: int = 8 * 1024 * 1024
    rows_max: int = 10_000
    timeout_s: float = 60.0
    local_reads: bool = True


class OffsetsGone(DataLossError):
    """Records from `position` on are not in the log; reading can go on at `resumes_at`.

    Everything before `position` was given out.
    """

    def __init__(self, problem: str, position: int, resumes_at: int) -> None:
        super().__init__(f"{problem}; set failOnDataLoss to false to go on with what is there")
        self.problem = problem
        self.position = position
        self.resumes_at = resumes_at


class TopicMadeAnew(OffsetsGone):
    """The topic of this name is another one now; reading on would be reading that one."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """The record batches of one response, and the offset that it was asked for."""

    start: int
    batches: FetchedBatches
    aborted: AbortedTransactions | None


def read_range(
    settings: FetchSettings, wanted: OffsetRange, topic_id: bytes | None = None
) -> Iterator[pa.RecordBatch]:
    """The data records of a range, with the columns of `schema.arrow_schema`.

    Control records are left out, and with `read_committed` those of aborted transactions. Offsets
    that compaction removed are passed over. Offsets that are no longer in the log are OffsetsGone,
    or passed over where `fail_on_data_loss` is off. So is a topic with another id than `topic_id`,
    if that is given.
    """
    decoder = RangeDecoder(
        wanted, include_headers=settings.include_headers, rows_max=settings.rows_max
    )
    try:
        with closing(_RangeFetch(settings, wanted, topic_id).responses()) as responses:
            for each in responses:
                yield from decoder.add(each.batches, each.aborted, each.start)
    except OffsetsGone:
        yield from decoder.finish()
        raise
    yield from decoder.finish()


class _RangeFetch:
    """The fetches of one range, one of them in flight while the response before it is decoded."""

    def __init__(
        self, settings: FetchSettings, wanted: OffsetRange, topic_id: bytes | None
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._name = TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.start
        self._topic_id = topic_id
        self._bytes_per_offset = float(_BYTES_PER_OFFSET)
        self._empty_responses = 0
        self._local_failures = 0
        # They begin again with all progress.
        self._retries = Retries(settings.timeout_s, backoff=_BACKOFF)

    def responses(self) -> Generator[_Fetched, None, None]:
        """What the broker answers until the range is complete."""
        settings = self._settings
        call_timeout_s = min(_CALL_TIMEOUT_S_MAX, settings.timeout_s)
        while self._position < self._wanted.end:
            try:
                with lent_cluster(settings.bootstrap, settings.client_id, call_timeout_s) as pooled:
                    yield from self._fetch_from_leader(pooled)
            except (ConnectError, RetriableError) as error:
                self._wait_after(error)

    def _fetch_from_leader(self, pooled: PooledCluster) -> Iterator[_Fetched]:
        leader = self._find_leader(pooled)
        try:
            local = self._connect_locally(pooled, leader)
            if local is None:
                connection = pooled.cluster.connect(leader.address)
                yield from self._fetch_over(connection, leader, pooled.buffer)
                return
            try:
                yield from self._fetch_over(local, leader, pooled.buffer)
            except ConnectError:
                self._local_failures += 1
                raise
        except ConnectError:
            pooled.cluster.view.invalidate_broker(leader.address)
            raise
        except RetriableError as error:
            pooled.cluster.view.invalidate_leader(self._name, error.code)
            raise

    def _connect_locally(
        self, pooled: PooledCluster, leader: PartitionLeader
    ) -> LocalConnection | None:
        if not self._settings.local_reads or self._local_failures >= _LOCAL_FAILURES_MAX:
            return None
        return pooled.connect_locally(leader)

    def _fetch_over(
        self, connection: WireConnection, leader: PartitionLeader, buffer: ReceiveBuffer
    ) -> Iterator[_Fetched]:
        self._send(connection, leader)
        while True:
            fetched = self._receive(connection, leader, buffer)
            is_done = self._position >= self._wanted.end
            failure = None if is_done else self._send_ahead(connection, leader)
            if fetched is not None:
                yield fetched
                # The time that the caller took is not the broker's.
                self._retries.restart()
            if failure is not None:
                raise failure
            if is_done:
                return

    def _send_ahead(
        self, connection: WireConnection, leader: PartitionLeader
    ) -> ConnectError | None:
        """Ask for what comes next; a failure must not cost the response that was just received."""
        try:
            self._send(connection, leader)
        except ConnectError as error:
            return error
        return None

    def _find_leader(self, pooled: PooledCluster) -> PartitionLeader:
        try:
            leader = pooled.cluster.leader(self._name)
            if is_other_topic(self._topic_id, leader.topic_id):
                # What was heard before may be of the topic that is gone.
                leader = pooled.cluster.leader(self._name, refresh=True)
        except RetriableError:
            raise
        except BrokerError as error:
            self._refuse(error.code)
        if is_other_topic(self._topic_id, leader.topic_id):
            self._lose(
                f"the topic was deleted and made anew after offset {self._position} was read",
                resumes_at=self._position,
                kind=TopicMadeAnew,
            )
        return leader

    def _send(self, connection: WireConnection, leader: PartitionLeader) -> None:
        is_local = isinstance(connection, LocalConnection)
        size_bytes = self._bytes_to_ask(_FILE_TIMES if is_local else 1)
        partition = FetchPartition(
            partition=self._wanted.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=size_bytes,
        )
        topic = FetchTopic(
            topic=self._wanted.topic, topic_id=leader.topic_id, partitions=[partition]
        )
        request = FetchRequest(
            max_wait_ms=0 if self._empty_responses else _MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size_bytes,
            isolation_level=_READ_COMMITTED if self._settings.read_committed else 0,
            topics=[topic],
        )
        has_id = leader.topic_id != ZERO_UUID
        connection.send(request, version_max=None if has_id else _NAMES_UP_TO)

    def _bytes_to_ask(self, times: int) -> int:
        """About what the rest of the range has: a short range does not fetch what follows it."""
        rest = (self._wanted.end - self._position) * self._bytes_per_offset * _MARGIN
        most = min(times * self._settings.max_bytes, INT32_MAX)
        return min(most, max(_FETCH_BYTES_MIN, int(rest)))

    def _receive(
        self, connection: WireConnection, leader: PartitionLeader, buffer: ReceiveBuffer
    ) -> _Fetched | None:
        """The next response with records in it, which is there until the next one; moves on."""
        response = connection.receive(FetchResponse, allocate=buffer.allocate)
        if response.error_code:
            self._refuse(response.error_code)
        rows = [row for topic in response.responses for row in topic.partitions]
        if not rows:
            # What a broker answers to a client above its quota.
            self._check_patience("the broker gives no answer for it")
            return None
        row = rows[0]
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pass_over_lost(connection)
            return None
        if row.error_code:
            self._refuse(row.error_code)
        self._topic_id = leader.topic_id
        if not row.records:
            self._accept_nothing(row, connection)
            return None
        records = memoryview(row.records)
        if isinstance(connection, LocalConnection):
            records = connection.resolve(records, buffer.allocate)
        return self._accept(row, records)

    def _accept(self, row: PartitionData, records: memoryview) -> _Fetched:
        try:
            batches = FetchedBatches(records)
        except ApiError as error:
            raise SparkError(f"{self._name}: {error.message} (offset {self._position})") from None
        start, next_offset = self._position, batches.next_offset
        if next_offset <= start:
            raise SparkError(
                f"{self._name}: a fetch of offset {start} brought {len(records)} bytes without a"
                " whole batch that reaches it"
            )
        self._bytes_per_offset = len(records) / (next_offset - start)
        self._position = next_offset
        self._empty_responses = 0
        self._retries.restart()
        aborted = None
        if self._settings.read_committed:
            aborted = AbortedTransactions(
                (each.producer_id, each.first_offset) for each in row.aborted_transactions or ()
            )
        return _Fetched(start, batches, aborted)

    def _accept_nothing(self, row: PartitionData, connection: WireConnection) -> None:
        """No records from the position on: compaction left none, or they are not readable yet."""
        is_committed = self._settings.read_committed
        readable_to = row.last_stable_offset if is_committed else row.high_watermark
        if readable_to < self._wanted.end:
            name = "last stable offset" if is_committed else "high watermark"
            self._check_patience(f"its {name} stays at {readable_to}")
            return
        self._empty_responses += 1
        if self._empty_responses < _EMPTY_RESPONSES_MAX:
            return
        if self._is_on_disk(connection):
            self._position = self._wanted.end
        else:
            self._check_patience("its tiered storage does not give it")

    def _is_on_disk(self, connection: WireConnection) -> bool:
        """Whether the position is in the log of the broker itself, not in tiered storage.

        A fetch from there that takes too long is answered with nothing, as if nothing were left.
        """
        if connection.version(ApiKey.LIST_OFFSETS) < _EARLIEST_LOCAL_FROM:
            return True
        return self._position >= self._ask_offset(connection, _EARLIEST_LOCAL)

    def _pass_over_lost(self, connection: WireConnection) -> None:
        earliest = self._ask_offset(connection, EARLIEST)
        latest = self._ask_offset(connection, LATEST)
        if earliest <= self._position <= latest:
            raise RetriableError(ErrorCode.OFFSET_OUT_OF_RANGE, str(self._name))
        is_removed = self._position < earliest < self._wanted.end
        self._lose(
            f"offset {self._position} is not in the log, which has {earliest} to {latest} now",
            resumes_at=earliest if is_removed else self._wanted.end,
        )

    def _ask_offset(self, connection: WireConnection, timestamp: int) -> int:
        partition = ListOffsetsPartition(
            partition_index=self._wanted.partition, timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=self._wanted.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = connection.call(request, ListOffsetsResponse)
        row = response.topics[0].partitions[0]
        if row.error_code:
            self._refuse(row.error_code)
        return row.offset

    def _refuse(self, error_code: int) -> NoReturn:
        code = ErrorCode(error_code)
        is_listed = is_retriable(code, Stale.METADATA) and code not in _NOT_RETRIED
        if is_listed or code in _ALSO_RETRIED:
            raise RetriableError(code, str(self._name))
        raise SparkError(f"{self._name} cannot be read from offset {self._position}: {code.name}")

    def _lose(
        self, problem: str, *, resumes_at: int, kind: type[OffsetsGone] = OffsetsGone
    ) -> None:
        """Records of the range are gone: an error, or a warning and on behind them."""
        wanted = self._wanted
        text = f"{self._name}, offsets {wanted.start} to {wanted.end}: {problem}"
        if self._settings.fail_on_data_loss:
            raise kind(text, self._position, resumes_at) from None
        _log.warning("%s; going on with what is there", text)
        self._position = resumes_at

    def _check_patience(self, problem: str) -> None:
        if self._retries.is_over:
            raise self._too_late(problem)
        time.sleep(_PAUSE_S)

    def _wait_after(self, error: ConnectError | RetriableError) -> None:
        is_gone = isinstance(error, RetriableError) and error.code in _TOPIC_IS_GONE
        if is_gone and self._retries.is_over:
            self._lose(
                f"the partition has not been there for {self._retries.waited_s:.0f} s",
                resumes_at=self._wanted.end,
            )
            return
        try:
            self._retries.wait(str(self._name), error)
        except RetriesExhausted:
            raise self._too_late(self._retries.tried(error)) from error

    def _too_late(self, problem: str) -> SparkError:
        return SparkError(
            f"{self._name}: offset {self._position} of the range {self._wanted.start} to"
            f" {self._wanted.end} could not be read for {self._retries.waited_s:.0f} s: {problem}"
        )
