"""Sends encoded batches: pipelined, and again until they are acknowledged.

Up to five requests are in flight per broker, with at most one batch of a partition in each. When a
batch fails with a retriable error, those behind it are let come back as well, and all are sent
again in their order. Batches that carry sequence numbers without a gap are stored once, however
often they are sent, and one behind a gap is refused; without numbers, a retry may store records
twice, or after others that were sent later.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidelog.client.cluster.cluster import Cluster
from tidelog.client.cluster.connection import WireConnection
from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.layouts import check_writable
from tidelog.client.cluster.retrying import RETRY_BACKOFF, is_retriable
from tidelog.client.cluster.view import Address
from tidelog.client.errors import ConnectError, DeliveryTimeout, PublishError
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

ACKS_ALL = -1

_REQUESTS_IN_FLIGHT_MAX = 5
_REQUEST_BYTES_MAX = 8 * 1024 * 1024

# With transactions v2, version 12 makes a partition part of the transaction; 13 names topics by id.
_VERSION_MAX = {False: 11, True: 12}

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class SendSettings:
    """`delivery_timeout_s` is how long the oldest batch of a partition may stay unacknowledged."""

    acks: int = ACKS_ALL
    delivery_timeout_s: float = 30.0
    transactional_id: str | None = None
    is_v2: bool = True
    """Of the two flows of transactions, the one in which writing adds a partition."""


@dataclass(slots=True, eq=False)
class _Queue:
    """The batches of one partition that are not acknowledged: those sent, then those to send."""

    partition: TopicPartition
    sent: list[EncodedBatch] = field(default_factory=list)
    unsent: deque[EncodedBatch] = field(default_factory=deque)
    failure: str | None = None
    """Why the batches in flight have to come back before any is sent."""
    since_s: float = 0.0
    """When the oldest batch was handed in, or the last one was acknowledged."""

    def take_back(self, batch: EncodedBatch, parts: Sequence[EncodedBatch] = ()) -> None:
        """A batch was not stored: it, or its parts, are to be sent before all that come behind."""
        self.sent.remove(batch)
        at = 0
        while at < len(self.unsent) and self.unsent[at].first_record < batch.first_record:
            at += 1
        for each in reversed(parts or (batch,)):
            self.unsent.insert(at, each)


@dataclass(slots=True, eq=False)
class _Pipeline:
    """One broker's connection, and what was sent on it and is not answered."""

    connection: WireConnection
    requests: deque[list[EncodedBatch]] = field(default_factory=deque)


class BatchSender:
    """Sends batches to the leaders of their partitions. Not safe to share between threads.

    Its cluster's connections to leaders are its own until everything is flushed or it is closed. A
    call raises a ClientError when a batch was refused, or not acknowledged in time; the sender is
    of no use afterwards.

    `on_split` is called with the partition of a batch that was too large for its topic, and the
    size in bytes that the halves have about.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: SendSettings,
        *,
        on_split: Callable[[TopicPartition, int], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._on_split = on_split
        self._queues: dict[TopicPartition, _Queue] = {}
        self._pipelines: dict[Address, _Pipeline] = {}
        # How often in a row nothing was acknowledged before batches were sent again.
        self._failures = 0

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Hand in batches; returns when all are sent, though not all answered.

        Those of a partition come in the order of their records.
        """
        now_s = time.monotonic()
        for batch in batches:
            queue = self._queues.get(batch.partition)
            if queue is None:
                queue = self._queues[batch.partition] = _Queue(batch.partition)
            if not queue.sent and not queue.unsent:
                queue.since_s = now_s
            queue.unsent.append(batch)
        self._send_all()

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        while self._has_unsent() or self._has_requests_in_flight():
            self._send_all()
            self._receive_any()
        if self._settings.acks == 0:
            self._confirm()

    def close(self) -> None:
        """Let go of connections on which answers are still to come; `flush` waits for them."""
        for pipeline in self._pipelines.values():
            if pipeline.requests:
                self._cluster.drop(pipeline.connection)
        self._pipelines.clear()

    # Sending

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
        has_answer = self._settings.acks != 0
        has_sent = False
        while len(pipeline.requests) < _REQUESTS_IN_FLIGHT_MAX and (batches := _take_next(queues)):
            pipeline.requests.append(batches)
            pipeline.connection.send(
                self._request(batches),
                version_max=_VERSION_MAX[self._settings.is_v2],
                has_answer=has_answer,
            )
            has_sent = True
            if not has_answer:
                for batch in pipeline.requests.pop():
                    self._acknowledge(batch)
        return has_sent

    def _request(self, batches: Sequence[EncodedBatch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.partition
            topics.setdefault(topic, []).append(
                PartitionProduceData(index=partition, records=batch.data)
            )
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
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
        batches = pipeline.requests.popleft()
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for batch in batches:
            self._handle_answer(batch, rows[batch.partition])

    def _handle_answer(self, batch: EncodedBatch, row: PartitionProduceResponse) -> None:
        code = ErrorCode(row.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch)
            return
        queue = self._queues[batch.partition]
        # Behind a batch that failed there is a gap.
        is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.failure is not None
        if code in _TOO_LARGE:
            queue.take_back(batch, self._split(batch))
        elif is_retriable(code) or is_behind:
            queue.take_back(batch)
            self._cluster.view.invalidate_leader(batch.partition, code)
        else:
            told = f"{row.error_message} ({code.name})" if row.error_message else code.name
            raise PublishError(f"{batch.partition}: {told}")
        if queue.failure is None:
            queue.failure = code.name

    def _acknowledge(self, batch: EncodedBatch) -> None:
        queue = self._queues[batch.partition]
        queue.sent.remove(batch)
        queue.since_s = time.monotonic()
        self._failures = 0

    def _split(self, batch: EncodedBatch) -> Sequence[EncodedBatch]:
        halves = batch.split()
        if not halves:
            raise PublishError(
                f"{batch.partition}: a record of {len(batch.data)} bytes is larger than"
                " max.message.bytes of the topic allows"
            )
        if self._on_split is not None:
            self._on_split(batch.partition, len(batch.data) // 2)
        return halves

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
        for batches in pipeline.requests:
            for batch in batches:
                queue = self._queues[batch.partition]
                queue.take_back(batch)
                queue.failure = reason

    def _start_over(self) -> None:
        """Nothing is in flight: look where the partitions that failed are now, and go on."""
        failed = [queue for queue in self._queues.values() if queue.failure is not None]
        if not failed:
            return
        now_s = time.monotonic()
        timeout_s = self._settings.delivery_timeout_s
        for queue in failed:
            if queue.unsent and now_s - queue.since_s > timeout_s:
                raise DeliveryTimeout(queue.partition, timeout_s, queue.failure or "")
        self._failures += 1
        time.sleep(RETRY_BACKOFF.pause_s(self._failures))
        topics = sorted({queue.partition.topic for queue in failed})
        try:
            answer = self._cluster.metadata(topics, allow_auto_topic_creation=True)
        except ConnectError as error:
            for queue in failed:
                queue.failure = str(error)
            return
        codes = {topic.name: check_writable(topic) for topic in answer.topics}
        for queue in failed:
            code = codes[queue.partition.topic]
            queue.failure = code.name if code else None


def _take_next(queues: Sequence[_Queue]) -> list[EncodedBatch]:
    """The next batch of each partition, as many as go into one request: they count as sent."""
    batches: list[EncodedBatch] = []
    size_bytes = 0
    for queue in queues:
        if not queue.unsent:
            continue
        size_bytes += len(queue.unsent[0].data)
        if batches and size_bytes > _REQUEST_BYTES_MAX:
            break
        batch = queue.unsent.popleft()
        queue.sent.append(batch)
        batches.append(batch)
    return batches
