"""The calls of a transactional producer over a raw connection."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from tests.compatibility.calls import batch, fetch, produce_request
from tidelog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record, decode_batches
from tidelog.testing.wire import WireClient

_numbers = count(1)
WAIT_S = 30.0
PAUSE_S = 0.002
_WAIT_FOR = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class TransactionalProducer:
    """One producer: remembers its id, epoch and sequence numbers, and nothing else."""

    def __init__(self, wire: WireClient, transactional_id: str = "", *, timeout_ms: int = 60_000):
        self.wire = wire
        self.transactional_id = transactional_id or f"tx-{next(_numbers)}"
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, *, version: int = 5) -> ErrorCode:
        """Asks for the coordinator, then for id and epoch, again while it is told to wait."""
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        assert self.wire.call(find, 4).coordinators[0].error_code == 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.wire.call(request, version)
            if answer.error_code not in _WAIT_FOR or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_S)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def add(self, topic: str, partition: int = 0, *, version: int = 3) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        answer = self.wire.call(request, version)
        [row] = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(row.partition_error_code)

    def produce(
        self, topic: str, *values: bytes, version: int = 9, epoch: int | None = None
    ) -> ErrorCode:
        epoch = self.epoch if epoch is None else epoch
        sequence = self.sequences.get((topic, epoch), 0)
        records = batch(
            *values,
            timestamp=time.time_ns() // 1_000_000,  # a marker of now goes into the same segment
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(topic, records)
        request.transactional_id = self.transactional_id
        [row] = self.wire.call(request, version).responses[0].partition_responses
        if row.error_code == 0:
            self.sequences[topic, epoch] = sequence + len(values)
        return ErrorCode(row.error_code)

    def end(self, *, commit: bool = True, version: int = 4, epoch: int | None = None) -> Any:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        answer = self.wire.call(request, version)
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def end_once_complete(self, **options: Any) -> Any:
        """As clients do: asks again while the end before it is still being completed."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.end(**options)
            if answer.error_code not in _WAIT_FOR or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_S)

    def add_offsets(self, group: str, *, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode(self.wire.call(request, version).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3) -> ErrorCode:
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        answer = self.wire.call(request, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def read_committed(wire: WireClient, topic: str, offset: int = 0) -> Any:
    """One fetch as a reader of committed records makes it."""
    return fetch(wire, topic, offset, isolation_level=1)


def committed_values(wire: WireClient, topic: str) -> list[bytes | None]:
    """What such a reader hands to its application."""
    row = read_committed(wire, topic)
    waiting = [(a.first_offset, a.producer_id) for a in row.aborted_transactions or []]
    aborting: set[int] = set()
    values: list[bytes | None] = []
    for header, records in decode_batches(row.records or b""):
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values += [record.value for record in records]
    return values


def wait_until_stable(wire: WireClient, topic: str) -> None:
    """Until no transaction is open in the topic: the markers follow the answer to EndTxn."""
    deadline = time.monotonic() + WAIT_S
    while True:
        row = read_committed(wire, topic)
        if row.last_stable_offset == row.high_watermark:
            return
        assert time.monotonic() < deadline, "the transactions do not end"
        time.sleep(PAUSE_S)


def control_records(wire: WireClient, topic: str) -> list[Record]:
    row = fetch(wire, topic, 0)
    return [
        record
        for header, records in decode_batches(row.records or b"")
        if header.is_control
        for record in records
    ]
