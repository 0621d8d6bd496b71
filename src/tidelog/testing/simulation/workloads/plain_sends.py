"""Producers without idempotence: acks=1 is never lost, acks=0 may be, and nothing comes twice.

On a cluster acks=1 may be lost with its leader, and acks=all is not.

A client that repeats a send of unknown outcome may write its records twice. Here every attempt has
values of its own, so that each value may be in the log once at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.history import Operation, Outcome, Send, check_history
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.asking import RETRIABLE
from tidelog.testing.simulation.workloads.consuming import Consumer, read_everything
from tidelog.testing.simulation.workloads.topics import create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPIC = "plain"
_TASKS = 3
_VERSION_MIN, _BY_NAME_MAX = 3, 12
_RETRY_S = 0.05


def plain_batch(client: SimulatedClient, values: Sequence[bytes]) -> bytes:
    """Records of no known producer, compressed or not."""
    now_ms = client.host.wall_ms()
    return bytes(
        encode_batch(
            [Record(place, now_ms, None, value) for place, value in enumerate(values)],
            compression=client.random.choice((Compression.NONE, Compression.NONE, Compression.LZ4)),
        )
    )


def produce_request(acks: int, batches: dict[TopicPartition, bytes]) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, index), batch in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=2000,
        topic_data=[
            TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()
        ],
    )


class PlainSends:
    """Producers that keep several requests under way, some with acks=0."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.plain_producers > 0

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        admin = workspace.make_client("plain-admin")
        configs = {"segment.bytes": str(options.segment_bytes)}
        admin.start(create_topics(admin, workspace, [_TOPIC], options.partitions, configs))
        for number in range(options.plain_producers):
            client = workspace.make_client(f"plain-{number}")
            for task in range(_TASKS):
                producer = PlainProducer(client, workspace, f"plain-{number}/{task}", options)
                workspace.start_when_ready(client, producer.run)
        if admin.random.random() < 0.5:
            client = workspace.make_client("plain-consumer")
            consumer = Consumer(client, workspace, read_committed=False)
            workspace.start_when_ready(client, consumer.run)

    def wind_up(self) -> None:
        workspace = self.workspace
        client = workspace.make_client("plain-last")
        client.start(
            read_everything(client, workspace.partitions, workspace.history, read_committed=False)
        )

    def failures(self) -> Iterable[str]:
        return map(str, check_history(self.workspace.history).anomalies)


class PlainProducer:
    """One task of a producer; its requests follow each other, those of other tasks do not wait."""

    def __init__(
        self, client: SimulatedClient, workspace: Workspace, name: str, options: Options
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._name = name
        self._is_cluster = options.nodes > 1

    async def run(self) -> None:
        client, workspace = self._client, self._workspace
        while not workspace.is_over:
            # Each partition may have another leader.
            most = 1 if self._is_cluster else min(3, len(workspace.partitions))
            count = client.random.randint(1, most)
            partitions = client.random.sample(workspace.partitions, count)
            values = {
                partition: [workspace.next_value() for _ in range(client.random.randint(1, 3))]
                for partition in partitions
            }
            operations = {
                partition: Operation(
                    self._name, Outcome.UNKNOWN, [Send(partition, value) for value in rows]
                )
                for partition, rows in values.items()
            }
            workspace.history += operations.values()
            batches = {partition: plain_batch(client, rows) for partition, rows in values.items()}
            if client.random.random() < 0.2:
                client.tell(
                    produce_request(0, batches), client.random.randint(_VERSION_MIN, _BY_NAME_MAX)
                )
            else:
                acks = client.random.choice((1, -1)) if self._is_cluster else 1
                await self._send(produce_request(acks, batches), operations)
            if client.random.random() < 0.4:
                await client.sleep(client.random.random() * 0.05)

    async def _send(
        self, request: ProduceRequest, operations: dict[TopicPartition, Operation]
    ) -> None:
        client = self._client
        version = client.random.randint(_VERSION_MIN, _BY_NAME_MAX)
        try:
            answer = await client.call(request, ProduceResponse, version_max=version)
        except PeerError as error:
            client.trace(f"produce: {error}")
            await client.sleep(_RETRY_S)
            return
        for topic in answer.responses:
            for row in topic.partition_responses:
                partition = TopicPartition(topic.name, row.index)
                operation = operations[partition]
                code = ErrorCode(row.error_code)
                client.trace(f"produced to {partition}: {code.name} at {row.base_offset}")
                if code is ErrorCode.NONE and self._is_kept(request.acks):
                    operation.outcome = Outcome.OK
                    operation.sends = [
                        Send(partition, send.value, row.base_offset + place)
                        for place, send in enumerate(operation.sends)
                    ]
                elif code is not ErrorCode.NONE and code not in RETRIABLE:
                    self._workspace.problem(client.name, f"{code.name} for {partition}")

    def _is_kept(self, acks: int) -> bool:
        """Whether what is acknowledged must never be lost."""
        return acks == -1 or self._workspace.replication_factor == 1
