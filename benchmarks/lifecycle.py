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

from benchmarks.scenarios import PAGE_CACHE, RECORD_BYTES, Figures, Session, bulk
from benchmarks.servers import Broker
from benchmarks.workloads import run_workload


def start_and_idle(broker: Broker) -> Figures:
    """Start a broker on an empty folder, and stop it again."""
    try:
        started_s = first_acknowledgement(broker, "first")
        time.sleep(1.0)
        return {
            "exec to first acknowledgement, s": started_s,
            "idle memory, MB": broker.usage().resident_mb,
        }
    finally:
        broker.stop()


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
            size=RECORD_BYTES,
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
    records = session.sizes.bulk_records // 2
    ten = _median_of_ten_partitions(session, records)
    topic = session.topic(many, PAGE_CACHE)
    beside = _median_of_ten_partitions(session, records)
    over = statistics.median(_megabytes_per_s(session, topic, records) for _ in range(3))
    session.broker.stop()
    started = first_acknowledgement(session.broker, topic)
    return {
        f"throughput beside {many} partitions / before": beside / ten,
        f"throughput over {many} partitions / over 10": over / ten,
        f"start with {many} partitions, s": started,
    }


def _median_of_ten_partitions(session: Session, records: int) -> float:
    """MB/s over 10 partitions; each run is short, and their ratio is to be steady."""
    return statistics.median(
        bulk(session, 10, PAGE_CACHE, "of", records)["of, MB/s"] for _ in range(3)
    )


def _megabytes_per_s(session: Session, topic: str, records: int) -> float:
    result, _ = session.publish(topic, records)
    return float(result["megabytes"] / result["seconds"])


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


LAST: dict[str, Callable[[Session], Figures]] = {
    "memory": memory_after_load,
    "connections": connections,
    "partitions": many_partitions,
}
