"""A producer of batches under one identity: numbers them without a gap, by partition."""

from collections.abc import Callable, Iterable, Sequence

from tidelog.client.cluster import Cluster
from tidelog.client.cluster.batch_sender import BatchSender, SendSettings
from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.producer_identity import ProducerIdentity
from tidelog.protocol.topic_partition import TopicPartition


class Producer:
    """Writes batches. Not safe to share between threads.

    `next_records` counts for each partition the records that the identity has written before.
    `add_partitions` is called before the first batch of a partition is sent, while nothing is in
    flight: a transaction of the old flow has to be told.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        settings: SendSettings,
        *,
        next_records: dict[TopicPartition, int] | None = None,
        add_partitions: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        self._identity = identity
        self._sender = BatchSender(cluster, settings)
        self._add_partitions = add_partitions
        self.next_records = dict(next_records or {})
        self.rows_by_partition: dict[TopicPartition, int] = {}

    def send(self, batches: Sequence[EncodedBatch]) -> None:
        """Hand in batches; returns when all are sent, though not all answered."""
        added = {each.partition for each in batches}.difference(self.rows_by_partition)
        if added and self._add_partitions is not None:
            self._sender.flush()
            self._add_partitions(added)
        rows = self.rows_by_partition
        for batch in batches:
            partition = batch.partition
            batch.stamp(self._identity, self.next_records.get(partition, 0))
            self.next_records[partition] = batch.next_record
            rows[partition] = rows.get(partition, 0) + batch.record_count
        self._sender.send(batches)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        self._sender.flush()

    def close(self) -> None:
        """Let go of connections on which answers are still to come."""
        self._sender.close()
