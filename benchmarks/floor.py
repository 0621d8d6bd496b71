"""Bare loops: the least that a broker's work on a byte can cost on this machine.

Produce is recv, CRC-32C of the batch and pwrite; consume is sendfile. Nothing else is done: no
event loop, no index, no offsets. The loops take and give real Kafka frames and know enough of the
protocol for librdkafka, so they take the scenarios that brokers take, from the same clients. The
distance between a broker's figures and these is what the broker adds; what is left is the client's.

    python -m benchmarks.floor PORT FILE
"""

import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

from crc32c import crc32c

from benchmarks.raw import FETCH_VERSION, PRODUCE_VERSION, bulk_batch, produce_frame
from benchmarks.scenarios import (
    SCENARIOS,
    Figures,
    Session,
    Sizes,
)
from benchmarks.servers import ServerProcess, wait_until_serving
from benchmarks.workloads import FETCH_BYTES
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.apis.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.headers import decode_request, decode_request_header, encode_response
from tidelog.protocol.produce import (
    ProducedPartition,
    decode_produce_request,
    encode_produce_response,
)
from tidelog.protocol.schema import Message

_TOPIC = "floor"
LENGTH_BYTES = 4
SEND_BUFFER_BYTES = 100 * 1024
"""As Kafka has it. It keeps the sender close to the reader; more of it costs both more CPU."""
ATTRIBUTES_AT = 21
"""Where in a batch the bytes begin that its CRC covers."""

MEASURED = ("produce", "raw", "ten", "small")
"""The scenarios that the loops can take."""

# As far as librdkafka asks before it writes batches of today's format.
_VERSIONS = {
    ApiKey.PRODUCE: (3, PRODUCE_VERSION),
    ApiKey.FETCH: (4, FETCH_VERSION),
    ApiKey.METADATA: (0, 4),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (0, 4),
}


class BareLoops(ServerProcess):
    """The loops as a process."""

    kind = "floor"
    name = "floor"

    def start(self) -> None:
        file = str(self.data / "records")
        self._spawn([sys.executable, "-m", "benchmarks.floor", str(self.port), file])


def measure(scenario: str, sizes: Sizes) -> Figures:
    """The figures of one of the `MEASURED` scenarios, of the bare loops."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        loops = BareLoops(Path(folder))
        loops.start()
        try:
            wait_until_serving(loops)
            return SCENARIOS[scenario](Session(loops, sizes))
        finally:
            loops.stop()


class Shape:
    """Where in a frame the batch lies, and answers made once: a client asks the same always."""

    def __init__(self) -> None:
        batch = bulk_batch()
        self.batch_at = produce_frame(_TOPIC, 0, batch, acks=1).index(batch) - LENGTH_BYTES
        self.batch_end = self.batch_at + len(batch)
        self.room = memoryview(bytearray(2 * len(batch)))
        self.produced = _produce_answer()
        records = batch * (FETCH_BYTES // len(batch))
        self.fetched_bytes = len(records)
        self.ahead, self.behind = _fetch_answer(records)


class _Topics:
    """The answers to what clients ask before they produce."""

    def __init__(self, port: int) -> None:
        self._broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)
        self._partitions: dict[str, int] = {}

    def answer(self, request: Message) -> Message:
        if isinstance(request, CreateTopicsRequest):
            for topic in request.topics:
                self._partitions[topic.name] = topic.num_partitions
            made = [CreatableTopicResult(name=topic.name) for topic in request.topics]
            return CreateTopicsResponse(topics=made)
        if request.API_KEY == ApiKey.METADATA:
            topics = [self._described(*each) for each in self._partitions.items()]
            return MetadataResponse(brokers=[self._broker], controller_id=1, topics=topics)
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=int(key), min_version=lowest, max_version=highest)
                for key, (lowest, highest) in _VERSIONS.items()
            ]
        )

    @staticmethod
    def _described(name: str, count: int) -> MetadataResponseTopic:
        rows = [
            MetadataResponsePartition(
                partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            for number in range(count)
        ]
        return MetadataResponseTopic(name=name, partitions=rows)


class _File:
    """Where all batches go, one behind the other."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size_bytes = 0

    def append(self, batch: memoryview) -> None:
        crc32c(batch[ATTRIBUTES_AT:])
        self.size_bytes += os.pwrite(self.fd, batch, self.size_bytes)


def _serve(port: int, path: str) -> None:
    shape = Shape()
    topics = _Topics(port)
    with (
        open(path, "w+b", buffering=0) as opened,
        socket.create_server(("127.0.0.1", port)) as listener,
    ):
        file = _File(opened.fileno())
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            # librdkafka keeps connections that it does not use.
            threading.Thread(
                target=_serve_client, args=(client, file, topics, shape), daemon=True
            ).start()


def _serve_client(client: socket.socket, file: _File, topics: _Topics, shape: Shape) -> None:
    room = memoryview(bytearray(len(shape.room)))
    read_at = 0
    with client:
        while size_bytes := int.from_bytes(receive(client, room[:LENGTH_BYTES]), "big"):
            frame = receive(client, room[:size_bytes])
            if frame[1] == ApiKey.PRODUCE:
                client.sendall(_produce(frame, file))
            elif frame[1] == ApiKey.FETCH:
                client.sendall(shape.ahead, socket.MSG_MORE)
                end = read_at + shape.fetched_bytes
                if end > file.size_bytes:
                    read_at, end = 0, shape.fetched_bytes
                while read_at < end:
                    read_at += os.sendfile(client.fileno(), file.fd, read_at, end - read_at)
                client.sendall(shape.behind)
            else:
                client.sendall(_answer(frame, topics))


def _produce(frame: memoryview, file: _File) -> bytes:
    header, at = decode_request_header(frame)
    rows = []
    for topic, partitions in decode_produce_request(frame, header.api_version, at).topics:
        for _, records in partitions:
            assert records is not None
            file.append(records)
        rows.append((topic, [ProducedPartition(number, 0, 0) for number, _ in partitions]))
    return encode_produce_response(header.api_version, header.correlation_id, rows)


def _answer(frame: memoryview, topics: _Topics) -> bytes:
    header, request = decode_request(frame)
    answer = topics.answer(request)
    return encode_response(header.api_key, header.api_version, header.correlation_id, answer)


def receive(client: socket.socket, room: memoryview) -> memoryview:
    """Fill the room; it comes back empty when the client has closed."""
    filled = 0
    while filled < len(room):
        received = client.recv_into(room[filled:])
        if not received:
            return room[:0]
        filled += received
    return room


def _produce_answer() -> bytes:
    row = PartitionProduceResponse(index=0, base_offset=0)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=_TOPIC, partition_responses=[row])]
    )
    return bytes(encode_response(ApiKey.PRODUCE, PRODUCE_VERSION, 1, response))


def _fetch_answer(records: bytes) -> tuple[bytes, bytes]:
    """What stands ahead of the records and behind them."""
    row = PartitionData(partition_index=0, high_watermark=1 << 40, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic=_TOPIC, partitions=[row])])
    ahead, _, behind = bytes(encode_response(ApiKey.FETCH, FETCH_VERSION, 1, response)).partition(
        records
    )
    return ahead, behind


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
