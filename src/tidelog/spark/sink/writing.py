"""The rows of one task, encoded and produced."""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidelog.client.cluster import ClusterClient
from tidelog.client.cluster.batch_sender import SendSettings
from tidelog.client.cluster.layouts import find_layout
from tidelog.client.cluster.producer_identity import ProducerIdentity, init_idempotent
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.encode.batches import BatchEncoder, EncoderSettings
from tidelog.spark.encode.columns import column_bytes
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.producer import Producer
from tidelog.spark.sink.shape import Shape
from tidelog.spark.sink.transaction import OpenTransaction, Transactions

# Idempotent producers between two tasks, by bootstrap address: their numbers go on.
_idle: dict[str, list[tuple[ProducerIdentity, dict[TopicPartition, int]]]] = {}


def with_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches that have any."""
    return (batch for batch in batches if batch.num_rows)


class MeasuredRows:
    """Batches of rows that are measured as they pass: some microseconds a batch."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = 0
        self._size_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            self._rows += batch.num_rows
            self._size_bytes += column_bytes(columns.get("key")) + column_bytes(columns["value"])
            yield batch

    @property
    def shape(self) -> Shape:
        """That of all that has passed."""
        return Shape(self._rows, self._size_bytes)


def write_in_transaction(
    client: ClusterClient,
    options: SinkOptions,
    transaction: OpenTransaction,
    rows: Iterable[pa.RecordBatch],
) -> dict[str, int]:
    """Write all rows and wait for them; returns how many went to each partition."""

    def add_partitions(partitions: Iterable[TopicPartition]) -> None:
        Transactions(client).add_partitions(transaction, partitions)

    producer = Producer(
        client.cluster,
        ProducerIdentity(
            transaction.producer_id, transaction.producer_epoch, is_transactional=True
        ),
        SendSettings(
            options.acks,
            options.delivery_timeout_ms / 1000,
            transaction.transactional_id,
            transaction.is_v2,
        ),
        add_partitions=None if transaction.is_v2 else add_partitions,
    )
    _write(client, options, producer, rows)
    return _counts(producer)


def write_idempotently(
    client: ClusterClient, options: SinkOptions, rows: Iterable[pa.RecordBatch]
) -> dict[str, int]:
    """The same without a transaction: what is written is there at once, and stays."""
    idle = _idle.setdefault(options.bootstrap, [])
    identity, next_records = idle.pop() if idle else (init_idempotent(client), {})
    settings = SendSettings(options.acks, options.delivery_timeout_ms / 1000)
    producer = Producer(client.cluster, identity, settings, next_records=next_records)
    _write(client, options, producer, rows)
    idle.append((identity, producer.next_records))
    return _counts(producer)


def _write(
    client: ClusterClient, options: SinkOptions, producer: Producer, rows: Iterable[pa.RecordBatch]
) -> None:
    def partition_count(topic: str) -> int:
        return find_layout(client.cluster, topic, options.max_block_ms / 1000).partition_count

    encoder = BatchEncoder(
        EncoderSettings(options.topic, options.batch_bytes, options.compression), partition_count
    )
    try:
        for batch in rows:
            producer.send(encoder.encode(batch, int(time.time() * 1000)))
        producer.flush()
    except BaseException:
        producer.close()
        raise


def _counts(producer: Producer) -> dict[str, int]:
    return {
        f"{topic}-{partition}": rows
        for (topic, partition), rows in producer.rows_by_partition.items()
    }
