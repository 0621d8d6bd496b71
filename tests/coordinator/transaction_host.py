"""A host for one transaction shard, in memory: appends, replays, and keeps a transcript."""

from __future__ import annotations

from collections import deque
from typing import Any

from tidelog.coordinator.records.transaction import TRANSACTION_STATE
from tidelog.coordinator.shard import CoordinatorRecord, CoordinatorResult
from tidelog.coordinator.transaction import Transaction
from tidelog.coordinator.transaction_shard import (
    TransactionOptions,
    TransactionShard,
    WriteMarkers,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

ID = "pay"


class TransactionHost:
    """Answers read as short strings: `NONE 1000/0` is producer id 1000, epoch 0."""

    def __init__(self, **options: int) -> None:
        self.options = TransactionOptions(
            **{"abort_check_interval_ms": 1, "expiry_check_interval_ms": 1, **options}
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.next_producer_id = 1000
        self.markers: deque[WriteMarkers] = deque()
        self.now_ms = 0
        self.refuses_appends = False
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.options, self._take_producer_id)

    def _take_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def restart(self) -> None:
        """The coordinator is gone and its log is loaded again."""
        self.shard = self._new_shard()
        self.markers.clear()
        for key, value in self.log:
            record = TRANSACTION_STATE.decode(key, value)
            assert record is not None
            self.shard.replay(record)
        for result in self.shard.loaded(self.now_ms):
            self.carry_out(result)

    def carry_out(self, result: CoordinatorResult[Any]) -> Any:
        if self.refuses_appends and result.records:
            error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if result.settle is not None:
                result.settle(error)
            raise error
        for record in result.records:
            self._append(record)
        if result.settle is not None:
            result.settle(None)
        self.markers.extend(result.effects)
        return result.response

    def _append(self, record: CoordinatorRecord) -> None:
        key, value = TRANSACTION_STATE.encode(record)
        self.log.append((key, value))
        decoded = TRANSACTION_STATE.decode(key, value)
        assert decoded is not None
        self.shard.replay(decoded)

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for result in self.shard.tick(now_ms):
            try:
                self.carry_out(result)
            except ApiError:
                assert self.refuses_appends

    def write_markers(self) -> list[WriteMarkers]:
        """Everything decided gets its markers."""
        written = []
        while self.markers:
            markers = self.markers.popleft()
            written.append(markers)
            self.carry_out(self.shard.markers_written(markers, self.now_ms))
        return written

    # Requests

    def init(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        timeout_ms: int = 60_000,
        transactional_id: str = ID,
        **fields: bool,
    ) -> str:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            **fields,
        )
        try:
            response = self.carry_out(self.shard.init_producer_id(request, self.now_ms))
        except ApiError as error:
            return error.code.name
        return _answer(response)

    def add(self, producer_id: int, producer_epoch: int, *partitions: int, version: int = 1) -> str:
        try:
            code = self.carry_out(
                self.shard.add_partitions(
                    ID,
                    producer_id,
                    producer_epoch,
                    [TopicPartition("t", partition) for partition in partitions],
                    self.now_ms,
                    client_transaction_version=version,
                )
            )
        except ApiError as error:
            return error.code.name
        assert isinstance(code, ErrorCode)
        return code.name

    def end(
        self, producer_id: int, producer_epoch: int, *, commit: bool = True, version: int = 4
    ) -> str:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        try:
            response = self.carry_out(self.shard.end_transaction(request, version, self.now_ms))
        except ApiError as error:
            return error.code.name
        return "NONE" if version < 5 else _answer(response)

    @property
    def transaction(self) -> Transaction:
        return self.shard.transactions[ID]

    @property
    def state(self) -> str:
        """Such as `Ongoing 1000/0 [0, 1]`."""
        current = self.transaction
        partitions = sorted(partition.partition for partition in current.partitions)
        shown = f" {partitions}" if partitions else ""
        return f"{current.status.label} {current.producer_id}/{current.producer_epoch}{shown}"


def _answer(response: Any) -> str:
    code = ErrorCode(response.error_code)
    if code is not ErrorCode.NONE:
        return code.name
    return f"NONE {response.producer_id}/{response.producer_epoch}"
