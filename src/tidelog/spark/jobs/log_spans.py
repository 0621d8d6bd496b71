"""What the log of a partition holds at offsets that gave no record."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.client.cluster import ClusterClient
from tidelog.client.errors import ClientError
from tidelog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import BATCH_OVERHEAD, LOG_OVERHEAD, read_header
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import lent_cluster
from tidelog.spark.decode import AbortedTransactions
from tidelog.spark.errors import SparkError

_FETCH_BYTES = 1024 * 1024
_MAX_WAIT_MS = 500
_READ_COMMITTED = 1
# The newest version that names topics instead of giving their ids.
_VERSION_MAX = 12
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of one batch; `is_data` unless it is a marker or was aborted."""

    first: int
    last: int
    is_data: bool


class LogSpans:
    """The batches of a partition, fetched as they are asked for, in the order of offsets."""

    def __init__(self, bootstrap: str, name: TopicPartition) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._fetched: list[Span] = []

    def holds_no_data(self, first: int, last: int) -> bool:
        """Whether every offset from first to last is taken by a marker or an aborted record."""
        at = first
        while at <= last:
            span = self._find(at)
            if span is None or span.is_data:
                return False
            at = span.last + 1
        return True

    def _find(self, offset: int) -> Span | None:
        """The batch with an offset in it; None if the log has none."""
        if not self._fetched or not self._fetched[0].first <= offset <= self._fetched[-1].last:
            self._fetched = list(self._fetch(offset))
        at = bisect_right(self._fetched, offset, key=lambda span: span.first) - 1
        if at < 0 or self._fetched[at].last < offset:
            return None
        return self._fetched[at]

    def _fetch(self, offset: int) -> Iterator[Span]:
        row = self._ask(offset)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        if row.error_code:
            raise SparkError(
                f"{self._name} cannot be read at {offset}: {ErrorCode(row.error_code).name}"
            )
        records = memoryview(row.records or b"")
        aborted = AbortedTransactions(
            (each.producer_id, each.first_offset) for each in row.aborted_transactions or ()
        )
        at = 0
        while len(records) - at >= BATCH_OVERHEAD:
            header = read_header(records, at)
            end = at + LOG_OVERHEAD + header.batch_length
            if end > len(records):
                return
            was_aborted = aborted.covers(header, records[at:end])
            yield Span(
                header.base_offset, header.last_offset, not (header.is_control or was_aborted)
            )
            at = end

    def _ask(self, offset: int) -> PartitionData:
        partition = FetchPartition(
            partition=self._name.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic=self._name.topic, partitions=[partition])],
        )
        try:
            with lent_cluster(self._bootstrap) as pooled:
                response = ClusterClient(pooled.cluster, _TIMEOUT_S).ask_leader(
                    self._name,
                    request,
                    FetchResponse,
                    lambda response: _row(response).error_code,
                    version_max=_VERSION_MAX,
                )
        except ClientError as error:
            raise SparkError(f"{self._name} cannot be read at {offset}: {error}") from error
        return _row(response)


def _row(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]
