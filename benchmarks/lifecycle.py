"""What a broker is like when it starts, and at the end of its load.

A start and the memory of an idle broker are measured on fresh processes, because there a cold
start is the point. What comes last leaves its marks on the broker, so it is measured once, on the
processes that took the whole load: their memory, connections held, many partitions and the start
with them.
"""

import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.scenarios import PAGE_CACHE, RECORD_BYTES, Figures, Session
from benchmarks.servers import Measured
from benchmarks.workloads import run_workload


def start_and_idle(broker: Measured) -> Figures:
    """Start a broker on an empty folder, and stop it again."""
    try:
        started_s = first_acknowledgement(broker, "first")
        time.sleep(1.0)
        return {
            "exec to first acknowledgement, s": started_s,
            "idle memory, MB": _resident_mb(broker),
        }
    finally:
        broker.stop()


def memory_after_load(session: Session) -> Figures:
    return {"memory after the load, MB": _resident_mb(session.broker)}


def _resident_mb(broker: Measured) -> float:
    return sum(usage.resident_mb for usage in broker.usages())


def connections(session: Session) -> Figures:
    """Idle connections, and whether the broker still serves beside them."""
    wanted = session.sizes.connections
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    topic = session.topic(1, PAGE_CACHE)
    host, _, port = session.bootstrap.rpartition(":")
    held: list[socket.socket] = []
    try:
        for _ in range(wanted):
            held.append(socket.create_connection((host, int(port)), 30))
        run_workload(
            "produce",
            bootstrap=session.bootstrap,
            topic=topic,
            records=1000,
            size=RECORD_BYTES,
            settings={},
        )
        return {
            "idle connections held": float(len(held)),
            "memory with them, MB": _resident_mb(session.broker),
        }
    finally:
        for each in held:
            each.close()


def many_partitions(session: Session) -> Figures:
    """Many partitions on the node: throughput over them and beside them, and the next start."""
    many = session.sizes.partitions_many
    records = session.sizes.bulk_records // 2
    ten = bulk_median(session, 10, records)
    topic = session.topic(many, PAGE_CACHE)
    beside = bulk_median(session, 10, records)
    over = _median_of_runs(session, topic, records)
    session.broker.stop()
    started = first_acknowledgement(session.broker, topic)
    return {
        f"throughput beside {many} partitions / before": beside / ten,
        f"throughput over {many} partitions / over 10": over / ten,
        f"start with {many} partitions, s": started,
    }


def bulk_median(session: Session, partitions: int, records: int, **settings: Any) -> float:
    """MB/s over so many new partitions."""
    return _median_of_runs(session, session.topic(partitions, PAGE_CACHE), records, **settings)


def _median_of_runs(session: Session, topic: str, records: int, **settings: Any) -> float:
    """MB/s; each run is short, and ratios of them are to be steady."""
    rates = []
    for _ in range(3):
        result, _ = session.publish(topic, records, **settings)
        rates.append(float(result["megabytes"] / result["seconds"]))
    return statistics.median(rates)


def first_acknowledgement(broker: Measured, topic: str) -> float:
    """Start the broker; seconds from exec to the first acknowledged record."""
    client = _ReadyClient(broker, topic)
    broker.start()
    client.wait()
    return time.perf_counter() - broker.started_at


class _ReadyClient:
    """A client process that is up and trying before the broker starts."""

    def __init__(self, broker: Measured, topic: str) -> None:
        arguments = {"bootstrap": broker.bootstrap, "topic": topic}
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


LAST: dict[str, Callable[[Session], Figures]] = {
    "memory": memory_after_load,
    "connections": connections,
    "partitions": many_partitions,
}
