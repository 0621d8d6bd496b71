"""A producer of records: batches by partition, which a `BatchSender` sends.

Records gather in one open batch per partition, which is sent when it is full or at a flush. An
idempotent producer numbers its records, so each is stored once.
"""

import time
from dataclasses import dataclass, field

from tidelog.client.cluster.batch_sender import ACKS_ALL, BatchSender, SendSettings
from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.layouts import find_layout
from tidelog.client.cluster.producer_identity import ProducerIdentity, init_idempotent
from tidelog.client.errors import PublishError
from tidelog.client.message import Headers
from tidelog.client.topic_layout import TopicLayout
from tidelog.protocol.compression import Compression
from tidelog.protocol.record_batch import NO_PRODUCER_ID
from tidelog.protocol.records import Record
from tidelog.protocol.topic_partition import TopicPartition

# In open batches, of all partitions together.
_OPEN_BYTES_MAX = 32 * 1024 * 1024
# About what a record takes besides its key, value and headers.
_RECORD_OVERHEAD_BYTES = 16
# How long a topic may take to show up after it was asked for: brokers may make it then.
_TOPIC_TIMEOUT_S = 5.0


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
class _OpenBatch:
    """The records of one partition that are not encoded yet; `first_record` counts those before."""

    partition: TopicPartition
    size_bytes_max: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0
    first_record: int = 0


class Producer:
    """Writes records to partitions. Not safe to share between threads.

    Its client's connections to leaders are its own until it is closed. A call raises a ClientError
    when records were refused, or not acknowledged in time; the producer is of no use afterwards.
    """

    def __init__(self, client: ClusterClient, settings: ProducerSettings) -> None:
        self._client = client
        self._settings = settings
        self._identity = ProducerIdentity()
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self._open_bytes = 0
        self._sender = BatchSender(
            client.cluster,
            SendSettings(settings.acks, settings.delivery_timeout_s),
            on_split=self._lower_size,
        )

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections on which answers are still to come; `flush` waits for them."""
        self._sender.close()

    def layout(self, topic: str) -> TopicLayout:
        """The partitions of a topic, which the broker may make for being asked."""
        return find_layout(self._client.cluster, topic, _TOPIC_TIMEOUT_S)

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
        batch = self._open.get(partition)
        if batch is None:
            batch = _OpenBatch(partition, self._settings.batch_bytes)
            self._open[partition] = batch
        if batch.size_bytes and batch.size_bytes + size_bytes > batch.size_bytes_max:
            self._sender.send([self._encode(batch)])
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        batch.records.append(Record(len(batch.records), timestamp_ms, key, value, list(headers)))
        batch.size_bytes += size_bytes
        self._open_bytes += size_bytes
        if self._open_bytes > _OPEN_BYTES_MAX:
            self._send_open()

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged."""
        self._send_open()
        self._sender.flush()

    def _send_open(self) -> None:
        self._sender.send([self._encode(each) for each in self._open.values() if each.records])

    def _encode(self, batch: _OpenBatch) -> EncodedBatch:
        """What is in an open batch, which is empty then."""
        if self._settings.is_idempotent and self._identity.producer_id == NO_PRODUCER_ID:
            self._identity = init_idempotent(self._client)
        encoded = EncodedBatch.encode(
            batch.partition,
            batch.records,
            self._settings.compression,
            self._identity,
            batch.first_record,
        )
        self._open_bytes -= batch.size_bytes
        batch.records, batch.size_bytes = [], 0
        batch.first_record = encoded.next_record
        return encoded

    def _lower_size(self, partition: TopicPartition, size_bytes: int) -> None:
        """A batch was too large for its topic."""
        batch = self._open[partition]
        batch.size_bytes_max = min(batch.size_bytes_max, size_bytes)
