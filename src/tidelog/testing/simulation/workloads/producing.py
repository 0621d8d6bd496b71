"""Idempotent producers: every batch is sent until it is acknowledged, and must land once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.history import Operation, Outcome, Send
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import RETRIABLE, ask
from tidelog.testing.simulation.workloads.workspace import Workspace

_PRODUCE_VERSION_MAX = 12  # by topic name
_RETRY_S = 0.05


class ProducerIdentity(NamedTuple):
    """What the broker knows a producer by."""

    producer_id: int
    epoch: int


async def init_producer_id(
    client: SimulatedClient, transactional_id: str | None = None, timeout_ms: int = 60_000
) -> ProducerIdentity:
    """Ask until there is one."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    answered = await ask(
        client, request, InitProducerIdResponse, lambda response: response.error_code
    )
    assert answered.code is ErrorCode.NONE, f"InitProducerId: {answered.code.name}"
    return ProducerIdentity(answered.response.producer_id, answered.response.producer_epoch)


class IdempotentProducer:
    """Sends batches to partitions, one after the other in each."""

    def __init__(self, client: SimulatedClient, workspace: Workspace, *, acks: int) -> None:
        self._client = client
        self._workspace = workspace
        self._acks = acks
        self._identity = ProducerIdentity(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self.acknowledged = 0

    async def begin(self) -> None:
        """Become a producer."""
        self._identity = await init_producer_id(self._client)
        self._client.trace(f"is producer {self._identity.producer_id}")

    async def run(self) -> None:
        client, workspace = self._client, self._workspace
        await self.begin()
        while not workspace.is_over:
            partition = client.random.choice(workspace.partitions)
            values = [workspace.next_value() for _ in range(client.random.randint(1, 4))]
            operation = Operation(client.name, Outcome.UNKNOWN)
            operation.sends = [Send(partition, value) for value in values]
            workspace.history.append(operation)
            base_offset = await self.send_until_acknowledged(
                partition, [(b"k", value) for value in values]
            )
            if base_offset is None:
                return
            operation.outcome = Outcome.OK
            if base_offset >= 0:
                operation.sends = [
                    Send(partition, value, base_offset + place)
                    for place, value in enumerate(values)
                ]
            self.acknowledged += len(values)
            if client.random.random() < 0.3:
                await client.sleep(client.random.random() * 0.05)

    async def send_until_acknowledged(
        self, partition: TopicPartition, rows: Sequence[tuple[bytes, bytes | None]]
    ) -> int | None:
        """Send keys and values; the offset of the first record, -1 when it is not told; None when
        they are refused."""
        client = self._client
        sequence = self._sequences.get(partition, 0)
        now_ms = client.host.wall_ms()
        batch = encode_batch(
            [Record(place, now_ms, key, value) for place, (key, value) in enumerate(rows)],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=sequence,
        )
        attempt = 0
        while True:
            attempt += 1
            row = await self._send(partition, bytes(batch))
            if row is None or row.error_code in RETRIABLE:
                await client.sleep(_RETRY_S * client.random.random())
                continue
            code = ErrorCode(row.error_code)
            client.trace(
                f"produced {len(rows)} to {partition}: {code.name} at {row.base_offset}"
                f"{f', attempt {attempt}' if attempt > 1 else ''}"
            )
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + len(rows)
                return row.base_offset
            self._workspace.problem(
                client.name, f"{code.name} for sequence {sequence} of {partition}"
            )
            return None

    async def _send(
        self, partition: TopicPartition, batch: bytes
    ) -> PartitionProduceResponse | None:
        client = self._client
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=2000,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.partition, records=batch)],
                )
            ],
        )
        version_max = client.random.randint(3, _PRODUCE_VERSION_MAX)
        try:
            answer = await client.call(request, ProduceResponse, version_max=version_max)
        except PeerError as error:
            client.trace(f"produce to {partition}: {error}")
            return None
        return answer.responses[0].partition_responses[0]
