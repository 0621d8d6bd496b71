"""Produce: append batches, answer when they are as safe as the client wants.

`acks` says when: 0 never (no answer at all, and the connection ends on an error, for there is no
other way to say so), 1 when the leader's log has them durable, -1 when all in-sync replicas do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.topic_names import is_internal
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode, RecordsError
from tidelog.protocol.produce import (
    FLEXIBLE_FROM as PRODUCE_FLEXIBLE_FROM,
)
from tidelog.protocol.produce import (
    TOPIC_IDS_FROM,
    ProduceData,
    ProducedPartition,
    ProduceShape,
    TopicKey,
    decode_produce_request,
    encode_produce_response,
    encode_single_produce_response,
)
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    read_header,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.delayed import DelayedProduce
from tidelog.server.leader_hints import LeaderHints
from tidelog.server.needs import Need, Refusal
from tidelog.server.partition_lookup import missing_partition

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.protocol.produce import NodeEndpoint
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.PRODUCE
# librdkafka takes a minimum above 0 for a broker without compression; versions below 3 have
# message formats that no Kafka 4 broker takes either.
VERSIONS = (0, 13)
SERVED_FROM = 3
REQUEST = None
FLEXIBLE_FROM = PRODUCE_FLEXIBLE_FROM

_ACKS = (-1, 0, 1)
_ADMIN_CLIENT_ID = "__admin_client"
_ZSTD_FROM = 7
_ABORTABLE_FROM = 11
_TRANSACTIONS_V2_FROM = 12
# What Kafka answers to transactional batches in a request that names no transaction: no coordinator
# could ever end what they begin.
_NO_TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_FLAGS_AT = 22  # the low byte of a batch's attributes
_batch_length = Struct(">i").unpack_from


def _transactional_id(data: ProduceData, version: int) -> Iterable[str]:
    return () if data.transactional_id is None else (data.transactional_id,)


def _topics(data: ProduceData, version: int) -> Iterable[TopicKey]:
    return [topic for topic, _ in data.topics]


NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_id),
    Need(AclOperation.WRITE, ResourceType.TOPIC, _topics, Refusal.ROW),
)


def handle(node: Node, request: Request, body: None) -> bytes | Deferred | None:
    shape = request.connection.produce_shape
    if shape is not None and not node.has_quotas:
        alike = shape.decode(request.body, request.version)
        if alike is not None:
            return _append_one(node, request, shape.topic, *alike, shape.acks, shape.timeout_ms)
    data = decode_produce_request(request.body, request.version)
    if data.acks not in _ACKS:
        return _refuse_all(request, data, ApiError(ErrorCode.INVALID_REQUIRED_ACKS))
    if data.transactional_id is not None:
        return _append_transactional(node, request, data)
    topics = data.topics
    if len(topics) == 1 and len(topics[0][1]) == 1 and not node.has_quotas:
        request.connection.produce_shape = ProduceShape.of(request.body, request.version, data)
        topic, ((index, records),) = topics[0]
        if records is not None:
            return _append_one(node, request, topic, index, records, data.acks, data.timeout_ms)
    if any(_is_transactional(records) for _, rows in topics for _, records in rows):
        return _refuse_all(request, data, ApiError(_NO_TRANSACTIONAL_ID))
    return _append_all(node, request, data, {})


def _is_transactional(records: memoryview | None) -> bool:
    return (
        records is not None
        and len(records) > _FLAGS_AT
        and records[_FLAGS_AT] & TRANSACTIONAL_MASK != 0
    )


def _append_one(
    node: Node,
    request: Request,
    topic: TopicKey,
    index: int,
    records: memoryview,
    acks: int,
    timeout_ms: int,
) -> bytes | Deferred | None:
    """The same as `_append_all` for one partition, which is nearly every request of a client that
    sends record by record. Costs half as much."""
    version = request.version
    if len(records) > _FLAGS_AT and records[_FLAGS_AT] & TRANSACTIONAL_MASK:
        data = decode_produce_request(request.body, version)
        return _refuse_all(request, data, ApiError(_NO_TRANSACTIONAL_ID))
    try:
        partition = _find(node, topic, index, version)
        _check_records(request, partition, records)
        result = partition.append_as_leader(records, request.received_ms, required_acks=acks)
    except ApiError as error:
        data = decode_produce_request(request.body, version)
        return _append_all(node, request, data, {0: error})
    metrics = node.metrics
    metrics.produce_partitions += 1
    metrics.produce_batches_bytes += result.size_bytes
    if not acks:
        return None
    response = encode_single_produce_response(
        version,
        request.correlation_id,
        topic,
        index,
        0,
        result.first_offset,
        result.log_append_time_ms,
        result.log_start_offset,
    )
    reached = partition.high_watermark if acks == -1 else partition.log.durable_offset
    if result.next_offset <= reached:
        return response
    delayed = DelayedProduce(
        request, response, partial(_encode_failed, node, request, topic, index), metrics
    )
    deadline = node.reactor.now + timeout_ms / 1000
    delayed.wait(node.waiting, acks, [(0, partition, result.next_offset)], deadline)
    return delayed


def _encode_failed(
    node: Node, request: Request, topic: TopicKey, index: int, errors: dict[int, ErrorCode]
) -> bytes:
    hints = LeaderHints(node, request)
    row = ProducedPartition(index, errors[0], current_leader=hints.leader(topic, index, errors[0]))
    return _encode(request, [_Row(topic, row)], 0, hints.endpoints)


class _Row(NamedTuple):
    topic: TopicKey
    row: ProducedPartition


def _append_all(
    node: Node,
    request: Request,
    data: ProduceData,
    refused: dict[int, ApiError],
    transaction_version: int = 1,
) -> bytes | DelayedProduce | None:
    """Append all partitions but the `refused` ones (by place), then answer or wait."""
    rows: list[_Row] = []
    appended: list[tuple[int, Partition, int]] = []
    size_bytes = 0
    acks = data.acks
    metrics = node.metrics
    hints: LeaderHints | None = None
    for topic, partitions in data.topics:
        for index, records in partitions:
            place = len(rows)
            metrics.produce_partitions += 1
            try:
                if place in refused:
                    raise refused[place]
                partition = _find(node, topic, index, request.version)
                _check_records(request, partition, records)
                result = partition.append_as_leader(
                    records,  # type: ignore[arg-type]
                    request.received_ms,
                    required_acks=acks,
                    transaction_version=transaction_version,
                )
            except ApiError as error:
                metrics.produce_errors += 1
                hints = hints or LeaderHints(node, request)
                row = _error_row(node, topic, index, error, request.version, hints)
                rows.append(_Row(topic, row))
                continue
            size_bytes += result.size_bytes
            row = ProducedPartition(
                index,
                0,
                result.first_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
            rows.append(_Row(topic, row))
            reached = partition.high_watermark if acks == -1 else partition.log.durable_offset
            if result.next_offset > reached:
                appended.append((place, partition, result.next_offset))
    metrics.produce_batches_bytes += size_bytes
    throttle_ms = _throttle(node, request, size_bytes)
    if not acks:
        _end_without_answer(request, rows)
        return None
    response = _encode(request, rows, throttle_ms, () if hints is None else hints.endpoints)
    if not appended:
        return response

    def failed(errors: dict[int, ErrorCode]) -> bytes:
        all_hints = hints or LeaderHints(node, request)
        for place, code in errors.items():
            topic, row = rows[place]
            leader = all_hints.leader(topic, row.partition, code)
            rows[place] = _Row(topic, ProducedPartition(row.partition, code, current_leader=leader))
        return _encode(request, rows, throttle_ms, all_hints.endpoints)

    delayed = DelayedProduce(request, response, failed, metrics)
    delayed.wait(node.waiting, acks, appended, node.reactor.now + data.timeout_ms / 1000)
    return delayed


def _append_transactional(
    node: Node, request: Request, data: ProduceData
) -> bytes | Deferred | None:
    """Append when the coordinator knows that the partitions are part of the transaction."""
    transactional_id = data.transactional_id
    assert transactional_id is not None
    version = request.version
    uses_v2 = version >= _TRANSACTIONS_V2_FROM
    transaction_version = 2 if uses_v2 else 1
    refused: dict[int, ApiError] = {}
    places: dict[TopicPartition, int] = {}
    producers: set[tuple[int, int]] = set()
    place = 0
    for topic, partitions in data.topics:
        for index, records in partitions:
            try:
                partition = _find(node, topic, index, version)
                _check_records(request, partition, records)
                header = read_header(records, 0)  # type: ignore[arg-type]
                if header.is_transactional:
                    producers.add((header.producer_id, header.producer_epoch))
                    places[TopicPartition(partition.topic, index)] = place
            except ApiError as error:
                refused[place] = error
            place += 1
    if not places:
        return _append_all(node, request, data, refused, transaction_version)
    if len(producers) > 1:
        mixed = ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )
        return _refuse_all(request, data, mixed)

    def append(errors: dict[TopicPartition, ErrorCode]) -> bytes | DelayedProduce | None:
        for topic_partition, code in errors.items():
            if code:
                refused[places[topic_partition]] = ApiError(code)
        return _append_all(node, request, data, refused, transaction_version)

    verified = node.transactions.appends.verify(
        transactional_id,
        *producers.pop(),
        list(places),
        uses_v2,
        knows_abortable=version >= _ABORTABLE_FROM,
    )
    if verified.is_done:
        return append(verified.result())
    slot = request.defer(is_exclusive=False)

    def append_late(errors: Promise[dict[TopicPartition, ErrorCode]]) -> None:
        try:
            answer = append(errors.result())
        except Exception:
            # As for a request that fails at once, but this is somebody else's turn.
            request.connection.close("a request failed")
            raise
        if isinstance(answer, DelayedProduce):
            answer.answers = slot
        else:
            slot.answer(answer)

    verified.when_done(append_late)
    return slot


def _find(node: Node, topic: TopicKey, index: int, version: int) -> Partition:
    if version < TOPIC_IDS_FROM:
        assert isinstance(topic, str)
        partition = node.partitions.get(topic, index)
    else:
        assert isinstance(topic, bytes)
        partition = node.partitions.get_by_id(topic, index)
    if partition is None:
        raise missing_partition(node, topic, index)
    return partition


def _check_records(request: Request, partition: Partition, records: memoryview | None) -> None:
    """What a client may write where, as far as the log does not look at it."""
    version = request.version
    if records is None or len(records) < BATCH_OVERHEAD:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce version {version} needs one record batch of format 2 for each partition",
        )
    if records[16] != 2:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce version {version} takes record batches of format 2, this one is of format "
            f"{records[16]}; use a client of Kafka 0.11 or later",
        )
    if _batch_length(records, 8)[0] + LOG_OVERHEAD < len(records):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce version {version} takes exactly one record batch for each partition",
        )
    if version < _ZSTD_FROM and records[22] & 7 == Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} knows no zstd; it came with version {_ZSTD_FROM}",
        )
    if (
        partition.topic[0] == "_"
        and is_internal(partition.topic)
        and request.client_id != _ADMIN_CLIENT_ID
    ):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Cannot append to internal topic {partition.topic}",
        )


def _error_row(
    node: Node, topic: TopicKey, index: int, error: ApiError, version: int, hints: LeaderHints
) -> ProducedPartition:
    if isinstance(error, RecordsError):
        return ProducedPartition(
            index,
            error.code,
            log_start_offset=_find(node, topic, index, version).log_start_offset,
            error_message=error.message,
            record_errors=error.record_errors,
        )
    return ProducedPartition(
        index,
        error.code,
        error_message=error.message or None,
        current_leader=hints.leader(topic, index, error.code),
    )


def _throttle(node: Node, request: Request, size_bytes: int) -> int:
    if not node.has_quotas:
        return 0
    connection = request.connection
    throttle_ms = node.quotas.record_produce(
        connection.principal, request.client_id, size_bytes, request.received_ms
    )
    if throttle_ms:
        connection.throttle(throttle_ms)
    return throttle_ms


def _end_without_answer(request: Request, rows: list[_Row]) -> None:
    """acks=0: the only way to tell the client of an error is to end its connection."""
    failed = next((row for row in rows if row.row.error_code), None)
    if failed is not None:
        code = ErrorCode(failed.row.error_code)
        request.connection.close(f"acks=0 produce to {failed.topic!r} failed: {code.name}")


def _refuse_all(request: Request, data: ProduceData, error: ApiError) -> bytes | None:
    """The same error for every partition: nothing of the request is appended."""
    rows = [
        _Row(topic, ProducedPartition(index, error.code, error_message=error.message or None))
        for topic, partitions in data.topics
        for index, _ in partitions
    ]
    if not data.acks:
        _end_without_answer(request, rows)
        return None
    return _encode(request, rows, 0)


def _encode(
    request: Request,
    rows: list[_Row],
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    topics: dict[TopicKey, list[ProducedPartition]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return encode_produce_response(
        request.version, request.correlation_id, list(topics.items()), throttle_ms, endpoints
    )
