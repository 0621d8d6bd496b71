"""Fetch: byte ranges of segments, as soon as there are enough of them.

The answer is made twice when the client is ready to wait: what is there is read first, and when it
is less than the client wants at least, the request waits for its partitions and reads again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.fetch import (
    FLEXIBLE_FROM as FETCH_FLEXIBLE_FROM,
)
from tidelog.protocol.fetch import (
    TOPIC_IDS_FROM,
    FetchData,
    FetchedPartition,
    FetchPartition,
    decode_fetch_request,
    encode_fetch_response,
)
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.delayed import DelayedFetch
from tidelog.server.needs import Need, Refusal, cluster
from tidelog.server.network.file_passing import pass_files
from tidelog.server.partition_lookup import missing_partition
from tidelog.server.request import RawResponse

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.protocol.produce import TopicKey
    from tidelog.server.fetch_sessions import CachedPartition, FetchContext
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.FETCH
VERSIONS = (4, 18)
REQUEST = None
FLEXIBLE_FROM = FETCH_FLEXIBLE_FROM

_READ_COMMITTED = 1


def _topics_of_consumer(data: FetchData, version: int) -> Iterable[TopicKey]:
    """A session remembers others, which are needed as well."""
    return [topic for topic, _ in data.topics] if data.replica_id < 0 else ()


def _cluster_of_follower(data: FetchData, version: int) -> Iterable[str]:
    return cluster(data, version) if data.replica_id >= 0 else ()


NEEDS = (
    Need(AclOperation.READ, ResourceType.TOPIC, _topics_of_consumer, Refusal.ROW),
    Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, _cluster_of_follower, Refusal.ROW),
)


def handle(node: Node, request: Request, body: None) -> RawResponse | Deferred:
    data = decode_fetch_request(request.body, request.version)
    try:
        context = node.fetch_sessions.open(
            data, request.version >= TOPIC_IDS_FROM, request.received_ms
        )
    except ApiError as error:
        return _encode(request, 0, error.code, 0, [])
    fetch = Fetch(node, request, data, context)
    fetch.read()
    if fetch.is_satisfied():
        return fetch.response()
    return fetch.wait()


class Fetch:
    """One fetch request with the rows of its answer so far."""

    __slots__ = (
        "_context",
        "_data",
        "_has_error",
        "_known_bytes",
        "_node",
        "_request",
        "_rows",
        "_size",
        "_wanted",
    )

    def __init__(
        self, node: Node, request: Request, data: FetchData, context: FetchContext
    ) -> None:
        self._node = node
        self._request = request
        self._data = data
        self._context = context
        self._wanted: list[tuple[TopicKey, CachedPartition]] = []
        for topic, cached in context.wanted(data):
            if cached.partition is None or not cached.partition.is_leader:
                cached.partition = self._find(topic, cached.wanted.partition)
            self._wanted.append((topic, cached))
        self._rows: list[tuple[TopicKey, FetchedPartition]] = []
        self._known_bytes: dict[int, int] = {}
        self._size = 0
        self._has_error = False

    def read(self) -> None:
        """Read what is there, up to the limits; the first batch is read in any case."""
        data = self._data
        left_bytes = min(data.max_bytes, self._bytes_max())
        read_committed = data.isolation_level == _READ_COMMITTED
        tells_all = self._context.is_full or self._context.session is None
        rows: list[tuple[TopicKey, FetchedPartition]] = []
        size_bytes = 0
        self._has_error = False
        self._known_bytes.clear()
        for place, (topic, cached) in enumerate(self._wanted):
            if not tells_all and cached.has_nothing_new():
                continue
            wanted, partition = cached.wanted, cached.partition
            try:
                row = self._read_one(
                    topic, wanted, partition, left_bytes, read_committed, not size_bytes
                )
            except ApiError as error:
                self._has_error = True
                rows.append((topic, self._error_row(topic, wanted, partition, error)))
                continue
            rows.append((topic, row))
            if row.records_size:
                self._known_bytes[place] = row.records_size
                size_bytes += row.records_size
                left_bytes = max(0, left_bytes - row.records_size)
            elif row.diverging_epoch is not None:
                self._has_error = True
        self._rows = rows
        self._size = size_bytes

    def is_satisfied(self) -> bool:
        """Whether the answer can leave at once."""
        data = self._data
        return (
            self._size >= data.min_bytes
            or data.max_wait_ms <= 0
            or self._has_error
            or not self._wanted
        )

    def response(self) -> RawResponse:
        """The answer, with the rows that were read."""
        node, request = self._node, self._request
        metrics = node.metrics
        metrics.fetch_requests += 1
        throttle_ms = 0
        rows = self._rows
        if node.has_quotas:
            throttle_ms = self._throttle()
            if throttle_ms:
                rows = [(topic, row._replace(records=None, records_size=0)) for topic, row in rows]
                self._size = 0
        metrics.fetch_bytes += self._size
        return _encode(
            request,
            throttle_ms,
            ErrorCode.NONE,
            self._context.session_id,
            self._context.rows_to_send(rows),
        )

    def wait(self) -> Deferred:
        """Answer when the partitions have enough, or the client's time is up."""
        node = self._node
        deferred = self._request.defer()

        def done() -> None:
            self.read()
            deferred.answer(self.response())

        delayed = DelayedFetch(
            self._data.min_bytes - self._size,
            dict(self._known_bytes),
            self._bytes_now,
            done,
            node.metrics,
        )
        # The slices of files would keep deleted segments on disk while the client waits.
        self._rows = []
        delayed.wait(
            node.waiting,
            node.reactor,
            [
                (place, cached.partition)
                for place, (_, cached) in enumerate(self._wanted)
                if cached.partition is not None
            ],
            is_follower=self._data.replica_id >= 0,
            wait_s=self._data.max_wait_ms / 1000,
        )
        deferred.on_close = delayed.cancel
        return deferred

    def _find(self, topic: TopicKey, index: int) -> Partition | None:
        if isinstance(topic, str):
            return self._node.partitions.get(topic, index)
        return self._node.partitions.get_by_id(topic, index)

    def _bytes_max(self) -> int:
        node, request = self._node, self._request
        bytes_max = node.config.fetch_max_bytes
        if node.has_quotas:
            by_quota = node.quotas.fetch_size_bytes_max(
                request.connection.principal, request.client_id
            )
            if by_quota is not None:
                bytes_max = min(bytes_max, by_quota)
        return bytes_max

    def _read_one(
        self,
        topic: TopicKey,
        wanted: FetchPartition,
        partition: Partition | None,
        left_bytes: int,
        read_committed: bool,
        minimum_one_batch: bool,
    ) -> FetchedPartition:
        if partition is None:
            raise missing_partition(self._node, topic, wanted.partition)
        replica_id = self._data.replica_id
        found = partition.read(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, left_bytes),
            read_committed=read_committed,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            minimum_one_batch=minimum_one_batch,
            replica_id=replica_id,
        )
        log_slice = found.slice
        aborted = found.aborted_transactions
        high_watermark = found.high_watermark
        if replica_id >= 0 and found.diverging_epoch is None:
            # Only now: a fetch of another epoch, or of a log that went another way, says nothing
            # about how far the follower is in this one.
            partition.record_follower_fetch(
                replica_id, wanted.fetch_offset, wanted.log_start_offset, self._request.received_ms
            )
            high_watermark = partition.high_watermark
        return FetchedPartition(
            wanted.partition,
            0,
            high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            None if log_slice is None else log_slice.file_slice,
            0 if log_slice is None else log_slice.size_bytes,
            None
            if aborted is None
            else [(each.producer_id, each.first_offset) for each in aborted],
            -1,
            found.diverging_epoch,
        )

    def _error_row(
        self, topic: TopicKey, wanted: FetchPartition, partition: Partition | None, error: ApiError
    ) -> FetchedPartition:
        """A row with an error: it has its partition's number, and offsets where they help."""
        if partition is None or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            leader = None
            if partition is not None and error.code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.FENCED_LEADER_EPOCH,
            ):
                leader = (partition.leader, partition.leader_epoch)
            return FetchedPartition(wanted.partition, error.code, current_leader=leader)
        return FetchedPartition(
            wanted.partition,
            error.code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )

    def _bytes_now(self, place: int) -> int:
        """How much the partition at this place of the request has to read by now."""
        data = self._data
        cached = self._wanted[place][1]
        wanted, partition = cached.wanted, cached.partition
        if partition is None:
            return 0
        read_committed = data.isolation_level == _READ_COMMITTED
        if data.min_bytes <= 1 and data.replica_id < 0:
            # Nearly always; then any record is enough, and no index has to be looked at.
            end = partition.last_stable_offset if read_committed else partition.high_watermark
            return int(end > wanted.fetch_offset)
        try:
            found = partition.read(
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                current_leader_epoch=wanted.current_leader_epoch,
                read_committed=read_committed,
                replica_id=data.replica_id,
            )
        except ApiError:
            # The answer says what is wrong, so it is due.
            return data.min_bytes
        return 0 if found.slice is None else found.slice.size_bytes

    def _throttle(self) -> int:
        """Hold a client to its quota: over it, the answer has no records and counts none."""
        node, request = self._node, self._request
        if self._data.replica_id >= 0:
            return 0
        principal, client_id = request.connection.principal, request.client_id
        now_ms = node.now_ms()
        throttle_ms = node.quotas.record_fetch(principal, client_id, self._size, now_ms)
        if throttle_ms:
            node.quotas.unrecord_fetch(principal, client_id, self._size, now_ms)
            request.connection.throttle(throttle_ms)
        return throttle_ms


def _encode(
    request: Request,
    throttle_ms: int,
    code: ErrorCode,
    session_id: int,
    rows: list[tuple[TopicKey, FetchedPartition]],
) -> RawResponse:
    topics: dict[TopicKey, list[FetchedPartition]] = {}
    passes_files = request.connection.passes_files
    for topic, row in rows:
        topics.setdefault(topic, []).append(pass_files(row) if passes_files else row)
    parts = encode_fetch_response(
        request.version,
        request.correlation_id,
        throttle_ms,
        code,
        session_id,
        list(topics.items()),
    )
    return RawResponse(parts)  # type: ignore[arg-type]
