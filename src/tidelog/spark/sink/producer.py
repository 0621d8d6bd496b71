"""A producer of batches: numbered, pipelined, sent again until they are acknowledged.

Each partition's batches carry sequence numbers without a gap, so a batch that is sent twice is
stored once. Up to five requests are in flight per broker, with at most one batch of a partition in
each. When a batch fails with a retriable error, those behind it are let come back as well (the
broker refuses them, for there is a gap before them), and all are sent again in their order.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidelog.client.cluster import (
    RETRY_BACKOFF,
    Address,
    ClusterClient,
    WireConnection,
    is_retriable,
)
from tidelog.client.errors import ConnectError
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.encode.batches import EncodedBatch
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.topics import refresh_topics

REQUESTS_IN_FLIGHT_MAX = 5
_REQUEST_BYTES_MAX = 8 * 1024 * 1024

# Version 12 makes a partition part of the transaction; 13 names topics by id.
_VERSION_MAX = {False: 11, True: 12}

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ProduceError(SparkError):
    """A batch was refused for good; `code` says why."""

    def __init__(self, partition: TopicPartition, code: ErrorCode, message: str) -> None:
        super().__init__(f"{partition.topic}-{partition.partition}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Whom the broker takes the batches to be from."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None
    is_v2: bool = True


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    acks: int = -1
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000


@dataclass(slots=True)
class _Queue:
    """The batches of one partition that are not acknowledged: those sent, then those to send."""

    partition: TopicPartition
    next_sequence: int
    sent: deque[EncodedBatch] = field(default_factory=deque)
    unsent: deque[EncodedBatch] = field(default_factory=deque)
    failure: str | None = None
    """Why the batches in flight have to come back before any is sent."""
    since_s: float = 0.0
    """When the oldest batch was handed in, or the last one was acknowledged."""

    def take_back(self, batch: EncodedBatch) -> None:
        """A batch was not stored: it is to be sent again, before all that come behind it."""
        self.sent.remove(batch)
        at = 0
        while at < len(self.unsent) and _is_before(self.unsent[at], batch):
            at += 1
        self.unsent.insert(at, batch)


@dataclass(slots=True)
class _Pipeline:
    """One broker's connection, and what was sent on it and is not answered."""

    connection: WireConnection
    requests: deque[list[tuple[_Queue, EncodedBatch]]] = field(default_factory=deque)


class Producer:
    """Writes batches under one identity. Not safe to share between threads.

    `add_partitions` is called before the first batch of a partition is sent, while nothing is in
    flight: a transaction of the old flow has to be told.
    """

    def __init__(
        self,
        client: ClusterClient,
        identity: ProducerIdentity,
        settings: ProducerSettings,
        *,
        sequences: dict[TopicPartition, int] | None = None,
        add_partitions: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._settings = settings
        self._add_partitions = add_partitions
        self._sequences = {} if sequences is None else sequences
        self._queues: dict[TopicPartition, _Queue] = {}
        self._pipelines: dict[Address, _Pipeline] = {}
        # How often in a row nothing was acknowledged before batches were sent again.
        self._failures = 0
        self.rows_by_partition: dict[TopicPartition, int] = {}

    @property
    def sequences(self) -> dict[TopicPartition, int]:
        """The number of each partition's next record, when all were acknowledged."""
        return {each.partition: each.next_sequence for each in self._queues.values()}

    def send(self, batches: Sequence[EncodedBatch]) -> None:
        """Hand in batches; returns when all are sent, though not all answered."""
        added = {each.partition for each in batches}.difference(self._queues)
        if added and self._add_partitions is not None:
            self._wait_for_responses()
            self._add_partitions(added)
        now_s = time.monotonic()
        for batch in batches:
            queue = self._queue(batch.partition)
            self._stamp(queue, batch)
            if not queue.sent and not queue.unsent:
                queue.since_s = now_s
            queue.unsent.append(batch)
        self._send_all()

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        while self._has_unsent() or self._has_requests_in_flight():
            self._send_all()
            self._receive_any()

    def close(self) -> None:
        """Let go of connections on which responses are still to come."""
        for pipeline in self._pipelines.values():
            if pipeline.requests:
                self._client.cluster.drop(pipeline.connection)
        self._pipelines.clear()

    # Sending

    def _queue(self, partition: TopicPartition) -> _Queue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = _Queue(partition, self._sequences.get(partition, 0))
            self._queues[partition] = queue
        return queue

    def _stamp(self, queue: _Queue, batch: EncodedBatch) -> None:
        identity = self._identity
        batch.stamp(
            identity.producer_id,
            identity.producer_epoch,
            queue.next_sequence,
            is_transactional=identity.transactional_id is not None,
        )
        queue.next_sequence = batch.next_sequence

    def _has_unsent(self) -> bool:
        return any(queue.unsent for queue in self._queues.values())

    def _has_requests_in_flight(self) -> bool:
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
            leader = self._client.cluster.view.leaders.get(queue.partition)
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

    def _send_to(self, leader: Address, queues: Sequence[_Queue]) -> bool:
        pipeline = self._pipelines.get(leader)
        if pipeline is None:
            pipeline = _Pipeline(self._client.cluster.connect(leader))
            self._pipelines[leader] = pipeline
        has_sent = False
        while len(pipeline.requests) < REQUESTS_IN_FLIGHT_MAX:
            parts: list[tuple[_Queue, EncodedBatch]] = []
            size_bytes = 0
            for queue in queues:
                if not queue.unsent:
                    continue
                size_bytes += len(queue.unsent[0].data)
                if parts and size_bytes > _REQUEST_BYTES_MAX:
                    break
                parts.append((queue, queue.unsent[0]))
            if not parts:
                break
            for queue, _ in parts:
                queue.sent.append(queue.unsent.popleft())
            pipeline.requests.append(parts)
            pipeline.connection.send(
                self._request(parts), version_max=_VERSION_MAX[self._identity.is_v2]
            )
            has_sent = True
        return has_sent

    def _request(self, parts: Sequence[tuple[_Queue, EncodedBatch]]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in parts:
            topic, partition = queue.partition
            topics.setdefault(topic, []).append(
                PartitionProduceData(index=partition, records=batch.data)
            )
        return ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()
            ],
        )

    # Responses

    def _wait_for_responses(self) -> None:
        while self._has_requests_in_flight():
            self._receive_any()

    def _receive_any(self) -> None:
        """Take the next response; without any to come, see to what has failed."""
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
            (topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for queue, batch in parts:
            self._handle_response(
                queue, batch, rows[queue.partition.topic, queue.partition.partition]
            )

    def _handle_response(
        self, queue: _Queue, batch: EncodedBatch, row: PartitionProduceResponse
    ) -> None:
        code = ErrorCode(row.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.sent.remove(batch)
            queue.since_s = time.monotonic()
            self._failures = 0
            rows = self.rows_by_partition
            rows[queue.partition] = rows.get(queue.partition, 0) + batch.record_count
            return
        # Behind a batch that failed there is a gap.
        is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.failure is not None
        if code in _TOO_LARGE:
            self._split(queue, batch)
        elif is_retriable(code) or is_behind:
            queue.take_back(batch)
            self._client.cluster.view.invalidate_leader(queue.partition, code)
        else:
            raise ProduceError(
                queue.partition, code, f"{code.name} {row.error_message or ''}".rstrip()
            )
        if queue.failure is None:
            queue.failure = code.name

    def _split(self, queue: _Queue, batch: EncodedBatch) -> None:
        halves = batch.split()
        if not halves:
            raise ProduceError(
                queue.partition,
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {len(batch.data)} bytes is larger than max.message.bytes of the"
                " topic allows",
            )
        identity = self._identity
        sequence = batch.base_sequence
        queue.sent.remove(batch)
        for half in halves:
            half.stamp(
                identity.producer_id,
                identity.producer_epoch,
                sequence,
                is_transactional=identity.transactional_id is not None,
            )
            sequence = half.next_sequence
            queue.sent.append(half)
            queue.take_back(half)

    # Failures

    def _lose_connection(self, address: Address, reason: str) -> None:
        """What was in flight may be stored or not: it is sent again, and stored once."""
        self._client.cluster.view.invalidate_broker(address)
        pipeline = self._pipelines.pop(address, None)
        if pipeline is None:
            return
        self._client.cluster.drop(pipeline.connection)
        for parts in pipeline.requests:
            for queue, batch in parts:
                queue.take_back(batch)
                queue.failure = reason

    def _start_over(self) -> None:
        """Nothing is in flight: look where the partitions that failed are now, and go on."""
        failed = [queue for queue in self._queues.values() if queue.failure is not None]
        if not failed:
            return
        now_s = time.monotonic()
        for queue in failed:
            if queue.unsent and now_s - queue.since_s > self._settings.delivery_timeout_ms / 1000:
                raise ProduceError(
                    queue.partition,
                    ErrorCode.REQUEST_TIMED_OUT,
                    "records were not acknowledged within kafka.delivery.timeout.ms,"
                    f" {self._settings.delivery_timeout_ms} ms, at last: {queue.failure}",
                )
        self._failures += 1
        time.sleep(RETRY_BACKOFF.pause_s(self._failures))
        refresh_topics(
            self._client,
            {queue.partition.topic for queue in failed},
            self._settings.delivery_timeout_ms / 1000,
        )
        for queue in failed:
            queue.failure = None


def _is_before(one: EncodedBatch, other: EncodedBatch) -> bool:
    """By sequence number, which begins anew after 2^31 - 1."""
    return 0 < ((other.base_sequence - one.base_sequence) & 0x7FFF_FFFF) < 0x4000_0000
