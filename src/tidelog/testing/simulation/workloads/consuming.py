"""Consumers: what they read is in order, complete, and each record comes once."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, decode_records
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.history import Operation, Polled
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import RETRIABLE
from tidelog.testing.simulation.workloads.workspace import Workspace

_FETCH_VERSION_MAX = 12  # by topic name
_RETRY_S = 0.05


class ReadError(AssertionError):
    """A fetch was refused, which must not be unless records may go."""

    def __init__(self, code: ErrorCode, position: int, partition: TopicPartition) -> None:
        super().__init__(f"{code.name} at {position} of {partition}")
        self.code = code


class Reader:
    """One partition's records from a position on, as a consumer sees them."""

    def __init__(
        self, client: SimulatedClient, partition: TopicPartition, *, read_committed: bool
    ) -> None:
        self._client = client
        self._read_committed = read_committed
        self.partition = partition
        self.position = 0
        self.high_watermark = 0
        self.end_offset = 0
        """The end of what may be read, as the last answer said."""

    async def poll(self, max_wait_ms: int = 100) -> list[Polled] | None:
        """The next values, none if there are none yet; None when the node did not tell."""
        records = await self.poll_records(max_wait_ms)
        return None if records is None else self._values(records)

    async def poll_records(self, max_wait_ms: int = 100) -> list[Record] | None:
        """The next records, likewise."""
        client = self._client
        row = FetchPartition(
            partition=self.partition.partition,
            fetch_offset=self.position,
            partition_max_bytes=client.random.choice((100, 1000, 100_000)),
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=int(self._read_committed),
            topics=[FetchTopic(topic=self.partition.topic, partitions=[row])],
        )
        try:
            answer = await client.call(
                request, FetchResponse, version_max=client.random.randint(4, _FETCH_VERSION_MAX)
            )
        except PeerError as error:
            client.trace(f"fetch of {self.partition}: {error}")
            return None
        return self.take(answer.responses[0].partitions[0]) if answer.responses else None

    def take_values(self, data: PartitionData) -> list[Polled]:
        """The values in an answer, none when the node did not tell."""
        return self._values(self.take(data) or [])

    def take(self, data: PartitionData) -> list[Record] | None:
        """The records in an answer; the position moves behind them."""
        if data.error_code in RETRIABLE:
            return None
        if data.error_code:
            raise ReadError(ErrorCode(data.error_code), self.position, self.partition)
        self.high_watermark = data.high_watermark
        self.end_offset = data.last_stable_offset if self._read_committed else data.high_watermark
        return list(self._take(data))

    def _values(self, records: list[Record]) -> list[Polled]:
        return [Polled(self.partition, each.offset, bytes(each.value or b"")) for each in records]

    def _take(self, data: PartitionData) -> Iterator[Record]:
        view = memoryview(data.records or b"")
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        ignored: set[int] = set()
        for at, header in iterate_headers(view):
            if at + header.size_bytes > len(view):
                break  # the rest of it did not fit
            if header.last_offset < self.position:
                raise AssertionError(
                    f"{self._client.name}: a fetch at {self.position} of {self.partition} got "
                    f"the batch {header.base_offset} to {header.last_offset}"
                )
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(aborted.pop(0)[1])
            records = decode_records(view[at : at + header.size_bytes], header)
            if header.is_control:
                ignored.discard(header.producer_id)
            elif not (
                self._read_committed and header.is_transactional and header.producer_id in ignored
            ):
                yield from (each for each in records if each.offset >= self.position)
            self.position = max(self.position, header.last_offset + 1)


class Consumer:
    """Reads all partitions in turn for as long as the workload lasts."""

    def __init__(
        self, client: SimulatedClient, workspace: Workspace, *, read_committed: bool
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._read_committed = read_committed
        self.polled = 0

    async def run(self) -> None:
        workspace = self._workspace
        readers: dict[TopicPartition, Reader] = {}
        while not workspace.is_over:
            for partition in workspace.partitions:
                reader = readers.get(partition)
                if reader is None:
                    reader = readers[partition] = Reader(
                        self._client, partition, read_committed=self._read_committed
                    )
                await self._poll(reader)

    async def _poll(self, reader: Reader) -> None:
        polled = await reader.poll()
        if polled:
            self.polled += len(polled)
            self._client.trace(
                f"polled {polled[0].offset}-{polled[-1].offset} of {reader.partition}"
            )
            operation = Operation(self._client.name, polls=[polled])
            self._workspace.history.append(operation)
        elif polled is None:
            await self._client.sleep(_RETRY_S)


async def read_everything(
    client: SimulatedClient,
    partitions: list[TopicPartition],
    history: list[Operation],
    *,
    read_committed: bool,
) -> None:
    """Reads every partition from its start to its end, once."""
    for partition in partitions:
        reader = Reader(client, partition, read_committed=read_committed)
        operation = Operation(client.name, repositioned=True)
        history.append(operation)
        while True:
            polled = await reader.poll(max_wait_ms=0)
            if polled:
                operation.polls.append(polled)
            if polled is None:
                await client.sleep(_RETRY_S)
            elif reader.position >= reader.end_offset:
                break
        client.trace(f"read {partition} up to {reader.position}")
