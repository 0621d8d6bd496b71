"""Members that join, leave and are killed under load.

No record is lost, and no partition is read by two members at one time: what a member reads of a
partition lies between the moment it was assigned and the moment it gave it up or was killed, and
these spans do not overlap between members.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.groups.conftest import create_topic
from tidelog.testing import Broker

SCRIPT = Path(__file__).with_name("storm_member.py")
# Sessions are longer than any pause that a busy machine makes.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


@dataclass
class Span:
    """A partition in the hands of one member, by the machine's clock."""

    member: int
    partition: int
    start_ns: int
    end_ns: int
    processed: list[tuple[int, int]] = field(default_factory=list)


class StormMember:
    def __init__(self, number: int, folder: Path, arguments: list[str]) -> None:
        self.number = number
        self.events = folder / f"member-{number}"
        self.events.touch()
        self.killed_ns: int | None = None
        command = [sys.executable, str(SCRIPT), *arguments, str(self.events)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.killed_ns = time.monotonic_ns()

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def lines(self) -> list[list[str]]:
        whole = self.events.read_text().rpartition("\n")[0]
        return [line.split() for line in whole.splitlines()]

    def spans(self) -> Iterator[Span]:
        held: dict[int, Span] = {}
        for event, at, *values in self.lines():
            at_ns = int(at)
            if event == "assigned":
                partition = int(values[0])
                assert partition not in held, f"member {self.number} was assigned it twice"
                held[partition] = Span(self.number, partition, at_ns, 0)
            elif event in ("revoked", "lost"):
                span = held.pop(int(values[0]), None)
                if span is not None and event == "revoked":
                    span.end_ns = at_ns
                    yield span
            elif event == "processed":
                partition, offset = int(values[0]), int(values[1])
                assert partition in held, f"member {self.number} read {partition} unassigned"
                held[partition].processed.append((at_ns, offset))
        for span in held.values():
            span.end_ns = self.killed_ns or time.monotonic_ns()
            yield span

    def processed(self) -> set[tuple[int, int]]:
        return {(int(v[0]), int(v[1])) for e, _, *v in self.lines() if e == "processed"}

    def held_now(self) -> set[int]:
        held: set[int] = set()
        for event, _, *values in self.lines():
            if event == "assigned":
                held.add(int(values[0]))
            elif event in ("revoked", "lost"):
                held.discard(int(values[0]))
        return held


class Storm:
    def __init__(self, bootstrap: str, topic: str, protocol: str, folder: Path) -> None:
        self._arguments = [bootstrap, f"{topic}-group", topic, protocol]
        self._folder = folder
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self._topic = topic
        self.members: list[StormMember] = []
        self.alive: list[StormMember] = []
        self.produced: set[tuple[int, int]] = set()
        self._failed: list[object] = []

    def join(self, count: int) -> None:
        for _ in range(count):
            member = StormMember(len(self.members), self._folder, self._arguments)
            self.members.append(member)
            self.alive.append(member)

    def produce(self, count: int) -> None:
        def report(error: object, message: object) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                self.produced.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        for number in range(count):
            self._producer.produce(self._topic, value=b"x", key=str(number), on_delivery=report)
        assert self._producer.flush(30) == 0
        assert not self._failed

    def run_for(self, seconds: float) -> None:
        """Load while time passes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.produce(20)
            time.sleep(0.1)

    def until_shared(self, partition_count: int, patience_s: float) -> float:
        """Until the living have every partition exactly once, and each of them its share; how long
        that took."""
        started = time.monotonic()
        share = partition_count // len(self.alive)
        while True:
            held = [member.held_now() for member in self.alive]
            everything = sorted(partition for each in held for partition in each)
            if everything == list(range(partition_count)) and min(map(len, held)) >= share:
                return time.monotonic() - started
            assert time.monotonic() - started < patience_s, f"held are {held}"
            self.produce(5)
            time.sleep(0.1)

    def take_out(self, rng: random.Random) -> StormMember:
        return self.alive.pop(rng.randrange(len(self.alive)))

    def until_processed(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            done = set().union(*(member.processed() for member in self.members))
            if self.produced <= done:
                return
            assert time.monotonic() < deadline, f"lost: {sorted(self.produced - done)[:20]}"
            time.sleep(0.2)

    def check_owners(self) -> None:
        by_partition: dict[int, list[Span]] = {}
        for member in self.members:
            for span in member.spans():
                by_partition.setdefault(span.partition, []).append(span)
        for partition, spans in by_partition.items():
            spans.sort(key=lambda span: span.start_ns)
            for before, after in pairwise(spans):
                assert before.end_ns <= after.start_ns, (
                    f"{partition} was with {before.member} and {after.member} at once"
                )

    def end(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()


@pytest.fixture(scope="module")
def storm_broker() -> Iterator[Broker]:
    with Broker(mode="process", settings=SETTINGS) as running:
        yield running


def weather(
    storm: Storm, partitions: int, size: int, kills: int, rounds: int, patience_s: float
) -> list[float]:
    """Half of the members, then all, then some leave and some die; several times over."""
    rng = random.Random(7)
    times = []
    storm.join(size // 2)
    times.append(storm.until_shared(partitions, patience_s))
    for _ in range(rounds):
        storm.join(size - len(storm.alive))
        times.append(storm.until_shared(partitions, patience_s))
        storm.run_for(0.5)
        for _ in range(kills):
            storm.take_out(rng).kill()
            storm.take_out(rng).leave()
        times.append(storm.until_shared(partitions, patience_s))
    storm.until_processed(patience_s)
    storm.check_owners()
    return times


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_small_storm(storm_broker: Broker, tmp_path: Path, protocol: str) -> None:
    topic = f"small-{protocol}"
    admin = AdminClient({"bootstrap.servers": storm_broker.bootstrap_servers})
    create_topic(admin, topic, 12)
    storm = Storm(storm_broker.bootstrap_servers, topic, protocol, tmp_path)
    try:
        weather(storm, 12, size=8, kills=2, rounds=1, patience_s=60)
    finally:
        storm.end()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_storm_of_fifty_members(storm_broker: Broker, tmp_path: Path, protocol: str) -> None:
    topic = f"fifty-{protocol}"
    admin = AdminClient({"bootstrap.servers": storm_broker.bootstrap_servers})
    create_topic(admin, topic, 100)
    storm = Storm(storm_broker.bootstrap_servers, topic, protocol, tmp_path)
    try:
        times = weather(storm, 100, size=50, kills=8, rounds=3, patience_s=180)
        (tmp_path / "rebalance-seconds").write_text("\n".join(f"{each:.2f}" for each in times))
    finally:
        storm.end()
