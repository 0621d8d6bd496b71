"""Fetch: byte ranges of segments, as soon as there are enough of them.

The answer is made twice when the client is ready to wait: what is there is read first, and when it
is less than the client wants at least, the request waits for its partitions and reads again.

A follower's fetch says how far its log is durable. That is noted once, at the first reading, and
may move the high watermark and the in-sync set. A consumer in another rack than the leader is sent
to a replica in its own, if the node is told to do that, and replicas that do not lead serve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.fetch import FetchRequest
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
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.delayed import DelayedFetch
from tidelog.server.leader_hints import LeaderHints
from tidelog.server.needs import Need, Refusal, cluster
from tidelog.server.network.file_passing import pass_files
from tidelog.server.partition_lookup import missing_partition
from tidelog.server.replication.follower_news import FollowerWaiter
from tidelog.server.request import RawResponse

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.promise import Promise
    from tidelog.protocol.apis.fetch import FetchResponse
    from tidelog.protocol.produce import NodeEndpoint, TopicKey
    from tidelog.server.fetch_sessions import CachedPartition, FetchContext
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.FETCH
VERSIONS = (4, 18)
REQUEST = None
FLEXIBLE_FROM = FETCH_FLEXIBLE_FROM
SERVES_BEFORE_NODE = True  # the metadata log, to replicas of the quorum

_READ_COMMITTED = 1
# Older consumers know no replicas to read from but the leader.
_READS_FROM_FOLLOWERS_FROM = 11
_LEADER_HINTS_FROM = 16
# Two followers take each batch while the leader has other work: fewer of its turns go into it.
_FOLLOWER_SEND_BYTES = 384 * 1024
_METADATA = (METADATA_TOPIC_ID, CLUSTER_METADATA_TOPIC)


def _topics_of_consumer(data: FetchData, version: int) -> Iterable[TopicKey]:
    """A session remembers others, which are needed as well."""
    return [topic for topic, _ in data.topics] if data.replica_id < 0 else ()


def _cluster_of_follower(data: FetchData, version: int) -> Iterable[str]:
    return cluster(data, version) if data.replica_id >= 0 else ()


NEEDS = (
    Need(AclOperation.READ, ResourceType.TOPIC, _topics_of_consumer, Refusal.ROW),
    Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, _cluster_of_follower, Refusal.ROW),
)


def handle(
    node: Node, request: Request, body: None
) -> RawResponse | Deferred | Promise[FetchResponse]:
    data = decode_fetch_request(request.body, request.version)
    if data.replica_id >= 0 and data.topics and data.topics[0][0] in _METADATA:
        return node.metadata.quorum.ask(FetchRequest.decode(request.body, request.version))
    try:
        context = node.fetch_sessions.open(
            data, request.version >= TOPIC_IDS_FROM, request.received_ms
        )
    except ApiError as error:
        return _encode(request, 0, error.code, 0, [], ())
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
        "_from_follower",
        "_has_error",
        "_hints",
        "_is_again",
        "_known_bytes",
        "_node",
        "_now_ms",
        "_request",
        "_rows",
        "_selector",
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
        is_consumer = data.replica_id < 0
        self._from_follower = is_consumer and request.version >= _READS_FROM_FOLLOWERS_FROM
        self._selector = node.replica_selector if self._from_follower and data.rack_id else None
        self._hints: LeaderHints | None = None
        self._wanted: list[tuple[TopicKey, CachedPartition]] = []
        self._rows: list[tuple[TopicKey, FetchedPartition]] = []
        self._known_bytes: dict[int, int] = {}
        self._size = 0
        self._has_error = False
        self._is_again = False
        self._now_ms = 0
        if not is_consumer:
            self._now_ms = int(node.reactor.now * 1000)
            session = context.session
            if session is not None and session.news is not None:
                session.news.last_fetch_ms = self._now_ms
                if context.is_full:
                    request.connection.make_send_room(_FOLLOWER_SEND_BYTES)
        self._collect()

    def _collect(self) -> None:
        """Find the partitions that are to be read."""
        session = self._context.session
        news = None if session is None else session.news
        if news is not None and news.held_back:
            news.look_at_held_back()
        self._wanted = wanted = []
        for topic, cached in self._context.wanted(self._data):
            if cached.partition is None or not cached.partition.is_leader:
                cached.partition = self._find(topic, cached.wanted.partition)
            if news is not None:
                news.watch((topic, cached.wanted.partition), cached)
            wanted.append((topic, cached))

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
        is_consumer = data.replica_id < 0
        is_throttled = not is_consumer and self._node.throttles.leader.is_active
        for place, (topic, cached) in enumerate(self._wanted):
            if is_consumer and not tells_all and cached.has_nothing_new():
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
            if is_throttled and row.records_size and self._holds_back(partition):
                row = row._replace(records=None, records_size=0)
                self._hold_back((topic, wanted.partition))
            rows.append((topic, row))
            if row.records_size:
                self._known_bytes[place] = row.records_size
                size_bytes += row.records_size
                left_bytes = max(0, left_bytes - row.records_size)
            elif row.diverging_epoch is not None or row.preferred_read_replica >= 0:
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
            or (not self._wanted and not self._is_of_follower_session)
        )

    @property
    def _is_of_follower_session(self) -> bool:
        session = self._context.session
        return session is not None and session.news is not None

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
        if self._data.replica_id >= 0 and node.throttles.leader.is_active:
            self._count_throttled()
        return _encode(
            request,
            throttle_ms,
            ErrorCode.NONE,
            self._context.session_id,
            self._context.rows_to_send(rows),
            () if self._hints is None else self._hints.endpoints,
        )

    def wait(self) -> Deferred:
        """Answer when the partitions have enough, or the client's time is up."""
        if self._is_of_follower_session:
            return self._wait_for_news()
        node = self._node
        deferred = self._request.defer()

        def done() -> None:
            self._is_again = True
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

    def _wait_for_news(self) -> Deferred:
        """The same for a follower, whose session hears of what moves."""
        node = self._node
        deferred = self._request.defer()
        session = self._context.session
        assert session is not None
        assert session.news is not None
        self._rows = []
        node.metrics.delayed_fetches += 1

        def done() -> None:
            timer.cancel()
            node.metrics.delayed_fetches -= 1
            self._is_again = True
            self._collect()
            self.read()
            deferred.answer(self.response())

        def cancel() -> None:
            if waiter.cancel():
                timer.cancel()
                node.metrics.delayed_fetches -= 1

        waiter = FollowerWaiter(session.news, self._has_enough, done)
        timer = node.reactor.call_later(self._data.max_wait_ms / 1000, waiter.finish)
        deferred.on_close = cancel
        return deferred

    def _has_enough(self) -> bool:
        """Whether all that the follower has not read is as much as it wants at least."""
        bytes_min = self._data.min_bytes
        if bytes_min <= 1:
            return True
        self._collect()
        size_bytes = 0
        for place in range(len(self._wanted)):
            size_bytes += self._bytes_now(place)
            if size_bytes >= bytes_min:
                return True
        return False

    def _find(self, topic: TopicKey, index: int) -> Partition | None:
        if isinstance(topic, str):
            return self._node.partitions.get(topic, index)
        return self._node.partitions.get_by_id(topic, index)

    def _bytes_max(self) -> int:
        node, request = self._node, self._request
        bytes_max = node.config.fetch_max_bytes
        if node.has_quotas and self._data.replica_id < 0:
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
        if self._selector is not None and partition.is_leader:
            preferred = self._selector.select(self._data.rack_id, partition, wanted.fetch_offset)
            if preferred is not None:
                partition.check_leader(wanted.current_leader_epoch)
                return FetchedPartition(
                    wanted.partition,
                    0,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    aborted_transactions=[] if read_committed else None,
                    preferred_read_replica=preferred,
                )
        found = partition.read(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, left_bytes),
            read_committed=read_committed,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            minimum_one_batch=minimum_one_batch,
            replica_id=replica_id,
            from_follower=self._from_follower,
        )
        log_slice = found.slice
        aborted = found.aborted_transactions
        high_watermark = found.high_watermark
        if replica_id >= 0 and found.diverging_epoch is None and not self._is_again:
            # Only now: a fetch of another epoch, or of a log that went another way, says nothing
            # about how far the follower is in this one.
            self._node.in_sync_sets.follower_fetched(
                partition,
                replica_id,
                self._data.replica_epoch,
                wanted.fetch_offset,
                wanted.log_start_offset,
                self._now_ms,
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
            if self._request.version >= _LEADER_HINTS_FROM:
                if self._hints is None:
                    self._hints = LeaderHints(self._node, self._request)
                leader = self._hints.leader(topic, wanted.partition, error.code)
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
        if self._node.throttles.leader.is_active and self._holds_back(partition):
            return 0
        try:
            found = partition.read(
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                current_leader_epoch=wanted.current_leader_epoch,
                read_committed=read_committed,
                replica_id=data.replica_id,
                from_follower=self._from_follower,
            )
        except ApiError:
            # The answer says what is wrong, so it is due.
            return data.min_bytes
        return 0 if found.slice is None else found.slice.size_bytes

    def _holds_back(self, partition: Partition | None) -> bool:
        """Whether the throttle of replication keeps what a partition has from a follower."""
        replica_id = self._data.replica_id
        throttle = self._node.throttles.leader
        return (
            replica_id >= 0
            and partition is not None
            and throttle.holds_back_follower(partition, replica_id)
        )

    def _hold_back(self, key: tuple[TopicKey, int]) -> None:
        """Where the follower is has been noted: it need not be looked at again for now. One without
        a session asks for all of it again."""
        session = self._context.session
        if session is not None and session.news is not None:
            session.news.hold_back(key)

    def _count_throttled(self) -> None:
        """What leaves counts for the throttle, also what goes to replicas in sync."""
        throttle = self._node.throttles.leader
        for place, size_bytes in self._known_bytes.items():
            partition = self._wanted[place][1].partition
            if partition is not None:
                throttle.record(partition, size_bytes)

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
    endpoints: Sequence[NodeEndpoint],
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
        endpoints,
    )
    return RawResponse(parts)  # type: ignore[arg-type]
