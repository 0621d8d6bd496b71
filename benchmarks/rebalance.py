"""How long a group needs to settle, beside Apache Kafka: `python -m benchmarks.rebalance`.

Members of librdkafka join one after the other and leave again, with the classic protocol
(cooperative) and with the consumer protocol. A rebalance has settled when every partition has one
owner again and every member has its share. Both brokers run with the same settings: no initial
delay, and heartbeats every second, which is what paces the consumer protocol.

Both are up at the same time. Each runs everything once unmeasured, which makes the internal topics
and lets the JVM compile; then they take turns, in alternating order.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.servers import (
    Broker,
    KafkaServer,
    TidelogServer,
    kafka_libraries,
    wait_until_serving,
)
from benchmarks.workloads import create_topic

_PARTITIONS = 24
_TIMEOUT_S = 60.0
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
_PROTOCOLS = {
    "classic": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class _Member:
    """A consumer polled by a thread of its own; `owned` is what it holds now."""

    def __init__(self, bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
        self.owned: set[int] = set()
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, **settings}
        )
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._stopping.set()
        self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._gain, on_revoke=self._lose)
        while not self._stopping.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()
        self.owned = set()

    def _gain(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned | {each.partition for each in partitions}

    def _lose(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned - {each.partition for each in partitions}


def _settle(members: list[_Member]) -> float:
    """Seconds until the members share all partitions evenly."""
    start = time.perf_counter()
    share = _PARTITIONS // len(members)
    while time.perf_counter() < start + _TIMEOUT_S:
        owned = [member.owned for member in members]
        whole = sum(map(len, owned)) == _PARTITIONS == len(set().union(*owned))
        if whole and all(len(each) in (share, share + 1) for each in owned):
            return time.perf_counter() - start
        time.sleep(0.002)
    raise RuntimeError(f"the group did not settle within {_TIMEOUT_S:g} s")


def _measure(bootstrap: str, protocol: str, run: int, members_max: int) -> dict[str, float]:
    topic = f"rebalance-{protocol}-{run}"
    create_topic(bootstrap, topic, _PARTITIONS, {})
    members: list[_Member] = []
    joins = []
    for _ in range(members_max):
        members.append(_Member(bootstrap, topic, f"group-{protocol}-{run}", _PROTOCOLS[protocol]))
        joins.append(_settle(members))
    leaves = []
    while len(members) > 1:
        leaver = members.pop()
        start = time.perf_counter()
        leaver.leave()
        _settle(members)
        leaves.append(time.perf_counter() - start)
    members[0].leave()
    return {
        f"{protocol}: first join, s": joins[0],
        f"{protocol}: later joins, s": statistics.median(joins[1:]),
        f"{protocol}: leaves, s": statistics.median(leaves),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="measured, after one that is not")
    options = parser.parse_args()
    libraries = kafka_libraries()
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        brokers: list[Broker] = [TidelogServer(Path(folder) / "tidelog", settings=_SETTINGS)]
        if libraries is not None:
            brokers.append(KafkaServer(Path(folder) / "kafka", libraries, settings=_SETTINGS))
        try:
            for broker in brokers:
                broker.start()
                wait_until_serving(broker)
            for run in range(options.rounds + 1):
                for broker in brokers if run % 2 else brokers[::-1]:
                    for protocol in _PROTOCOLS:
                        found = _measure(f"127.0.0.1:{broker.port}", protocol, run, options.members)
                        if run:
                            _note(results.setdefault(broker.name, {}), found)
        finally:
            for broker in brokers:
                broker.stop()
    table = Table("figure", *(broker.name for broker in brokers))
    for figure in results[brokers[0].name]:
        medians = (statistics.median(results[broker.name][figure]) for broker in brokers)
        table.add_row(figure, *(f"{median:.2f}" for median in medians))
    Console().print(table)


def _note(results: dict[str, list[float]], found: dict[str, float]) -> None:
    for figure, value in found.items():
        results.setdefault(figure, []).append(value)


if __name__ == "__main__":
    main()
