"""A client on raw sockets that costs little itself: what the broker can do, not what a client can.

    python -m benchmarks.raw node                  start a Tidelog node and measure all of it
    python -m benchmarks.raw produce-one HOST:PORT TOPIC
    python -m benchmarks.raw produce-bulk HOST:PORT TOPIC --partitions 4
    python -m benchmarks.raw fetch-bulk HOST:PORT TOPIC --partitions 4

The functions work against any Kafka broker whose topic exists already. Requests are prepared once
and sent again and again; answers are counted by their length.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.headers import decode_response, encode_request
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import Record, encode_batch

PRODUCE_VERSION = 9
FETCH_VERSION = 12
_TIMEOUT_S = 30.0
_GB = 1e9


@dataclass(slots=True, frozen=True)
class RawResult:
    """What a run did; latencies are those of one request, in milliseconds."""

    requests: int
    size_bytes: int
    seconds: float
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    latency_p999_ms: float = 0.0

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / 1e6


def produce_one_record_requests(
    host: str,
    port: int,
    topic: str,
    *,
    seconds: float = 5.0,
    connections: int = 4,
    window: int = 50,
    value_bytes: int = 100,
    acks: int = 1,
) -> RawResult:
    """Requests of one record each; every connection keeps `window` of them under way."""
    batch = encode_batch([Record(0, _now_ms(), b"key", bytes(value_bytes))])
    frame = produce_frame(topic, 0, batch, acks)
    answer_bytes = _probe_produce(host, port, frame)
    return _pump(host, port, [frame] * connections, answer_bytes, window, seconds=seconds)


def bulk_batch(batch_bytes: int = 1_000_000, record_bytes: int = 1000) -> bytes:
    """A batch of about this size; two with the same arguments have the same length."""
    count = max(1, batch_bytes // (record_bytes + 12))
    now_ms = _now_ms()
    records = [Record(index, now_ms, None, bytes(record_bytes)) for index in range(count)]
    return bytes(encode_batch(records))


def produce_bulk(
    host: str,
    port: int,
    topic: str,
    partitions: int,
    *,
    size_bytes_total: int = 1_000_000_000,
    batch_bytes: int = 1_000_000,
    window: int = 5,
    record_bytes: int = 1000,
    acks: int = 1,
) -> RawResult:
    """Big batches, one connection for each partition."""
    batch = bulk_batch(batch_bytes, record_bytes)
    frames = [produce_frame(topic, partition, batch, acks) for partition in range(partitions)]
    answer_bytes = _probe_produce(host, port, frames[0])
    requests = max(partitions, size_bytes_total // len(batch))
    result = _pump(host, port, frames, answer_bytes, window, requests=requests)
    return RawResult(
        result.requests,
        result.requests * len(batch),
        result.seconds,
        result.latency_p50_ms,
        result.latency_p99_ms,
        result.latency_p999_ms,
    )


def fetch_bulk(
    host: str,
    port: int,
    topic: str,
    partitions: int,
    *,
    size_bytes_total: int = 1_000_000_000,
    partition_max_bytes: int = 8_000_000,
) -> RawResult:
    """Read the partitions from their start, one after the other, until enough was read."""
    room = memoryview(bytearray(partition_max_bytes + 2_000_000))
    received_bytes = requests = 0
    latencies: list[float] = []
    with _connect(host, port) as sock:
        started = time.perf_counter()
        for partition in range(partitions):
            offset = 0
            while received_bytes < size_bytes_total:
                asked = time.perf_counter()
                sock.sendall(_fetch_frame(topic, partition, offset, partition_max_bytes))
                size_bytes = _receive_frame(sock, room)
                latencies.append((time.perf_counter() - asked) * 1000)
                requests += 1
                received_bytes += size_bytes
                next_offset = _next_offset(room[:size_bytes])
                if next_offset is None:
                    break
                offset = next_offset
        seconds = time.perf_counter() - started
    return _result(requests, received_bytes, seconds, latencies)


def _pump(
    host: str,
    port: int,
    frames: list[bytes],
    answer_bytes: int,
    window: int,
    *,
    seconds: float = 3600.0,
    requests: int = 1 << 62,
) -> RawResult:
    """Keep `window` copies of each frame under way, each on a connection of its own."""
    poll = select.epoll()
    lanes: dict[int, _Lane] = {}
    for frame in frames:
        lane = _Lane(_connect(host, port), frame, answer_bytes)
        lane.socket.setblocking(False)
        lanes[lane.socket.fileno()] = lane
        poll.register(lane.socket.fileno(), select.EPOLLIN)
    sent = answered = 0
    latencies: list[float] = []
    started = time.perf_counter()
    deadline = started + seconds
    for lane in lanes.values():
        sent += lane.ask(min(window, requests - sent))
    while answered < sent:
        for fd, events in poll.poll(_TIMEOUT_S):
            lane = lanes[fd]
            if events & select.EPOLLIN:
                count = lane.take(latencies)
                answered += count
                more = min(count, requests - sent) if time.perf_counter() < deadline else 0
                sent += lane.ask(more)
            lane.flush()
            wanted = select.EPOLLIN | (select.EPOLLOUT if lane.outgoing else 0)
            poll.modify(fd, wanted)
    elapsed = time.perf_counter() - started
    for lane in lanes.values():
        lane.socket.close()
    return _result(answered, answered * len(frames[0]), elapsed, latencies)


class _Lane:
    """A connection with its copies of one request."""

    def __init__(self, sock: socket.socket, frame: bytes, answer_bytes: int) -> None:
        self.socket = sock
        self.outgoing: deque[memoryview] = deque()
        self._frame = frame
        self._answer_bytes = answer_bytes
        self._partial_bytes = 0
        self._asked: deque[tuple[float, int]] = deque()

    def ask(self, count: int) -> int:
        if count > 0:
            self._asked.append((time.perf_counter(), count))
            if len(self._frame) < 10_000:
                self.outgoing.append(memoryview(self._frame * count))
            else:
                self.outgoing.extend([memoryview(self._frame)] * count)
            self.flush()
        return max(count, 0)

    def flush(self) -> None:
        try:
            while self.outgoing:
                data = self.outgoing.popleft()
                sent = self.socket.send(data)
                if sent < len(data):
                    self.outgoing.appendleft(data[sent:])
        except BlockingIOError:
            self.outgoing.appendleft(data)

    def take(self, latencies: list[float]) -> int:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        count, self._partial_bytes = divmod(self._partial_bytes + len(data), self._answer_bytes)
        now = time.perf_counter()
        left = count
        while left:
            asked, waiting = self._asked.popleft()
            done = min(left, waiting)
            latencies.append((now - asked) * 1000)
            left -= done
            if done < waiting:
                self._asked.appendleft((asked, waiting - done))
        return count


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _connect(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), _TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def produce_frame(topic: str, partition: int, batch: bytes | bytearray, acks: int) -> bytes:
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "raw", request)


def _fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return encode_request(ApiKey.FETCH, FETCH_VERSION, 1, "raw", request)


def _probe_produce(host: str, port: int, frame: bytes) -> int:
    """Send one request and return the length of its answer, which must be a success."""
    room = memoryview(bytearray(10_000))
    with _connect(host, port) as sock:
        sock.sendall(frame)
        size_bytes = _receive_frame(sock, room)
    _, response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, room[:size_bytes])
    assert isinstance(response, ProduceResponse)
    row = response.responses[0].partition_responses[0]
    if row.error_code:
        raise RuntimeError(f"produce is answered with error {row.error_code}: {row.error_message}")
    return 4 + size_bytes


def _receive_frame(sock: socket.socket, room: memoryview) -> int:
    length = sock.recv(4, socket.MSG_WAITALL)
    if len(length) < 4:
        raise ConnectionError("the broker closed the connection")
    (size_bytes,) = struct.unpack(">i", length)
    filled = 0
    while filled < size_bytes:
        received = sock.recv_into(room[filled:size_bytes])
        if not received:
            raise ConnectionError("the broker closed the connection")
        filled += received
    return int(size_bytes)


def _next_offset(frame: memoryview) -> int | None:
    """The offset after the records of a fetch response; None when it has none."""
    _, response = decode_response(ApiKey.FETCH, FETCH_VERSION, frame)
    assert isinstance(response, FetchResponse)
    row = response.responses[0].partitions[0]
    if row.error_code:
        raise RuntimeError(f"fetch is answered with error {row.error_code}")
    if not row.records:
        return None
    records = memoryview(row.records)
    at, next_offset = 0, None
    while at + 61 <= len(records):
        header = read_header(records, at)
        if at + header.size_bytes > len(records):
            break
        at += header.size_bytes
        next_offset = header.next_offset
    return next_offset


def _result(requests: int, size_bytes: int, seconds: float, latencies: list[float]) -> RawResult:
    latencies.sort()

    def percentile(share: float) -> float:
        return latencies[min(len(latencies) - 1, int(share * len(latencies)))] if latencies else 0.0

    return RawResult(
        requests, size_bytes, seconds, percentile(0.5), percentile(0.99), percentile(0.999)
    )


def _measure_node(arguments: argparse.Namespace) -> None:
    """Start a node in a process of its own and print what it does at what cost."""
    from benchmarks.process_usage import usage_of
    from tidelog.testing import Broker

    def run(label: str, broker: Broker, topic: str, command: list[str]) -> None:
        before = usage_of(broker.pid).cpu_s
        output = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.raw",
                command[0],
                broker.bootstrap_servers,
                topic,
                "--json",
                *command[1:],
            ],
            check=True,
            capture_output=True,
        ).stdout
        cpu_seconds = usage_of(broker.pid).cpu_s - before
        result = RawResult(**json.loads(output))
        print(
            f"{label:32} {result.requests_per_second:9.0f} requests/s"
            f" {result.megabytes_per_second:7.0f} MB/s"
            f" {cpu_seconds / result.requests * 1e6:8.1f} us CPU/request"
            f" {cpu_seconds / result.size_bytes * _GB:6.2f} s CPU/GB"
            f"   p50 {result.latency_p50_ms:.2f} p99 {result.latency_p99_ms:.2f} ms"
        )

    total = ["--megabytes", str(arguments.megabytes), "--partitions", "4"]
    one = ["produce-one", "--seconds", str(arguments.seconds)]
    with tempfile.TemporaryDirectory(prefix="tidelog-raw-", dir=arguments.data) as data:
        for durability in ("page-cache", "fsync"):
            settings = {"durability": durability, "num.partitions": "4", "logging.level": "error"}
            with Broker(mode="process", data=Path(data) / durability, settings=settings) as broker:
                for topic in ("one", "bulk"):
                    _create_topic(broker.bootstrap_servers, topic)
                run(f"one record, {durability}", broker, "one", one)
                run(f"one record, no window, {durability}", broker, "one", [*one, "--window", "1"])
                run(f"bulk produce, {durability}", broker, "bulk", ["produce-bulk", *total])
                run(f"bulk fetch, {durability}", broker, "bulk", ["fetch-bulk", *total])
                memory = usage_of(broker.pid).resident_mb
                print(f"resident memory {memory:.0f} MB")


def _create_topic(address: str, topic: str) -> None:
    """A Metadata request creates it."""
    from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
    from tidelog.testing.wire import WireClient

    host, _, port = address.rpartition(":")
    with WireClient(host, int(port)) as client:
        client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("node", "produce-one", "produce-bulk", "fetch-bulk"))
    parser.add_argument("address", nargs="?", default="127.0.0.1:9092")
    parser.add_argument("topic", nargs="?", default="raw")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--data", help="a folder for the node's data")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "node":
        _measure_node(arguments)
        return
    host, _, port = arguments.address.rpartition(":")
    where = (host, int(port), arguments.topic)
    total = arguments.megabytes * 1_000_000
    if arguments.what == "produce-one":
        result = produce_one_record_requests(
            *where,
            seconds=arguments.seconds,
            connections=arguments.connections,
            window=arguments.window,
            acks=arguments.acks,
        )
    elif arguments.what == "produce-bulk":
        result = produce_bulk(
            *where, arguments.partitions, size_bytes_total=total, acks=arguments.acks
        )
    else:
        result = fetch_bulk(*where, arguments.partitions, size_bytes_total=total)
    if arguments.json:
        print(json.dumps(asdict(result)))
    else:
        print(
            f"{result.requests_per_second:.0f} requests/s, {result.megabytes_per_second:.0f} MB/s, "
            f"p50 {result.latency_p50_ms:.2f} ms, p99 {result.latency_p99_ms:.2f} ms, "
            f"p99.9 {result.latency_p999_ms:.2f} ms"
        )


if __name__ == "__main__":
    main()
