"""Clients that do not behave: they send ahead, half-close, vanish without a word, or do not read.

They speak over bare streams. Whatever they do, the node must go on, what they were told must be
so, and answers that come must be those of their requests, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.headers import decode_response, encode_request
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.frame_reader import FrameReader
from tidelog.server.network.receive_buffer import ReceiveMemory
from tidelog.testing.history import Operation, Outcome, Send, check_history
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.network import SimulatedTransport
from tidelog.testing.simulation.simulation import SECOND_US
from tidelog.testing.simulation.workloads.consuming import read_everything
from tidelog.testing.simulation.workloads.topics import create_topics, list_offset
from tidelog.testing.simulation.workloads.workspace import Workspace
from tidelog.world.network import BROKEN, WRITABLE

_TOPIC = "rude"
_PRODUCE_VERSION = 9
_FETCH_VERSION = 11
_FRAME_BYTES_MAX = 1 << 20
_ARENA_BYTES = 64 * 1024
_LOOK_S = 0.005
_PATIENCE_S = 1.0
_PATIENCE_IN_PEACE_S = 3.0  # a job may still be late from the time of faults


class RudeClients:
    """A workload of such clients, on a topic of their own."""

    def __init__(self, workspace: Workspace, clients: int) -> None:
        self.workspace = workspace
        self._clients = clients

    def start(self) -> None:
        workspace = self.workspace
        admin = workspace.make_client("rude-admin")
        admin.start(create_topics(admin, workspace, [_TOPIC], 1, {"segment.bytes": "10000"}))
        for number in range(self._clients):
            client = workspace.make_client(f"rude-{number}")
            workspace.start_when_ready(client, _RudeClient(client, workspace).run)

    def wind_up(self) -> None:
        workspace = self.workspace
        client = workspace.make_client("rude-reader")
        client.start(self._read_behind_the_others(client))

    async def _read_behind_the_others(self, client: SimulatedClient) -> None:
        """With the faults over, who sends ahead gets all its answers, and so does who ends its
        side of the stream behind its requests."""
        await list_offset(client, TopicPartition(_TOPIC, 0))
        rude = _RudeClient(client, self.workspace)
        await rude.send_ahead_in_peace(half_closes=False)
        await rude.send_ahead_in_peace(half_closes=True)
        workspace = self.workspace
        await read_everything(client, workspace.partitions, workspace.history, read_committed=False)

    def failures(self) -> Iterable[str]:
        return map(str, check_history(self.workspace.history).anomalies)


class _RudeClient:
    """Opens one stream after the other and leaves each in another way."""

    def __init__(self, client: SimulatedClient, workspace: Workspace) -> None:
        self._client = client
        self._workspace = workspace
        self._partition = TopicPartition(_TOPIC, 0)
        self._operations = 0

    async def run(self) -> None:
        client = self._client
        manners: list[tuple[str, Callable[[_Stream], Coroutine[Any, Any, None]]]] = [
            ("clients that sent ahead", self._send_ahead),
            ("half-closed connections", self._half_close),
            ("clients that vanished", self._vanish),
            ("clients that vanished in a frame", self._vanish_in_frame),
            ("clients that did not read", self._do_not_read),
        ]
        while not self._workspace.is_over:
            stream = _Stream(client)
            if await stream.is_connected():
                name, behave = client.random.choice(manners)
                client.trace(name)
                client.simulation.count(name)
                await behave(stream)
            stream.close()
            await client.sleep(client.random.random() * 0.2)

    async def send_ahead_in_peace(self, *, half_closes: bool) -> None:
        stream = _Stream(self._client)
        if not await stream.is_connected():
            self._client.problem("cannot connect")
            return
        await self._send_ahead(stream, _PATIENCE_IN_PEACE_S, half_closes=half_closes)
        if stream.unanswered:
            self._client.problem(
                f"{stream.unanswered} requests of {stream.answers + stream.unanswered} that were "
                f"sent ahead{' and half-closed' if half_closes else ''} were not answered in "
                f"{_PATIENCE_IN_PEACE_S:g} s"
            )
        stream.close()

    async def _send_ahead(
        self, stream: _Stream, patience_s: float = _PATIENCE_S, *, half_closes: bool = False
    ) -> None:
        random = self._client.random
        for _ in range(random.randint(2, 10)):
            if random.random() < 0.8:
                self._produce(stream)
            else:
                self._fetch(stream, max_wait_ms=random.choice((0, 20)))
        if await stream.flush():
            if half_closes:
                stream.transport.shut_down()
            await stream.read_for(patience_s)

    async def _half_close(self, stream: _Stream) -> None:
        for _ in range(self._client.random.randint(1, 3)):
            self._produce(stream)
        if await stream.flush():
            stream.transport.shut_down()
            await stream.read_for(_PATIENCE_S)
            if stream.answers:
                self._client.simulation.count("half-closed connections with answers")

    async def _vanish(self, stream: _Stream) -> None:
        self._produce(stream)
        self._fetch(stream, max_wait_ms=500)
        await stream.flush()
        stream.transport.vanish()

    async def _vanish_in_frame(self, stream: _Stream) -> None:
        self._produce(stream)
        del stream.outgoing[self._client.random.randrange(1, len(stream.outgoing)) :]
        await stream.flush()
        stream.transport.vanish()

    async def _do_not_read(self, stream: _Stream) -> None:
        for _ in range(self._client.random.randint(5, 30)):
            self._fetch(stream, max_wait_ms=0)
            if self._client.random.random() < 0.2:
                self._produce(stream)
        if await stream.flush():
            await self._client.sleep(self._client.random.random())
            await stream.read_for(_PATIENCE_S)

    # Requests

    def _produce(self, stream: _Stream) -> None:
        """One record, from a producer without an id: it may land once, or not at all."""
        value = self._workspace.next_value()
        # A process of its own: without an id nothing keeps requests of two connections in order.
        self._operations += 1
        operation = Operation(f"{self._client.name}/{self._operations}", Outcome.UNKNOWN)
        operation.sends = [Send(self._partition, value)]
        self._workspace.history.append(operation)
        batch = encode_batch([Record(0, self._client.host.wall_ms(), None, value)])
        row = PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=self._partition.topic, partition_data=[row])],
        )

        def answered(response: Message) -> None:
            assert isinstance(response, ProduceResponse)
            row = response.responses[0].partition_responses[0]
            if not row.error_code:
                operation.outcome = Outcome.OK
                operation.sends = [Send(self._partition, value, row.base_offset)]

        stream.put_out(request, _PRODUCE_VERSION, answered)

    def _fetch(self, stream: _Stream, *, max_wait_ms: int) -> None:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2000)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=100_000 if max_wait_ms else 1,
            topics=[FetchTopic(topic=self._partition.topic, partitions=[row])],
        )
        stream.put_out(request, _FETCH_VERSION, lambda response: None)


class _Stream:
    """A bare stream with requests that wait for their answers."""

    def __init__(self, client: SimulatedClient) -> None:
        self._client = client
        self.transport: SimulatedTransport = client.host.connect(client.address)
        self.outgoing = bytearray()
        self._waiting: deque[tuple[int, int, int, Callable[[Message], None]]] = deque()
        self._frames = FrameReader(ReceiveMemory(arena_bytes=_ARENA_BYTES), _FRAME_BYTES_MAX)
        self._correlation_id = 0
        self.answers = 0

    @property
    def unanswered(self) -> int:
        return len(self._waiting)

    async def is_connected(self) -> bool:
        deadline_us = self._client.simulation.now_us + int(_PATIENCE_S * SECOND_US)
        while self._client.simulation.now_us < deadline_us:
            ready = self.transport.ready()
            if ready:
                return not ready & BROKEN
            await self._client.sleep(_LOOK_S)
        return False

    def put_out(self, request: Message, version: int, answered: Callable[[Message], None]) -> None:
        self._correlation_id += 1
        frame = encode_request(
            request.API_KEY, version, self._correlation_id, self._client.name, request
        )
        self.outgoing += frame
        self._waiting.append((self._correlation_id, request.API_KEY, version, answered))

    async def flush(self) -> bool:
        """Send everything; false when the stream does not take it."""
        deadline_us = self._client.simulation.now_us + int(_PATIENCE_S * SECOND_US)
        while self.outgoing and self._client.simulation.now_us < deadline_us:
            try:
                if self.transport.ready() & WRITABLE:
                    del self.outgoing[: self.transport.send(bytes(self.outgoing))]
            except OSError:
                return False
            if self.outgoing:
                await self._client.sleep(_LOOK_S)
        return not self.outgoing

    async def read_for(self, seconds: float) -> None:
        """Take answers until they are all there, the stream ends, or the time is up."""
        deadline_us = self._client.simulation.now_us + int(seconds * SECOND_US)
        while self._waiting and self._client.simulation.now_us < deadline_us:
            try:
                room = self._frames.room()
                received = self.transport.receive_into(room)
                if not received:
                    return
                for frame in self._frames.received(received):
                    self._answered(frame)
            except BlockingIOError:
                await self._client.sleep(_LOOK_S)
            except OSError:
                return
            except ProtocolError as error:
                self._client.problem(f"malformed answer: {error}")
                return

    def _answered(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("an answer that nobody waits for")
        correlation_id, api_key, version, answered = self._waiting.popleft()
        found, response = decode_response(api_key, version, frame)
        if found != correlation_id:
            raise ProtocolError(f"answer {found} where {correlation_id} was to come next")
        self.answers += 1
        answered(response)

    def close(self) -> None:
        self.transport.close()
