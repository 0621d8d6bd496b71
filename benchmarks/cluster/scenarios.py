"""The measurements on clusters that run: each gives named figures for one cluster.

Topics have three replicas, `min.insync.replicas=2`, and every write has `acks=all`. CPU is that of
the three nodes together; where one node leads all that is written, it is told apart.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.cluster.nodes import NODES, NodeCluster
from benchmarks.scenarios import (
    FSYNC,
    PAGE_CACHE,
    PERCENTILES,
    RECORD_BYTES,
    Figures,
    Session,
    throughput,
)

PARTITIONS = 12
_PACED_MB_PER_S = 20

Durability = dict[str, dict[str, str]]


def cluster_of(session: Session) -> NodeCluster:
    """The cluster that a session measures."""
    assert isinstance(session.broker, NodeCluster)
    return session.broker


def produce(session: Session) -> Figures:
    """Bulk to one partition: one node leads, two follow."""
    return _bulk_to_one(session, PAGE_CACHE, "produce", session.sizes.bulk_records)


def produce_twelve_partitions(session: Session) -> Figures:
    """Bulk to partitions on all nodes: each leads a third and follows the rest."""
    result, cpu_s = session.publish(
        session.topic(PARTITIONS, PAGE_CACHE), session.sizes.bulk_records, acks="all"
    )
    return throughput(f"produce to {PARTITIONS} partitions", result, cpu_s)


def fsync(session: Session) -> Figures:
    """The same to one partition, each acknowledgement after an fsync on every replica in sync."""
    return _bulk_to_one(session, FSYNC, "fsync", session.sizes.fsync_records)


def fsync_twelve_partitions(session: Session) -> Figures:
    result, cpu_s = session.publish(
        session.topic(PARTITIONS, FSYNC), session.sizes.fsync_records, acks="all"
    )
    return throughput(f"fsync to {PARTITIONS} partitions", result, cpu_s)


def raw(session: Session) -> Figures:
    """Batches of 1 MB by a client on raw sockets, which leaves the machine to the nodes."""
    figures: Figures = {}
    for durability, name, records in (
        (PAGE_CACHE, "raw produce", session.sizes.bulk_records),
        (FSYNC, "raw fsync", session.sizes.fsync_records),
    ):
        topic = session.topic(1, durability)
        leader = cluster_of(session).leader_of(topic)
        megabytes = records * RECORD_BYTES / 1e6
        result, cpu_s = session.measured(
            "raw-produce",
            bootstrap=cluster_of(session).nodes[leader].bootstrap,
            writes_bytes=round(megabytes * 1e6),
            topic=topic,
            megabytes=megabytes,
            acks=-1,
        )
        figures |= throughput(name, result, cpu_s)
        figures |= _leader_and_followers(session, leader, name, result)
    return figures


def latency(session: Session) -> Figures:
    """Time to acknowledgement at a fixed rate that both clusters carry."""
    topic = session.topic(1, PAGE_CACHE)
    seconds = session.sizes.seconds + 2
    result, cpu_s = session.measured(
        "paced",
        writes_bytes=round(_PACED_MB_PER_S * 1e6 * seconds),
        topic=topic,
        megabytes_per_s=_PACED_MB_PER_S,
        size=RECORD_BYTES,
        seconds=seconds,
        acks="all",
    )
    name = f"at {_PACED_MB_PER_S} MB/s"
    figures = {f"{name}, {label}": result[key] for key, label in PERCENTILES.items()}
    return figures | {f"{name}, CPU s/GB": cpu_s / result["megabytes"] * 1000}


def one_at_a_time(session: Session) -> Figures:
    """A producer that waits for each acknowledgement, in both modes of durability."""
    figures: Figures = {}
    for durability, mode in ((PAGE_CACHE, ""), (FSYNC, "fsync, ")):
        result, cpu_s = session.measured(
            "one-at-a-time",
            topic=session.topic(1, durability),
            size=RECORD_BYTES,
            seconds=session.sizes.seconds,
            acks="all",
        )
        figures |= {
            f"{mode}one at a time, p50 ms": result["p50_ms"],
            f"{mode}one at a time, p99 ms": result["p99_ms"],
            f"{mode}one at a time, CPU us": cpu_s / result["requests"] * 1e6,
        }
    return figures


def _bulk_to_one(session: Session, durability: Durability, name: str, records: int) -> Figures:
    topic = session.topic(1, durability)
    leader = cluster_of(session).leader_of(topic)
    result, cpu_s = session.publish(topic, records, acks="all")
    return throughput(name, result, cpu_s) | _leader_and_followers(session, leader, name, result)


def _leader_and_followers(
    session: Session, leader: int, name: str, result: dict[str, Any]
) -> Figures:
    """What the leader spent, and what a follower did."""
    gigabytes = result["megabytes"] / 1000
    leader_s = session.cpu_s_by_process[leader - 1]
    follower_s = (sum(session.cpu_s_by_process) - leader_s) / (NODES - 1)
    return {
        f"{name}, leader's CPU s/GB": leader_s / gigabytes,
        f"{name}, a follower's CPU s/GB": follower_s / gigabytes,
    }


SCENARIOS: dict[str, Callable[[Session], Figures]] = {
    "produce": produce,
    "twelve": produce_twelve_partitions,
    "raw": raw,
    "fsync": fsync,
    "fsync-twelve": fsync_twelve_partitions,
    "latency": latency,
    "one": one_at_a_time,
}
