"""One record batch for one partition, encoded: what a `BatchSender` sends."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.client.cluster.producer_identity import ProducerIdentity
from tidelog.protocol.compression import Compression
from tidelog.protocol.record_batch import read_header, stamp_producer
from tidelog.protocol.records import Record, decode_records, encode_batch
from tidelog.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class EncodedBatch:
    """`data` is the whole batch; `first_record` counts the partition's records before it."""

    partition: TopicPartition
    record_count: int
    data: bytearray | memoryview
    first_record: int = 0
    memory: object = None
    """What `data` lies in if it is not its own: it is used again when no batch refers to it."""

    @classmethod
    def encode(
        cls,
        partition: TopicPartition,
        records: Sequence[Record],
        compression: Compression,
        identity: ProducerIdentity,
        first_record: int,
    ) -> "EncodedBatch":
        """A batch of records, whose offsets count from 0."""
        data = encode_batch(
            records,
            compression=compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=identity.sequence(first_record),
            is_transactional=identity.is_transactional,
        )
        return cls(partition, len(records), data, first_record)

    @property
    def next_record(self) -> int:
        """How many records of the partition there are up to the end of this batch."""
        return self.first_record + self.record_count

    def stamp(self, identity: ProducerIdentity, first_record: int) -> None:
        """Say who sends the batch, and compute its CRC (0.06 µs a KB)."""
        self.first_record = first_record
        stamp_producer(
            self.data,
            0,
            identity.producer_id,
            identity.producer_epoch,
            identity.sequence(first_record),
            is_transactional=identity.is_transactional,
        )

    def split(self) -> list["EncodedBatch"]:
        """Two batches of half the records each; of one record there is no half."""
        if self.record_count == 1:
            return []
        header = read_header(self.data, 0)
        identity = ProducerIdentity(
            header.producer_id, header.producer_epoch, header.is_transactional
        )
        records = decode_records(self.data, header)
        middle = len(records) // 2
        for record in records[middle:]:
            record.offset -= middle
        return [
            EncodedBatch.encode(self.partition, half, header.compression, identity, first)
            for half, first in (
                (records[:middle], self.first_record),
                (records[middle:], self.first_record + middle),
            )
        ]
