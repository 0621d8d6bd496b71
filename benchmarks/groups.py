"""The group coordinator through a real node: heartbeats, offset commits, loading of offsets.

    python -m benchmarks.groups                    all three, about 30 seconds
    python -m benchmarks.groups --seconds 2 --offsets 100000

The client uses raw sockets with prepared requests in a process of its own. Rates are given by the
clock and per second of the broker's CPU: the second is what one core can do when the client does
not share it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from struct import Struct

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.apis.list_groups import ListGroupsRequest
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.sync_group import SyncGroupRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.headers import encode_request
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

_LENGTH = Struct(">i")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_HOST = "127.0.0.1"
_TOPIC = "bench"


@dataclass(slots=True, frozen=True)
class Rate:
    """`per_second` by the clock, `per_cpu_second` by what the broker's process used."""

    requests: int
    per_second: float
    per_cpu_second: float
    latency_p99_ms: float


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def run_requests(port: int, pid: int, frames: list[bytes], seconds: float) -> Rate:
    """One connection per frame, each sending it again when it was answered."""
    epoll = select.epoll()
    sockets: dict[int, tuple[socket.socket, bytes]] = {}
    sent_at: dict[int, float] = {}
    latencies = []
    for frame in frames:
        connection = socket.create_connection((_HOST, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        epoll.register(connection, select.EPOLLIN)
        sockets[connection.fileno()] = (connection, frame)
    started_cpu = cpu_seconds(pid)
    started = time.perf_counter()
    for fd, (connection, frame) in sockets.items():
        sent_at[fd] = started
        connection.send(frame)
    while (now := time.perf_counter()) - started < seconds:
        for fd, _ in epoll.poll(1.0):
            connection, frame = sockets[fd]
            answer = connection.recv(65536)
            if _LENGTH.unpack_from(answer)[0] + 4 != len(answer):
                raise RuntimeError("an answer came in parts or was cut off")
            latencies.append(now - sent_at[fd])
            sent_at[fd] = now
            connection.send(frame)
    elapsed = time.perf_counter() - started
    used = cpu_seconds(pid) - started_cpu
    for connection, _ in sockets.values():
        connection.close()
    latencies.sort()
    p99_ms = latencies[int(len(latencies) * 0.99)] * 1000
    count = len(latencies)
    return Rate(count, round(count / elapsed), round(count / used), round(p99_ms, 2))


def heartbeat_frames(client: WireClient, count: int) -> list[bytes]:
    """Makes so many groups of one member each and returns the heartbeats of the members."""
    frames = []
    for place in range(count):
        group = f"heartbeat-{place}"
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=1_000_000,
            rebalance_timeout_ms=1_000_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = client.call(join, version=2)
        member_id, generation = joined.member_id, joined.generation_id
        client.call(
            SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id),
            version=2,
        )
        beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        frames.append(encode_request(ApiKey.HEARTBEAT, 3, place, "bench", beat))
    return frames


def commit_request(group: str, partitions: range) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=_TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index * 7, committed_metadata=""
                    )
                    for index in partitions
                ],
            )
        ],
    )


def commit_frames(count: int) -> list[bytes]:
    return [
        encode_request(
            ApiKey.OFFSET_COMMIT, 7, place, "bench", commit_request(f"commit-{place}", range(1))
        )
        for place in range(count)
    ]


def prepare(client: WireClient) -> None:
    topic = CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version=5)
    client.call(FindCoordinatorRequest(key="g"), version=2)


def commit_many(client: WireClient, count: int) -> None:
    """So many committed offsets, a thousand to a group."""
    for group in range(max(count // 1_000, 1)):
        client.call(commit_request(f"load-{group}", range(1_000)), version=7)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


def load_seconds(broker: Broker) -> float:
    """From start to the moment when all groups can be asked for, without opening the log."""
    started = time.perf_counter()
    broker.start()
    served = time.perf_counter()
    with WireClient(_HOST, broker.port) as client:
        wait_until(
            lambda: client.call(ListGroupsRequest(), version=4).error_code == ErrorCode.NONE, 120
        )
    print(f"  started in {served - started:.2f} s", end="")
    return time.perf_counter() - served


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory() as data,
        Broker(
            mode="process", data=data, settings={"offsets.topic.num.partitions": "50"}
        ) as broker,
    ):
        with WireClient(_HOST, broker.port) as client:
            prepare(client)
            beats = heartbeat_frames(client, options.connections)
            rate = run_requests(broker.port, broker.pid, beats, options.seconds)
            results["heartbeats"] = asdict(rate)
            print(f"heartbeats  {rate}")
            commits = commit_frames(options.connections)
            rate = run_requests(broker.port, broker.pid, commits, options.seconds)
            results["offset_commits"] = asdict(rate)
            print(f"commits     {rate}")
            commit_many(client, options.offsets)
        broker.stop()
        seconds = load_seconds(broker)
        results["load"] = {"offsets": options.offsets, "seconds": round(seconds, 2)}
        print(f", {options.offsets:,} offsets loaded in {seconds:.2f} s")
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
