"""Bare loops: the least that a broker's work on a byte can cost on this machine.

Produce is recv, CRC-32C of the batch and pwrite; consume is sendfile. Nothing else is done: no
event loop, no index, no offsets, one client at a time. The loops take and give real Kafka frames,
so the client of `benchmarks.raw` drives them as it drives the brokers, and the distance between a
broker's figures and these is what the broker adds.

    python -m benchmarks.floor PORT FILE
"""

import os
import socket
import sys
import tempfile
from pathlib import Path

from crc32c import crc32c

from benchmarks.page_cache import settle
from benchmarks.raw import FETCH_VERSION, PRODUCE_VERSION, bulk_batch, produce_frame
from benchmarks.scenarios import RECORD_BYTES, Figures, Sizes, raw_figures
from benchmarks.servers import ServerProcess, wait_until_serving
from benchmarks.workloads import FETCH_BYTES, run_workload
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.headers import encode_response

_TOPIC = "floor"
LENGTH_BYTES = 4
SEND_BUFFER_BYTES = 100 * 1024
"""As Kafka has it. It keeps the sender close to the reader; more of it costs both more CPU."""
ATTRIBUTES_AT = 21
"""Where in a batch the bytes begin that its CRC covers."""


class BareLoops(ServerProcess):
    """The loops as a process."""

    kind = "floor"
    name = "floor"

    def start(self) -> None:
        file = str(self.data / "records")
        self._spawn([sys.executable, "-m", "benchmarks.floor", str(self.port), file])


def measure(sizes: Sizes) -> Figures:
    """The figures of `scenarios.raw`, of the bare loops."""
    megabytes = sizes.bulk_records * RECORD_BYTES / 1e6
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        loops = BareLoops(Path(folder))
        loops.start()
        arguments = {
            "bootstrap": f"127.0.0.1:{loops.port}",
            "topic": _TOPIC,
            "megabytes": megabytes,
        }
        try:
            wait_until_serving(loops)
            settle(loops.data, round(megabytes * 1e6))
            before = loops.usage().cpu_s
            written = run_workload("raw-produce", **arguments)
            produce_cpu_s = loops.usage().cpu_s - before
            settle(loops.data, 0)
            before = loops.usage().cpu_s
            read = run_workload("raw-consume", **arguments)
            consume_cpu_s = loops.usage().cpu_s - before
        finally:
            loops.stop()
    return raw_figures(written, produce_cpu_s, read, consume_cpu_s)


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


def _serve(port: int, path: str) -> None:
    shape = Shape()
    with (
        open(path, "w+b", buffering=0) as file,
        socket.create_server(("127.0.0.1", port)) as listener,
    ):
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            with client:
                _serve_client(client, file.fileno(), shape)


def _serve_client(client: socket.socket, fd: int, shape: Shape) -> None:
    room, batch_at, batch_end = shape.room, shape.batch_at, shape.batch_end
    write_at = os.fstat(fd).st_size
    read_at = 0
    while size_bytes := int.from_bytes(receive(client, room[:LENGTH_BYTES]), "big"):
        frame = receive(client, room[:size_bytes])
        if frame[1] == ApiKey.PRODUCE:
            crc32c(frame[batch_at + ATTRIBUTES_AT : batch_end])
            write_at += os.pwrite(fd, frame[batch_at:batch_end], write_at)
            client.sendall(shape.produced)
        else:
            client.sendall(shape.ahead, socket.MSG_MORE)
            end = read_at + shape.fetched_bytes
            if end > write_at:
                read_at, end = 0, shape.fetched_bytes
            while read_at < end:
                read_at += os.sendfile(client.fileno(), fd, read_at, end - read_at)
            client.sendall(shape.behind)


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
