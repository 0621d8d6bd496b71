"""One transactional producer: transactions over several partitions, with every way to end."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.history import Operation, Outcome, Send
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import (
    GROUP,
    TRANSACTION,
    ask,
    find_coordinator,
)
from tidelog.testing.simulation.workloads.producing import ProducerIdentity, init_producer_id
from tidelog.testing.simulation.workloads.workspace import Workspace

_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class Fenced(Exception):
    """Another instance, or the coordinator after a timeout, has raised the epoch."""


@dataclass(slots=True)
class TransactionalId:
    """What all instances with one transactional id share."""

    name: str
    timeout_ms: int
    is_v2: bool
    """Partitions join a transaction by being written to, and each end raises the epoch."""
    offset: int = 0
    """The newest that a transaction has committed, or tried to, for the group."""
    offsets: dict[int, Operation] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"{self.name}-group"


class TransactionalProducer:
    """One instance of a transactional id: one transaction after the other until it is fenced."""

    def __init__(
        self,
        client: SimulatedClient,
        workspace: Workspace,
        shared: TransactionalId,
        *,
        hurried_aborts: float = 0.0,
    ) -> None:
        """`hurried_aborts`: how often a batch is on its way while its transaction is aborted."""
        self._client = client
        self._workspace = workspace
        self._shared = shared
        self._hurried_aborts = hurried_aborts
        self._identity = ProducerIdentity(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        client, shared = self._client, self._shared
        await find_coordinator(client, shared.name, TRANSACTION)
        while not self._workspace.is_over:
            self._become(await init_producer_id(client, shared.name, shared.timeout_ms))
            client.trace(f"is {shared.name}, {self._identity}")
            try:
                while not self._workspace.is_over and await self._transact():
                    pass
            except Fenced:
                client.trace("is fenced")
                await client.sleep(client.random.random() * 0.2)

    def _become(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self._identity = identity
            self._sequences.clear()

    async def _transact(self) -> bool:
        """One transaction; false when it is left open."""
        client = self._client
        operation = Operation(client.name, Outcome.UNKNOWN)
        self._workspace.history.append(operation)
        is_asked_to_commit = False
        try:
            sends = await self._write(operation)
            if client.random.random() < 0.3:
                await self._send_offset(operation)
            if self._hurried_aborts and client.random.random() < self._hurried_aborts:
                await self._abort_in_a_hurry(operation, sends)
                return False
            end = client.random.random()
            if end < 0.1:
                client.trace("leaves its transaction open")
                operation.outcome = Outcome.FAILED
                if client.random.random() < 0.5:
                    await client.sleep(self._shared.timeout_ms / 1000)
                return False
            is_asked_to_commit = end > 0.3
            await self._end(operation, sends, is_asked_to_commit)
        except Fenced:
            if not is_asked_to_commit:
                operation.outcome = Outcome.FAILED
            raise
        return True

    async def _write(self, operation: Operation) -> list[Send]:
        """Batches to some partitions, with where they landed."""
        client, workspace = self._client, self._workspace
        most = min(3, len(workspace.partitions))
        partitions = client.random.sample(workspace.partitions, client.random.randint(1, most))
        if not self._shared.is_v2:
            await self._add_partitions(partitions)
        landed = []
        for partition in partitions * client.random.choice((1, 1, 2)):
            values = [workspace.next_value() for _ in range(client.random.randint(1, 3))]
            operation.sends += [Send(partition, value) for value in values]
            base_offset = await self._produce(partition, values)
            landed += [
                Send(partition, value, base_offset + place if base_offset >= 0 else None)
                for place, value in enumerate(values)
            ]
            if client.random.random() < 0.2:
                await client.sleep(client.random.random() * 0.05)
        return landed

    async def _abort_in_a_hurry(self, operation: Operation, sends: list[Send]) -> None:
        """A batch whose answer nobody waits for, and an abort right behind it. Whether the batch is
        in the log nobody knows: the producer has to begin again."""
        client, workspace = self._client, self._workspace
        operation.outcome = Outcome.FAILED
        written = {send.topic_partition for send in sends}
        others = [each for each in workspace.partitions if each not in written]
        partition = client.random.choice(others or workspace.partitions)
        if not self._shared.is_v2:
            await self._add_partitions([partition])
        values = [workspace.next_value()]
        operation.sends += [Send(partition, value) for value in values]
        client.simulation.count("aborts with a batch on its way")
        client.trace(f"sends {len(values)} to {partition} and does not wait")
        client.start(self._send_and_forget(self._produce_request(partition, values)))
        await client.sleep(client.random.random() * 0.01)
        await self._end(operation, sends, False)

    async def _send_and_forget(self, request: ProduceRequest) -> None:
        try:
            await self._client.call(
                request, ProduceResponse, version_max=12 if self._shared.is_v2 else 11
            )
        except PeerError as error:
            self._client.trace(f"produce that nobody waits for: {error}")

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._shared.name,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        answered = await ask(
            self._client,
            request,
            AddPartitionsToTxnResponse,
            lambda response: max(
                row.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ),
            version_max=3,
        )
        self._check(answered.code, "AddPartitionsToTxn")

    def _produce_request(self, partition: TopicPartition, values: list[bytes]) -> ProduceRequest:
        now_ms = self._client.host.wall_ms()
        batch = encode_batch(
            [Record(place, now_ms, b"k", value) for place, value in enumerate(values)],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._sequences.get(partition, 0),
            is_transactional=True,
        )
        return ProduceRequest(
            transactional_id=self._shared.name,
            acks=-1,
            timeout_ms=2000,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[
                        PartitionProduceData(index=partition.partition, records=bytes(batch))
                    ],
                )
            ],
        )

    async def _produce(self, partition: TopicPartition, values: list[bytes]) -> int:
        client = self._client
        sequence = self._sequences.get(partition, 0)
        request = self._produce_request(partition, values)
        answered = await ask(
            client,
            request,
            ProduceResponse,
            lambda response: response.responses[0].partition_responses[0].error_code,
            version_max=12 if self._shared.is_v2 else client.random.randint(3, 11),
        )
        row = answered.response.responses[0].partition_responses[0]
        client.trace(
            f"produced {len(values)} to {partition}: {answered.code.name} at {row.base_offset}"
        )
        if answered.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._check(answered.code, f"sequence {sequence} of {partition}")
        self._sequences[partition] = sequence + len(values)
        return row.base_offset

    async def _send_offset(self, operation: Operation) -> None:
        """An offset of the group that becomes valid with the transaction."""
        client, shared = self._client, self._shared
        await find_coordinator(client, shared.group, GROUP)
        if not shared.is_v2:
            added = await ask(
                client,
                AddOffsetsToTxnRequest(
                    transactional_id=shared.name,
                    producer_id=self._identity.producer_id,
                    producer_epoch=self._identity.epoch,
                    group_id=shared.group,
                ),
                AddOffsetsToTxnResponse,
                lambda response: response.error_code,
                version_max=3,
            )
            self._check(added.code, "AddOffsetsToTxn")
        shared.offset += 1
        shared.offsets[shared.offset] = operation
        partition = self._workspace.partitions[0]
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=shared.offset
        )
        committed = await ask(
            client,
            TxnOffsetCommitRequest(
                transactional_id=shared.name,
                group_id=shared.group,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[row])],
            ),
            TxnOffsetCommitResponse,
            lambda response: response.topics[0].partitions[0].error_code,
            version_max=5 if shared.is_v2 else client.random.randint(0, 4),
        )
        client.trace(f"sent offset {row.committed_offset}: {committed.code.name}")
        self._check(committed.code, f"offset {row.committed_offset}")

    async def _end(self, operation: Operation, sends: list[Send], is_commit: bool) -> None:
        client = self._client
        request = EndTxnRequest(
            transactional_id=self._shared.name,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=is_commit,
        )
        answered = await ask(
            client,
            request,
            EndTxnResponse,
            lambda response: response.error_code,
            version_max=5 if self._shared.is_v2 else client.random.randint(0, 4),
        )
        what = "commit" if is_commit else "abort"
        client.trace(f"{what} of {len(sends)}: {answered.code.name}")
        if answered.code in _FENCED and not answered.is_repeated:
            operation.outcome = Outcome.FAILED
        self._check(answered.code, what)
        operation.outcome = Outcome.OK if is_commit else Outcome.FAILED
        if is_commit:
            operation.sends = sends
        if self._shared.is_v2:
            self._become(
                ProducerIdentity(answered.response.producer_id, answered.response.producer_epoch)
            )

    def _check(self, code: ErrorCode, what: str) -> None:
        if code in _FENCED:
            raise Fenced
        if code is not ErrorCode.NONE:
            self._workspace.problem(
                self._client.name, f"{code.name} for {what} of {self._shared.name}"
            )
            raise Fenced
