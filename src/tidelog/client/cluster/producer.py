"""A producer of records: batches by partition, pipelined, sent again until they are acknowledged.

Records gather in one open batch per partition, which is sent when it is full or at a flush. Up to
five requests are in flight per broker, with at most one batch of a partition in each. When a batch
fails with a retriable error, those behind it are let come back as well, and all are sent again in
their order. An idempotent producer numbers its records, so a batch that is sent twice is stored
once, and one behind a gap is refused; without that, a retry may store records twice, or after
others that were sent later.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.connection import WireConnection
from tidelog.client.cluster.retrying import RETRY_BACKOFF, Retries, Stale, is_retriable
from tidelog.client.cluster.view import Address
from tidelog.client.errors import (
    BrokerError,
    ConnectError,
    PublishError,
    RetriableError,
    RetriesExhausted,
)
from tidelog.client.message import Headers
from tidelog.client.partitioners import TopicLayout
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    read_header,
)
from tidelog.protocol.records import Record, decode_records, encode_batch
from tidelog.protocol.topic_partition import TopicPartition

REQUESTS_IN_FLIGHT_MAX = 5
ACKS_ALL = -1

_REQUEST_BYTES_MAX = 8 * 1024 * 1024
# In open batches, of all partitions together.
_OPEN_BYTES_MAX = 32 * 1024 * 1024
# About what a record takes besides its key, value and headers.
_RECORD_OVERHEAD_BYTES = 16
_SEQUENCE_MASK = 2**31 - 1
# The newest version that names topics by name.
_NAMES_UP_TO = 12
# How long a topic may take to show up after it was asked for: brokers may make it then.
_TOPIC_TIMEOUT_S = 5.0
# New partitions of a topic are used after this long.
_LAYOUT_AGE_S_MAX = 60.0

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are written.

    `batch_bytes` is what one batch may hold before compression; a larger record has a batch of its
    own. `delivery_timeout_s` is how long the oldest records of a partition may stay unacknowledged.
    """

    acks: int = ACKS_ALL
    is_idempotent: bool = True
    compression: Compression = Compression.NONE
    batch_bytes: int = 512 * 1024
    delivery_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise PublishError(f"an idempotent producer needs acks=all, not acks={self.acks}")


@dataclass(slots=True, eq=False)
class _Batch:
    """Encoded records; `first` counts the records of the partition that came before them."""

    first: int
    record_count: int
    data: bytearray


@dataclass(slots=True, eq=False)
class _Queue:
    """What of one partition is not acknowledged: batches sent, batches to send, the open batch."""

    partition: TopicPartition
    batch_bytes: int
    sent: list[_Batch] = field(default_factory=list)
    unsent: deque[_Batch] = field(default_factory=deque)
    open: list[Record] = field(default_factory=list)
    open_bytes: int = 0
    next_record: int = 0
    failure: str | None = None
    """Why the batches in flight have to come back before any is sent."""
    since_s: float = 0.0
    """When the oldest batch was closed, or the last one was acknowledged."""

    def take_back(self, *batches: _Batch) -> None:
        """Batches were not stored: they are to be sent again, before all that come behind them."""
        for batch in batches:
            at = 0
            while at < len(self.unsent) and self.unsent[at].first < batch.first:
                at += 1
            self.unsent.insert(at, batch)


_Part = tuple[_Queue, _Batch]


@dataclass(slots=True, eq=False)
class _Pipeline:
    """One broker's connection, and what was sent on it and is not answered."""

    connection: WireConnection
    requests: deque[list[_Part]] = field(default_factory=deque)


class Producer:
    """Writes records to partitions. Not safe to share between threads.

    Its client's connections to leaders are its own until it is closed. A call raises a ClientError
    when records were refused, or not acknowledged in time; the producer is of no use afterwards.
    """

    def __init__(self, client: ClusterClient, settings: ProducerSettings) -> None:
        self._client = client
        self._cluster = client.cluster
        self._settings = settings
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._queues: dict[TopicPartition, _Queue] = {}
        self._pipelines: dict[Address, _Pipeline] = {}
        self._layouts: dict[str, tuple[float, TopicLayout]] = {}
        self._open_bytes = 0
        # How often in a row nothing was acknowledged before batches were sent again.
        self._failures = 0

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections on which answers are still to come; `flush` waits for them."""
        for pipeline in self._pipelines.values():
            if pipeline.requests:
                self._cluster.drop(pipeline.connection)
        self._pipelines.clear()

    def layout(self, topic: str) -> TopicLayout:
        """The partitions of a topic, which the broker may make for being asked."""
        now_s = time.monotonic()
        known = self._layouts.get(topic)
        if known is not None and now_s - known[0] <= _LAYOUT_AGE_S_MAX:
            return known[1]
        try:
            layout = self._find_layout(topic)
        except RetriesExhausted:
            # Brokers that are away now are waited for when the records are sent.
            if known is None:
                raise
            layout = known[1]
        if known is not None and known[1] == layout:
            # Partitioners tell by the object that nothing has changed.
            layout = known[1]
        self._layouts[topic] = (now_s, layout)
        return layout

    def send(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record. Waits when much is in flight or brokers are away."""
        size_bytes = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size_bytes += sum(2 + len(name) + len(each or b"") for name, each in headers)
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue(partition, self._settings.batch_bytes)
        if queue.open_bytes and queue.open_bytes + size_bytes > queue.batch_bytes:
            self._close_batch(queue)
            self._send_all()
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        queue.open.append(Record(len(queue.open), timestamp_ms, key, value, list(headers)))
        queue.open_bytes += size_bytes
        self._open_bytes += size_bytes
        if self._open_bytes > _OPEN_BYTES_MAX:
            self._close_batches()
            self._send_all()

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged."""
        self._close_batches()
        while self._has_unsent() or self._has_answers_to_come():
            self._send_all()
            self._receive_any()
        if self._settings.acks == 0:
            self._confirm()

    # Batches

    def _close_batches(self) -> None:
        for queue in self._queues.values():
            if queue.open:
                self._close_batch(queue)

    def _close_batch(self, queue: _Queue) -> None:
        records, queue.open = queue.open, []
        self._open_bytes -= queue.open_bytes
        queue.open_bytes = 0
        if not queue.sent and not queue.unsent:
            queue.since_s = time.monotonic()
        queue.unsent.append(self._encode(records, queue.next_record))
        queue.next_record += len(records)

    def _encode(self, records: Sequence[Record], first: int) -> _Batch:
        is_numbered = self._settings.is_idempotent
        if is_numbered and self._producer_id == NO_PRODUCER_ID:
            self._init_producer_id()
        data = encode_batch(
            records,
            compression=self._settings.compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=first & _SEQUENCE_MASK if is_numbered else NO_SEQUENCE,
        )
        return _Batch(first, len(records), data)

    def _init_producer_id(self) -> None:
        answer = self._client.ask_any(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            lambda response: response.error_code,
        )
        if answer.error_code:
            raise PublishError(f"no producer id: {ErrorCode(answer.error_code).name}")
        self._producer_id = answer.producer_id
        self._producer_epoch = answer.producer_epoch

    def _split(self, queue: _Queue, batch: _Batch) -> None:
        """Send a batch that is too large as two."""
        if batch.record_count == 1:
            raise PublishError(
                f"{queue.partition}: a record of {len(batch.data)} bytes is larger than"
                f" max.message.bytes of the topic allows"
            )
        queue.batch_bytes = min(queue.batch_bytes, len(batch.data) // 2)
        records = decode_records(batch.data, read_header(batch.data, 0))
        middle = len(records) // 2
        for record in records[middle:]:
            record.offset -= middle
        queue.take_back(
            self._encode(records[:middle], batch.first),
            self._encode(records[middle:], batch.first + middle),
        )

    # Sending

    def _has_unsent(self) -> bool:
        return any(queue.unsent for queue in self._queues.values())

    def _has_answers_to_come(self) -> bool:
        return any(pipeline.requests for pipeline in self._pipelines.values())

    def _send_all(self) -> None:
        while self._has_unsent():
            if not self._send_some():
                self._receive_any()

    def _send_some(self) -> bool:
        """Send what the windows have room for; False if that is nothing."""
        by_leader: dict[Address, list[_Queue]] = {}
        for queue in self._queues.values():
            if not queue.unsent or queue.failure is not None:
                continue
            leader = self._cluster.view.leaders.get(queue.partition)
            if leader is None:
                queue.failure = "it has no leader"
            else:
                by_leader.setdefault(leader.address, []).append(queue)
        has_sent = False
        for address, queues in by_leader.items():
            try:
                has_sent |= self._send_to(address, queues)
            except ConnectError as error:
                for queue in queues:
                    queue.failure = str(error)
                self._lose_connection(address, str(error))
        return has_sent

    def _send_to(self, address: Address, queues: Sequence[_Queue]) -> bool:
        pipeline = self._pipelines.get(address)
        if pipeline is None:
            pipeline = self._pipelines[address] = _Pipeline(self._cluster.connect(address))
        has_sent = False
        while len(pipeline.requests) < REQUESTS_IN_FLIGHT_MAX and (parts := _next_parts(queues)):
            for queue, batch in parts:
                queue.unsent.popleft()
                queue.sent.append(batch)
            pipeline.requests.append(parts)
            has_answer = self._settings.acks != 0
            pipeline.connection.send(
                self._request(parts), version_max=_NAMES_UP_TO, has_answer=has_answer
            )
            has_sent = True
            if not has_answer:
                for queue, batch in pipeline.requests.pop():
                    self._acknowledged(queue, batch)
        return has_sent

    def _request(self, parts: Sequence[_Part]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in parts:
            topic, partition = queue.partition
            topics.setdefault(topic, []).append(
                PartitionProduceData(index=partition, records=batch.data)
            )
        return ProduceRequest(
            acks=self._settings.acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()
            ],
        )

    # Answers

    def _receive_any(self) -> None:
        """Take the next answer; without any to come, see to what has failed."""
        waiting = [(address, each) for address, each in self._pipelines.items() if each.requests]
        if not waiting:
            self._start_over()
            return
        # The one that waits longest for room is the one that is fullest.
        address, pipeline = max(waiting, key=lambda each: len(each[1].requests))
        try:
            response = pipeline.connection.receive(ProduceResponse)
        except ConnectError as error:
            self._lose_connection(address, str(error))
            return
        parts = pipeline.requests.popleft()
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for queue, batch in parts:
            self._answered(queue, batch, rows[queue.partition])

    def _answered(self, queue: _Queue, batch: _Batch, row: PartitionProduceResponse) -> None:
        code = ErrorCode(row.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(queue, batch)
            return
        # Behind a batch that failed there is a gap.
        is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.failure is not None
        queue.sent.remove(batch)
        if code in _TOO_LARGE:
            self._split(queue, batch)
        elif is_retriable(code, Stale.METADATA) or is_behind:
            queue.take_back(batch)
            self._cluster.view.invalidate_leader(queue.partition, code)
        else:
            told = f"{row.error_message} ({code.name})" if row.error_message else code.name
            raise PublishError(f"{queue.partition}: {told}")
        if queue.failure is None:
            queue.failure = code.name

    def _acknowledged(self, queue: _Queue, batch: _Batch) -> None:
        queue.sent.remove(batch)
        queue.since_s = time.monotonic()
        self._failures = 0

    def _confirm(self) -> None:
        """Without acknowledgements: see that brokers have taken all that was sent to them.

        They work on the requests of a connection in turn, and end it where one fails.
        """
        for pipeline in self._pipelines.values():
            try:
                pipeline.connection.call(MetadataRequest(topics=[]), MetadataResponse)
            except ConnectError as error:
                raise PublishError(f"records may be lost: {error}") from error

    # Failures

    def _lose_connection(self, address: Address, reason: str) -> None:
        """What was in flight may be stored or not: it is sent again."""
        self._cluster.view.invalidate_broker(address)
        pipeline = self._pipelines.pop(address, None)
        if pipeline is None:
            return
        self._cluster.drop(pipeline.connection)
        for parts in pipeline.requests:
            for queue, batch in parts:
                queue.sent.remove(batch)
                queue.take_back(batch)
                queue.failure = reason

    def _start_over(self) -> None:
        """Nothing is in flight: look where the partitions that failed are now, and go on."""
        failed = [queue for queue in self._queues.values() if queue.failure is not None]
        if not failed:
            return
        timeout_s = self._settings.delivery_timeout_s
        for queue in failed:
            if queue.unsent and time.monotonic() - queue.since_s > timeout_s:
                raise PublishError(
                    f"{queue.partition}: records were not acknowledged within {timeout_s:g} s:"
                    f" {queue.failure}"
                )
        self._failures += 1
        time.sleep(RETRY_BACKOFF.pause_s(self._failures))
        try:
            answer = self._cluster.metadata(sorted({queue.partition.topic for queue in failed}))
        except ConnectError as error:
            for queue in failed:
                queue.failure = str(error)
            return
        codes = {topic.name: _check_topic(topic) for topic in answer.topics}
        for queue in failed:
            code = codes[queue.partition.topic]
            queue.failure = code.name if code else None

    def _find_layout(self, topic: str) -> TopicLayout:
        retries = Retries(_TOPIC_TIMEOUT_S)
        while True:
            try:
                return self._ask_layout(topic)
            except (ConnectError, RetriableError) as error:
                if isinstance(error, RetriableError) and retries.is_over:
                    raise BrokerError(error.code, f"cannot write to the topic {topic}") from error
                retries.wait(f"the partitions of {topic}", error)

    def _ask_layout(self, topic: str) -> TopicLayout:
        answer = self._cluster.metadata([topic], allow_auto_topic_creation=True)
        (row,) = answer.topics
        if code := _check_topic(row):
            raise RetriableError(code, topic)
        racks = {each.node_id: each.rack for each in answer.brokers}
        rows = sorted(row.partitions, key=lambda each: each.partition_index)
        return TopicLayout(topic, tuple(racks.get(each.leader_id) for each in rows))


def _next_parts(queues: Sequence[_Queue]) -> list[_Part]:
    """The next batch of each partition, as many as go into one request."""
    parts: list[_Part] = []
    size_bytes = 0
    for queue in queues:
        if not queue.unsent:
            continue
        batch = queue.unsent[0]
        size_bytes += len(batch.data)
        if parts and size_bytes > _REQUEST_BYTES_MAX:
            break
        parts.append((queue, batch))
    return parts


def _check_topic(topic: MetadataResponseTopic) -> ErrorCode:
    """The error of a topic if it may pass, or NONE; PublishError for any other."""
    code = ErrorCode(topic.error_code)
    if not code and not topic.partitions:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if code and not is_retriable(code, Stale.METADATA):
        raise PublishError(f"cannot write to the topic {topic.name}: {code.name}")
    return code
