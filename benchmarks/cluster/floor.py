"""Bare loops of replication: the least that three copies of a byte can cost on this machine.

The leader receives batches, checks their CRC-32C, writes them and sends them on by sendfile; each
of two followers receives, checks and writes. The leader answers when both have it. Nothing else is
done: no event loop, no index, no offsets. The client is that of `benchmarks.raw`.

    python -m benchmarks.cluster.floor PORT FILE SYNC FOLLOWER_PORT ...

Without followers' ports it is a follower. SYNC is 1 for an fdatasync before each answer.
"""

import os
import select
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from crc32c import crc32c

from benchmarks.cluster.nodes import NODES
from benchmarks.floor import ATTRIBUTES_AT, LENGTH_BYTES, SEND_BUFFER_BYTES, Shape, receive
from benchmarks.page_cache import settle
from benchmarks.scenarios import RECORD_BYTES, Figures, Sizes, throughput
from benchmarks.servers import ServerProcess, wait_until_serving
from benchmarks.workloads import run_workload

_TOPIC = "floor"
_ACKNOWLEDGED = b"\x01"


class BareReplica(ServerProcess):
    """One of the loops as a process."""

    kind = "floor"
    name = "floor"

    def start(self, *, syncs: bool, followers: list[int]) -> None:
        command = [str(self.port), str(self.data / "records"), str(int(syncs))]
        self._spawn(
            [
                sys.executable,
                "-m",
                "benchmarks.cluster.floor",
                *command,
                *(str(port) for port in followers),
            ]
        )


def measure(sizes: Sizes) -> Figures:
    """The figures of `scenarios.raw`, of the bare loops."""
    page_cache = _measure("raw produce", sizes.bulk_records, syncs=False)
    return page_cache | _measure("raw fsync", sizes.fsync_records, syncs=True)


def _measure(name: str, records: int, *, syncs: bool) -> Figures:
    megabytes = records * RECORD_BYTES / 1e6
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder, ExitStack() as stack:
        replicas = [BareReplica(Path(folder) / str(number)) for number in range(NODES)]
        for replica in replicas[1:]:
            stack.callback(replica.stop)
            replica.start(syncs=syncs, followers=[])
            wait_until_serving(replica)
        leader = replicas[0]
        stack.callback(leader.stop)
        leader.start(syncs=syncs, followers=[replica.port for replica in replicas[1:]])
        wait_until_serving(leader)
        settle(Path(folder), round(megabytes * 1e6) * (NODES + 1) // 2)
        before = [replica.usage().cpu_s for replica in replicas]
        result = run_workload(
            "raw-produce", bootstrap=leader.bootstrap, topic=_TOPIC, megabytes=megabytes, acks=-1
        )
        used = [replica.usage().cpu_s - was for replica, was in zip(replicas, before, strict=True)]
    gigabytes = result["megabytes"] / 1000
    return throughput(name, result, sum(used)) | {
        f"{name}, leader's CPU s/GB": used[0] / gigabytes,
        f"{name}, a follower's CPU s/GB": sum(used[1:]) / (NODES - 1) / gigabytes,
    }


def _lead(listener: socket.socket, path: str, syncs: bool, followers: list[socket.socket]) -> None:
    shape = Shape()
    with open(path, "w+b", buffering=0) as file:
        while True:
            client, _ = listener.accept()
            with client:
                _tune(client)
                _lead_client(client, file.fileno(), shape, syncs, followers)


def _lead_client(
    client: socket.socket, fd: int, shape: Shape, syncs: bool, followers: list[socket.socket]
) -> None:
    room, size_bytes = shape.room, shape.batch_end - shape.batch_at
    written = 0
    acknowledged = dict.fromkeys(followers, 0)
    at = os.fstat(fd).st_size
    while True:
        readable, _, _ = select.select([client, *followers], [], [])
        answered = min(acknowledged.values())
        for follower in followers:
            if follower in readable:
                acknowledged[follower] += len(follower.recv(64))
        for _ in range(min(acknowledged.values()) - answered):
            client.sendall(shape.produced)
        if client not in readable:
            continue
        frame_bytes = int.from_bytes(receive(client, room[:LENGTH_BYTES]), "big")
        if not frame_bytes or not len(receive(client, room[:frame_bytes])):
            break
        batch = room[shape.batch_at : shape.batch_end]
        crc32c(batch[ATTRIBUTES_AT:])
        os.pwrite(fd, batch, at)
        for follower in followers:
            sent_bytes = 0
            while sent_bytes < size_bytes:
                sent_bytes += os.sendfile(
                    follower.fileno(), fd, at + sent_bytes, size_bytes - sent_bytes
                )
        if syncs:
            os.fdatasync(fd)
        at += size_bytes
        written += 1
    for follower in followers:
        while acknowledged[follower] < written:
            acknowledged[follower] += len(follower.recv(64))


def _follow(listener: socket.socket, path: str, syncs: bool) -> None:
    shape = Shape()
    room = shape.room[: shape.batch_end - shape.batch_at]
    with open(path, "w+b", buffering=0) as file:
        while True:
            leader, _ = listener.accept()
            with leader:
                _tune(leader)
                while len(receive(leader, room)):
                    crc32c(room[ATTRIBUTES_AT:])
                    file.write(room)
                    if syncs:
                        os.fdatasync(file.fileno())
                    leader.sendall(_ACKNOWLEDGED)


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def main() -> None:
    port, path, syncs, *follower_ports = sys.argv[1:]
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", int(port))))
        followers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", int(each))))
            for each in follower_ports
        ]
        for follower in followers:
            _tune(follower)
        if followers:
            _lead(listener, path, syncs == "1", followers)
        else:
            _follow(listener, path, syncs == "1")


if __name__ == "__main__":
    main()
