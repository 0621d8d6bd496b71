"""A consumer with a fetch session: it names a partition again only when its position has moved."""

from __future__ import annotations

from tidelog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.history import Operation
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.consuming import Consumer, Reader
from tidelog.testing.simulation.workloads.topics import list_offset
from tidelog.testing.simulation.workloads.workspace import Workspace

_VERSION_MIN, _BY_NAME_MAX = 7, 12
_RETRY_S = 0.05
_NO_SESSION = 0
_LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


def draw_consumer(
    client: SimulatedClient, options: Options
) -> type[Consumer] | type[SessionConsumer]:
    """A kind of consumer; on several nodes one that asks for a partition at a time, and so has one
    leader to go to."""
    return client.random.choice((Consumer, SessionConsumer)) if options.nodes == 1 else Consumer


class SessionConsumer:
    """Reads all partitions with each request, and in the end up to their ends: a session that
    forgets a partition would never get there."""

    def __init__(
        self, client: SimulatedClient, workspace: Workspace, *, read_committed: bool
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._read_committed = read_committed
        self._readers: dict[TopicPartition, Reader] = {}
        self._version = client.random.randint(_VERSION_MIN, _BY_NAME_MAX)
        self._max_bytes = client.random.choice((200, 2000, 100_000))
        self._session_id = _NO_SESSION
        self._epoch = 0
        self._told: dict[TopicPartition, int] = {}
        """The positions that the session knows."""

    async def run(self) -> None:
        while not self._workspace.is_over:
            await self._poll()
        ends = {
            partition: await list_offset(
                self._client, partition, read_committed=self._read_committed
            )
            for partition in list(self._workspace.partitions)
        }
        while any(self._reader(each).position < end for each, end in ends.items()):
            await self._poll()

    def _reader(self, partition: TopicPartition) -> Reader:
        reader = self._readers.get(partition)
        if reader is None:
            reader = Reader(self._client, partition, read_committed=self._read_committed)
            self._readers[partition] = reader
        return reader

    async def _poll(self) -> None:
        client = self._client
        positions = {each: self._reader(each).position for each in self._workspace.partitions}
        changed = {
            partition: position
            for partition, position in positions.items()
            if self._told.get(partition) != position
        }
        try:
            answer = await client.call(
                self._request(changed), FetchResponse, version_max=self._version
            )
        except PeerError as error:
            client.trace(f"fetch: {error}")
            await self._lose()
            return
        code = ErrorCode(answer.error_code)
        if code in _LOST:
            client.trace(f"fetch: {code.name}")
            await self._lose()
            return
        assert code is ErrorCode.NONE, f"{client.name}: Fetch: {code.name}"
        self._session_id = answer.session_id
        self._epoch = self._epoch + 1 if answer.session_id != _NO_SESSION else 0
        self._told = positions if answer.session_id != _NO_SESSION else {}
        self._hear(answer)

    def _request(self, changed: dict[TopicPartition, int]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, index), position in changed.items():
            row = FetchPartition(
                partition=index, fetch_offset=position, partition_max_bytes=self._max_bytes
            )
            topics.setdefault(topic, []).append(row)
        return FetchRequest(
            max_wait_ms=self._client.random.choice((0, 20, 100)),
            min_bytes=self._client.random.choice((1, 1, 500)),
            max_bytes=self._client.random.choice((500, 1 << 20)),
            isolation_level=int(self._read_committed),
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )

    def _hear(self, answer: FetchResponse) -> None:
        for topic in answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                polled = self._readers[partition].take_values(data)
                if polled:
                    self._client.trace(
                        f"polled {polled[0].offset}-{polled[-1].offset} of {partition}"
                    )
                    self._workspace.history.append(Operation(self._client.name, polls=[polled]))

    async def _lose(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = 0
        self._told = {}
        await self._client.sleep(_RETRY_S * self._client.random.random())
