"""Rows of Arrow to record batches, each ready to be sent to one partition.

    encoder = BatchEncoder(EncoderSettings(topic="orders"), partition_count)
    for batch in encoder.encode(rows, timestamp_ms):
        batch.stamp(identity, first_record)
        ... batch.data ...

A batch is stamped by whoever knows the producer, as often as need be.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_header,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.encode.columns import Int64s, bytes_column, headers_column, integers
from tidelog.spark.encode.partitioning import choose_partitions, sort_rows
from tidelog.spark.encode.records import cut_batches, measure_rows, write_batches
from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.buffer_pool import BufferPool, PooledArray
from tidelog.spark.runtime.compiled import number_view

_MEMORY = BufferPool()

_NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """`topic` takes the place of the column; `batch_bytes` is before compression."""

    topic: str | None = None
    batch_bytes: int = 1_000_000
    compression: Compression = Compression.NONE


@dataclass(slots=True)
class _Sticky:
    """Where rows without a key go: the partition of each topic, and what went there so far."""

    partitions: dict[str, int] = field(default_factory=dict)
    sent_bytes: dict[str, int] = field(default_factory=dict)


class BatchEncoder:
    """Encodes the rows of one writer, whose columns are those of the sink.

    `partition_count` tells how many partitions a topic has.
    """

    def __init__(self, settings: EncoderSettings, partition_count: Callable[[str], int]) -> None:
        self._settings = settings
        self._partition_count = partition_count
        self._sticky = _Sticky()

    def encode(self, rows: pa.RecordBatch, timestamp_ms: int) -> list[EncodedBatch]:
        """The batches of all rows; those of one partition are in the order of the rows."""
        row_count = rows.num_rows
        if not row_count:
            return []
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        keys = bytes_column(columns.get("key"), row_count)
        values = bytes_column(columns["value"], row_count)
        headers = headers_column(columns.get("headers"), row_count)
        row_sizes = np.empty(row_count, np.int64)
        measure_rows(
            number_view(row_sizes),
            keys.sizes,
            values.sizes,
            headers.starts,
            headers.counts,
            headers.names.sizes,
            headers.values.sizes,
        )
        names, topics = self._topics(columns.get("topic"), row_count)
        counts = np.array([self._partition_count(name) for name in names], np.int64)
        chosen = self._wanted(columns.get("partition"), row_count, names, topics, counts)
        sticky = np.array([self._sticky_partition(name) for name in names], np.int64)
        sticky_bytes = np.array([self._sticky.sent_bytes.get(name, 0) for name in names], np.int64)
        choose_partitions(
            number_view(chosen),
            number_view(topics),
            number_view(counts),
            keys.data,
            keys.starts,
            keys.sizes,
            number_view(row_sizes),
            number_view(sticky),
            number_view(sticky_bytes),
            self._settings.batch_bytes,
        )
        self._sticky.partitions.update(zip(names, sticky.tolist(), strict=True))
        self._sticky.sent_bytes.update(zip(names, sticky_bytes.tolist(), strict=True))

        # A place is a partition of a topic; the topics' places follow each other.
        bases = np.cumsum(counts) - counts
        place_starts = np.zeros(int(counts.sum()) + 2, np.int64)
        order = np.empty(row_count, np.int64)
        sort_rows(
            number_view(chosen + bases[topics]), number_view(place_starts), number_view(order)
        )
        batches = np.empty((row_count, 4), np.int64)
        batch_count = cut_batches(
            number_view(order),
            number_view(place_starts),
            number_view(row_sizes),
            max(1, self._settings.batch_bytes - BATCH_OVERHEAD),
            number_view(batches),
        )
        batches = batches[:batch_count]
        size_bytes = int(batches[:, 3].sum()) + BATCH_OVERHEAD * batch_count
        memory = _MEMORY.allocate(size_bytes)
        end = write_batches(
            memory.view(),
            BATCH_OVERHEAD,
            number_view(batches),
            batch_count,
            number_view(order),
            number_view(row_sizes),
            keys.data,
            keys.starts,
            keys.sizes,
            values.data,
            values.starts,
            values.sizes,
            headers.starts,
            headers.counts,
            headers.names.data,
            headers.names.starts,
            headers.names.sizes,
            headers.values.data,
            headers.values.starts,
            headers.values.sizes,
        )
        assert end == size_bytes
        partitions = [
            TopicPartition(name, index)
            for name, count in zip(names, counts.tolist(), strict=True)
            for index in range(count)
        ]
        return self._batches(memory, batches, partitions, timestamp_ms)

    def _topics(self, column: pa.Array | None, row_count: int) -> tuple[list[str], Int64s]:
        """The topics' names, and for each row which of them is its own."""
        if self._settings.topic is not None:
            return [self._settings.topic], np.zeros(row_count, np.int64)
        assert column is not None
        if column.null_count:
            raise SparkError(
                "a row has null in the column topic: set the option topic, or give each row one"
            )
        encoded = column.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        return names, integers(encoded.indices, 0)

    def _wanted(
        self,
        column: pa.Array | None,
        row_count: int,
        names: Sequence[str],
        topics: Int64s,
        counts: Int64s,
    ) -> Int64s:
        """The partitions that the rows themselves name, and `_NO_PARTITION` for the others."""
        if column is None:
            return np.full(row_count, _NO_PARTITION, np.int64)
        wanted = integers(column, _NO_PARTITION)
        wrong = column.is_valid().to_numpy(zero_copy_only=False) & (
            (wanted < 0) | (wanted >= counts[topics])
        )
        if wrong.any():
            row = int(np.argmax(wrong))
            topic = int(topics[row])
            raise SparkError(
                f"a row has {int(wanted[row])} in the column partition, but the topic"
                f" {names[topic]} has the partitions 0 to {int(counts[topic]) - 1}"
            )
        return wanted

    def _sticky_partition(self, topic: str) -> int:
        """Where to begin is left to chance: writers of small batches must not all begin at 0."""
        return self._sticky.partitions.get(topic, random.getrandbits(16))

    def _batches(
        self,
        memory: PooledArray,
        batches: Int64s,
        partitions: Sequence[TopicPartition],
        timestamp_ms: int,
    ) -> list[EncodedBatch]:
        compression = self._settings.compression
        made: list[EncodedBatch] = []
        out = memory.array.data
        at = 0
        for place, first, end, size in batches.tolist():
            data = out[at : at + BATCH_OVERHEAD + size]
            at += BATCH_OVERHEAD + size
            lies_in: PooledArray | None = memory
            if compression is not Compression.NONE:
                body = compress(compression, data[BATCH_OVERHEAD:])
                data, lies_in = memoryview(bytearray(BATCH_OVERHEAD) + body), None
            data[:BATCH_OVERHEAD] = _header(len(data), end - first, timestamp_ms, compression)
            made.append(EncodedBatch(partitions[place], end - first, data, memory=lies_in))
        return made


def _header(
    size_bytes: int, record_count: int, timestamp_ms: int, compression: Compression
) -> bytes:
    """The header of a batch of records that have one timestamp; its CRC comes with the stamp."""
    return pack_header(
        BatchHeader(
            base_offset=0,
            batch_length=size_bytes - LOG_OVERHEAD,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=int(compression),
            last_offset_delta=record_count - 1,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=record_count,
        )
    )
