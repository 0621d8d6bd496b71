"""The measurements: each gives named figures for one broker."""

import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.page_cache import settle
from benchmarks.servers import KafkaServer, TidelogServer
from benchmarks.workloads import create_topic, run_workload

Broker = TidelogServer | KafkaServer
Figures = dict[str, float]

PAGE_CACHE = {"tidelog": {"durability": "page-cache"}, "kafka": {}}
FSYNC = {"tidelog": {"durability": "fsync"}, "kafka": {"flush.messages": "1"}}

_RECORD_BYTES = 1024


@dataclass(slots=True, frozen=True)
class Sizes:
    """How much each measurement moves."""

    bulk_records: int = 500_000
    fsync_records: int = 100_000
    seconds: float = 6.0
    partitions_many: int = 2_000
    connections: int = 5_000


QUICK = Sizes(
    bulk_records=100_000, fsync_records=20_000, seconds=2.0, partitions_many=200, connections=500
)


@dataclass(slots=True)
class Session:
    """A running broker under measurement; topics are named in turn."""

    broker: Broker
    sizes: Sizes
    topics_made: int = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def topic(self, partitions: int, durability: dict[str, dict[str, str]]) -> str:
        self.topics_made += 1
        name = f"bench-{self.topics_made}"
        create_topic(self.bootstrap, name, partitions, durability[self.broker.name])
        return name

    def measured(
        self, workload: str, *, writes_bytes: int = 0, **arguments: Any
    ) -> tuple[dict[str, Any], float]:
        """The result of a workload, and the CPU seconds that the broker spent meanwhile."""
        settle(self.broker.data, writes_bytes)
        before = self.broker.usage().cpu_s
        result = run_workload(workload, bootstrap=self.bootstrap, **arguments)
        return result, self.broker.usage().cpu_s - before


def idle(session: Session) -> Figures:
    time.sleep(1.0)
    return {"idle memory, MB": session.broker.usage().resident_mb}


def produce_and_consume(session: Session) -> Figures:
    """Bulk through the page cache, one partition."""
    figures = _bulk(session, 1, PAGE_CACHE, "produce")
    topic = f"bench-{session.topics_made}"
    result, cpu_s = session.measured(
        "consume", topic=topic, partitions=1, records=session.sizes.bulk_records
    )
    figures["consume, MB/s"] = result["megabytes"] / result["seconds"]
    figures["consume, CPU s/GB"] = cpu_s / result["megabytes"] * 1000
    return figures


def produce_ten_partitions(session: Session) -> Figures:
    return _bulk(session, 10, PAGE_CACHE, "produce to 10 partitions")


def produce_small(session: Session) -> Figures:
    """Records of 100 bytes: what a record costs rather than a byte."""
    records = session.sizes.bulk_records * 2
    topic = session.topic(1, PAGE_CACHE)
    result, cpu_s = session.measured(
        "produce", writes_bytes=records * 100, topic=topic, records=records, size=100, settings={}
    )
    return {
        "produce 100 B, records/s": records / result["seconds"],
        "produce 100 B, CPU s/GB": cpu_s / result["megabytes"] * 1000,
    }


def fsync_bulk(session: Session) -> Figures:
    figures = _bulk(session, 1, FSYNC, "fsync", records=session.sizes.fsync_records)
    figures |= _bulk(
        session, 10, FSYNC, "fsync to 10 partitions", records=session.sizes.fsync_records
    )
    return figures


def fsync_one_at_a_time(session: Session) -> Figures:
    """One producer that waits for each acknowledgement."""
    topic = session.topic(1, FSYNC)
    result, _ = session.measured(
        "one-at-a-time", topic=topic, size=_RECORD_BYTES, seconds=session.sizes.seconds
    )
    return {
        "fsync, one at a time, requests/s": result["requests_per_s"],
        "fsync, one at a time, p99 ms": result["p99_ms"],
    }


def fsync_small_batches(session: Session) -> Figures:
    """Batches of 16 KB: many acknowledgements, each after an fsync."""
    topic = session.topic(1, FSYNC)
    records = session.sizes.fsync_records
    result, _ = session.measured(
        "produce",
        writes_bytes=records * _RECORD_BYTES,
        topic=topic,
        records=records,
        size=_RECORD_BYTES,
        settings={"batch.size": 16_384, "linger.ms": 0},
    )
    return {"fsync, batches of 16 KB, MB/s": result["megabytes"] / result["seconds"]}


def one_record_requests(session: Session) -> Figures:
    """Pipelined requests of one record each, by a client on raw sockets."""
    topic = session.topic(1, PAGE_CACHE)
    result, cpu_s = session.measured(
        "one-record-requests", topic=topic, seconds=session.sizes.seconds, size=100
    )
    return {
        "one-record requests/s": result["requests_per_s"],
        "one-record request, CPU us": cpu_s / result["requests"] * 1e6,
    }


def fsync_requests(session: Session) -> Figures:
    """Pipelined requests of one record each, every one acknowledged after an fsync."""
    topic = session.topic(1, FSYNC)
    result, _ = session.measured(
        "one-record-requests", topic=topic, seconds=session.sizes.seconds, size=100
    )
    return {"fsync, one-record requests/s": result["requests_per_s"]}


def latency(session: Session) -> Figures:
    topic = session.topic(1, PAGE_CACHE)
    seconds = session.sizes.seconds + 2
    result, _ = session.measured(
        "paced",
        writes_bytes=round(50e6 * seconds),
        topic=topic,
        megabytes_per_s=50,
        size=_RECORD_BYTES,
        seconds=seconds,
    )
    return {f"at 50 MB/s, {name[:-3]} ms": result[name] for name in _PERCENTILES}


def end_to_end(session: Session) -> Figures:
    topic = session.topic(1, PAGE_CACHE)
    result, _ = session.measured(
        "end-to-end", topic=topic, size=_RECORD_BYTES, rate=1000, seconds=session.sizes.seconds
    )
    return {f"end to end at 1,000/s, {name[:-3]} ms": result[name] for name in _PERCENTILES}


def memory_after_load(session: Session) -> Figures:
    return {"memory after the load, MB": session.broker.usage().resident_mb}


def connections(session: Session) -> Figures:
    """Idle connections, and whether the broker still serves beside them."""
    wanted = session.sizes.connections
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    topic = session.topic(1, PAGE_CACHE)
    held: list[socket.socket] = []
    try:
        for _ in range(wanted):
            held.append(socket.create_connection(("127.0.0.1", session.broker.port), 30))
        run_workload(
            "produce",
            bootstrap=session.bootstrap,
            topic=topic,
            records=1000,
            size=_RECORD_BYTES,
            settings={},
        )
        return {
            "idle connections held": float(len(held)),
            "memory with them, MB": session.broker.usage().resident_mb,
        }
    finally:
        for each in held:
            each.close()


def many_partitions(session: Session) -> Figures:
    """Many partitions on the node: throughput over them and beside them, and the next start."""
    many = session.sizes.partitions_many
    ten = _median_of_ten_partitions(session)
    topic = session.topic(many, PAGE_CACHE)
    beside = _median_of_ten_partitions(session)
    records = session.sizes.bulk_records
    result, _ = session.measured(
        "produce",
        writes_bytes=records * _RECORD_BYTES,
        topic=topic,
        records=records,
        size=_RECORD_BYTES,
        settings={},
    )
    over = result["megabytes"] / result["seconds"]
    session.broker.stop()
    started = first_acknowledgement(session.broker, topic)
    return {
        f"throughput beside {many} partitions / before": beside / ten,
        f"throughput over {many} partitions / over 10": over / ten,
        f"start with {many} partitions, s": started,
    }


def _median_of_ten_partitions(session: Session) -> float:
    """MB/s over 10 partitions; each run is short, and their ratio is to be steady."""
    return statistics.median(_bulk(session, 10, PAGE_CACHE, "of")["of, MB/s"] for _ in range(3))


def first_acknowledgement(broker: Broker, topic: str) -> float:
    """Start the broker; seconds from exec to the first acknowledged record."""
    client = _ReadyClient(broker, topic)
    broker.start()
    client.wait()
    return time.perf_counter() - broker.started_at


class _ReadyClient:
    """A client process that is up and trying before the broker starts."""

    def __init__(self, broker: Broker, topic: str) -> None:
        arguments = {"bootstrap": f"127.0.0.1:{broker.port}", "topic": topic}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.workloads",
                "first-acknowledgement",
                json.dumps(arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        time.sleep(1.0)

    def wait(self) -> None:
        if self._process.wait(120):
            raise RuntimeError("the broker acknowledged nothing")


_PERCENTILES = ("p50_ms", "p99_ms", "p99_9_ms")


def _bulk(
    session: Session,
    partitions: int,
    durability: dict[str, dict[str, str]],
    name: str,
    *,
    records: int | None = None,
) -> Figures:
    topic = session.topic(partitions, durability)
    records = records or session.sizes.bulk_records
    result, cpu_s = session.measured(
        "produce",
        writes_bytes=records * _RECORD_BYTES,
        topic=topic,
        records=records,
        size=_RECORD_BYTES,
        settings={},
    )
    return {
        f"{name}, MB/s": result["megabytes"] / result["seconds"],
        f"{name}, CPU s/GB": cpu_s / result["megabytes"] * 1000,
    }


SCENARIOS: dict[str, Callable[[Session], Figures]] = {
    "idle": idle,
    "bulk": produce_and_consume,
    "ten": produce_ten_partitions,
    "small": produce_small,
    "one-record": one_record_requests,
    "fsync": fsync_bulk,
    "fsync-one": fsync_one_at_a_time,
    "fsync-small": fsync_small_batches,
    "fsync-requests": fsync_requests,
    "latency": latency,
    "end-to-end": end_to_end,
    "memory": memory_after_load,
    "connections": connections,
    "partitions": many_partitions,
}
