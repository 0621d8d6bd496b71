"""Send malformed frames to a node until it breaks, or until there were enough of them.

    python -m tests.fuzz.run --frames 1000000 --seed 1

The node runs in a process of its own. While frames come in, it must serve a client that behaves,
write nothing about unexpected errors to its log, and use no more memory and files than before; at
the end it must stop cleanly and start again with every record of the client that behaves.
"""

from __future__ import annotations

import argparse
import random
import re
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.compatibility.calls import batch, fetch, produce
from tests.fuzz.frames import Burst, FrameSource, Served
from tests.fuzz.valid_requests import FUZZED_TOPICS, ValidRequest, valid_requests
from tidelog.errors import TidelogError
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.records import decode_batches
from tidelog.server.handler import load_handlers
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

_PROBED_TOPIC = "probed"
_CONNECTIONS = 64
_CLOSED_WITHIN_S = 30.0
_CHECK_EVERY_FRAMES = 20_000
_MEMORY_GROWTH_BYTES_MAX = 64 << 20
_FILES_GROWTH_MAX = 64
_UNEXPECTED = re.compile(rb"Traceback|handler_failed|\bERROR\b.*|\bCRITICAL\b.*")

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": str(4 << 20),
    "log.retention.bytes": str(8 << 20),
    "log.retention.ms": "-1",  # the probes are of 1970
    "log.retention.check.interval.ms": "1000",
}


class FuzzFailure(TidelogError):
    """The node did what no node may do on malformed input."""


class FuzzRun:
    """Drives bursts of frames into a running node and watches it."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._broker = broker
        self._process = psutil.Process(broker.pid)
        self._log = Path(f"/proc/{broker.pid}/fd/2").open("rb")  # noqa: SIM115 - for the run
        self._probes = 0
        self._source = self._prepare(seed)
        self._files_before = self._process.num_fds()
        self._memory_before_bytes = 0
        self.frames = 0
        self.malformed = 0
        self.connections = 0

    def close(self) -> None:
        self._log.close()

    def _prepare(self, seed: int) -> FrameSource:
        with self._client() as client:
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=1,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(
                            name="cleanup.policy",
                            value="compact" if name.endswith("compacted") else "delete",
                        )
                    ],
                )
                for name in (*FUZZED_TOPICS, _PROBED_TOPIC)
            ]
            made = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        served: Served = {
            api_key: (handler.served_from, handler.max_version)
            for api_key, handler in load_handlers().items()
        }
        topic_ids = [topic.topic_id for topic in made.topics if topic.name in FUZZED_TOPICS]
        requests: list[ValidRequest] = valid_requests(random.Random(seed), topic_ids, 4)
        return FrameSource(requests, served, seed)

    def _client(self) -> WireClient:
        return WireClient("127.0.0.1", self._broker.port)

    # Sending

    def send(self, malformed: int) -> None:
        """Send at least so many malformed frames, over many connections."""
        until = self.malformed + malformed
        bursts = [self._source.burst() for _ in range(_CONNECTIONS)]
        while self.malformed < until:
            opened = [self._open(burst) for burst in bursts]
            following = [self._source.burst() for _ in range(_CONNECTIONS)]  # while the node works
            self._read_to_the_end(opened)
            self.frames += sum(burst.frames for burst in bursts)
            self.malformed += sum(burst.malformed for burst in bursts)
            self.connections += len(bursts)
            bursts = following

    def _open(self, burst: Burst) -> tuple[socket.socket, Burst]:
        sock = socket.create_connection(("127.0.0.1", self._broker.port), _CLOSED_WITHIN_S)
        try:
            sock.sendall(burst.data)
            if not burst.is_ended_by_node:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the node has seen enough already
        except OSError:
            sock.close()
            raise
        return sock, burst

    def _read_to_the_end(self, opened: list[tuple[socket.socket, Burst]]) -> None:
        """Read answers until the node has ended the connections that it must end by itself."""
        waiting = {sock.fileno(): (sock, burst) for sock, burst in opened}
        poll = select.poll()
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + _CLOSED_WITHIN_S
        try:
            while any(not burst.may_wait for _, burst in waiting.values()):
                if time.monotonic() > deadline:
                    self._complain_of_open(waiting)
                for fd, _ in poll.poll(1000):
                    if _is_ended(waiting[fd][0]):
                        poll.unregister(fd)
                        waiting.pop(fd)[0].close()
        finally:
            for sock, _ in waiting.values():
                sock.close()

    def _complain_of_open(self, waiting: dict[int, tuple[socket.socket, Burst]]) -> None:
        left = [burst for _, burst in waiting.values() if not burst.may_wait]
        raise FuzzFailure(
            f"{len(left)} connections are not closed after {_CLOSED_WITHIN_S:g} s; the first one "
            f"got {left[0].frames} frames: {left[0].data.hex()}"
        )

    # Watching

    def check(self) -> None:
        """The node serves, its log is quiet, and it holds no more than it held."""
        self._probe()
        unexpected = _UNEXPECTED.search(log := self._log.read())
        if unexpected is not None:
            place = log[unexpected.start() : unexpected.start() + 4000]
            raise FuzzFailure(f"the node's log: {place.decode(errors='replace')}")
        deadline = time.monotonic() + _CLOSED_WITHIN_S
        while self._process.num_fds() > self._files_before + _FILES_GROWTH_MAX:
            if time.monotonic() > deadline:
                raise FuzzFailure(
                    f"{self._process.num_fds()} open files, {self._files_before} before"
                )
            time.sleep(0.05)
        memory_bytes = self.memory_bytes
        if not self._memory_before_bytes:
            self._memory_before_bytes = memory_bytes  # by now every codec is compiled
        if memory_bytes > self._memory_before_bytes + _MEMORY_GROWTH_BYTES_MAX:
            raise FuzzFailure(
                f"{memory_bytes >> 20} MB of memory, {self._memory_before_bytes >> 20} before"
            )

    @property
    def memory_bytes(self) -> int:
        return int(self._process.memory_info().rss)

    def _probe(self) -> None:
        with self._client() as client:
            client.call(ApiVersionsRequest(), 0)
            value = b"probe %d" % self._probes
            answer = produce(client, _PROBED_TOPIC, batch(value))
            if answer.error_code or answer.base_offset != self._probes:
                raise FuzzFailure(f"probe {self._probes} was answered {answer}")
            self._probes += 1
            check_probes(client, self._probes, self._probes - 1)

    @property
    def probes(self) -> int:
        return self._probes


def check_probes(client: WireClient, count: int, offset: int = 0) -> None:
    """The records of the client that behaves, from `offset` on, are all there."""
    answer = fetch(client, _PROBED_TOPIC, offset)
    values = [record.value for _, records in decode_batches(answer.records) for record in records]
    if values != [b"probe %d" % number for number in range(offset, count)]:
        raise FuzzFailure(f"{count - offset} probes from {offset} on became {answer}")


def _is_ended(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1 << 18)
    except ConnectionResetError:
        return True


@contextmanager
def fuzzed_broker(data: Path) -> Iterator[Broker]:
    with Broker(mode="process", data=data, settings=SETTINGS) as broker:
        yield broker


def fuzz(data: Path, *, frames: int, seed: int, report: bool = False) -> FuzzRun:
    """One whole run of so many malformed frames, among others. Raises FuzzFailure."""
    with fuzzed_broker(data) as broker:
        run = FuzzRun(broker, seed)
        started = time.monotonic()
        try:
            while run.malformed < frames:
                run.send(min(_CHECK_EVERY_FRAMES, frames - run.malformed))
                run.check()
                if report:
                    _say(run, time.monotonic() - started)
        except OSError as error:
            raise FuzzFailure(f"the node does not answer any more: {error}") from error
        finally:
            run.close()
        broker.stop()
        broker.start()
        with WireClient("127.0.0.1", broker.port) as client:
            check_probes(client, run.probes)
    return run


def _say(run: FuzzRun, seconds: float) -> None:
    sys.stdout.write(
        f"{run.malformed:>9,} malformed frames of {run.frames:,} over {run.connections:,} "
        f"connections, {run.frames / seconds:,.0f}/s, {run.memory_bytes >> 20} MB\n"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="malformed ones")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as folder:
        try:
            fuzz(Path(folder), frames=arguments.frames, seed=arguments.seed, report=True)
        except TidelogError as failure:
            sys.stdout.write(f"FAILED with seed {arguments.seed}: {failure}\n")
            return 1
    sys.stdout.write("passed: the node crashed on nothing and leaks nothing\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
