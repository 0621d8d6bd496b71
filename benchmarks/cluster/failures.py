"""What comes first and last in a comparison of clusters.

Idle clusters are looked at on fresh processes. Nodes that are killed, restarted or left behind come
last, because they begin anew: a JVM is cold again.
"""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.cluster.nodes import NODES, NodeCluster
from benchmarks.cluster.scenarios import PARTITIONS, cluster_of
from benchmarks.cluster.writer import Writer
from benchmarks.lifecycle import bulk_median
from benchmarks.scenarios import PAGE_CACHE, RECORD_BYTES, Figures, Session
from benchmarks.workloads import create_topic

_IDLE_S = 10.0
_WRITES_PER_S = 200
_LOADED_WRITES_PER_S = 5_000
_BEFORE_S = 1.0
_AFTER_S = 1.0
_TIMEOUT_S = 120.0
_POLL_S = 0.02


def idle(cluster: NodeCluster) -> Figures:
    """Memory and CPU of a cluster that has nothing to do."""
    time.sleep(3.0)
    before, started = cluster.usages(), time.monotonic()
    time.sleep(_IDLE_S)
    after, seconds = cluster.usages(), time.monotonic() - started
    used = [now.cpu_s - was.cpu_s for now, was in zip(after, before, strict=True)]
    return {
        "idle, memory of three nodes, MB": sum(usage.resident_mb for usage in after),
        "idle, busiest node, % of a core": max(used) / seconds * 100,
    }


def many_replicas(session: Session) -> Figures:
    """Thousands of replicas in the cluster: throughput over a few partitions beside them."""
    many = session.sizes.partitions_many
    records = session.sizes.bulk_records // 2
    alone = bulk_median(session, PARTITIONS, records, acks="all")
    session.topic(many, PAGE_CACHE)
    beside = bulk_median(session, PARTITIONS, records, acks="all")
    name = f"beside {many * NODES} replicas"
    used = idle(cluster_of(session))
    return {
        f"throughput {name} / before": beside / alone,
        f"idle {name}, busiest node, % of a core": used["idle, busiest node, % of a core"],
    }


def catch_up(session: Session) -> Figures:
    """A follower that was away while much was written."""
    cluster = cluster_of(session)
    topic = session.topic(1, PAGE_CACHE)
    records = session.sizes.bulk_records
    behind = next(node for node in cluster.nodes if node != cluster.leader_of(topic))
    server = cluster.nodes[behind]
    server.stop()
    session.publish(topic, records, acks="all")
    folder = server.log_folders[0] / f"{topic}-0"
    size_bytes = records * RECORD_BYTES
    server.start()
    _await(lambda: _log_bytes(folder) > 0)
    first_at, first_bytes, first_cpu_s = time.monotonic(), _log_bytes(folder), server.usage().cpu_s
    _await(lambda: _log_bytes(folder) >= size_bytes)
    seconds = time.monotonic() - first_at
    cpu_s = server.usage().cpu_s - first_cpu_s
    cluster.await_in_sync(topic)
    fetched = (size_bytes - first_bytes) / 1e6
    return {
        "a follower catches up, MB/s": fetched / seconds,
        "a follower catches up, its CPU s/GB": cpu_s / fetched * 1000,
    }


def restart(session: Session) -> Figures:
    """Stop a node cleanly under load and start it again."""
    cluster = cluster_of(session)
    topic = session.topic(PARTITIONS, PAGE_CACHE)
    node = cluster.leader_of(topic)
    writer = Writer(cluster.bootstrap, topic, _LOADED_WRITES_PER_S)
    writer.await_first()
    time.sleep(_BEFORE_S)
    started = time.monotonic()
    cluster.nodes[node].stop()
    stopped_s = time.monotonic() - started
    cluster.nodes[node].start()
    cluster.await_in_sync(topic)
    seconds = time.monotonic() - started
    time.sleep(_AFTER_S)
    written = writer.finish()
    return {
        "restart under load, failed requests": float(written.failed),
        "restart under load, longest wait, ms": written.longest_s * 1000,
        "restart under load, to the end of the process, s": stopped_s,
        "restart under load, until in sync again, s": seconds,
    }


def failover(session: Session) -> Figures:
    """kill -9 of a leader, until a record that was sent after it is acknowledged."""
    cluster = cluster_of(session)
    topic = session.topic(1, PAGE_CACHE)
    cluster.await_in_sync(topic)
    node = cluster.leader_of(topic)
    writer = Writer(cluster.bootstrap, topic, _WRITES_PER_S)
    writer.await_first()
    time.sleep(_BEFORE_S)
    killed_at = time.monotonic()
    cluster.nodes[node].kill()
    _await(lambda: _leaders(cluster, topic) not in ({node}, {-1}))
    time.sleep(_AFTER_S)
    written = writer.finish()
    cluster.nodes[node].start()
    cluster.await_in_sync(topic)
    return {"kill -9 of a leader to the next acknowledged write, s": written.first_after(killed_at)}


def many_leaders(session: Session) -> Figures:
    """kill -9 of a node that leads many partitions, until all of them are led again."""
    cluster = cluster_of(session)
    many = session.sizes.partitions_many // 2
    topic = f"led-{session.topics_made}"
    config = {**PAGE_CACHE[cluster.kind], "min.insync.replicas": "2"}
    node = next(each for each in cluster.nodes if each != cluster.controller())
    replicas = [node, *(each for each in cluster.nodes if each != node)]
    create_topic(cluster.bootstrap, topic, many, config, assignment=[replicas] * many)
    session.topics.append(topic)
    cluster.await_in_sync(topic)
    killed_at = time.monotonic()
    cluster.nodes[node].kill()
    _await(lambda: _leaders(cluster, topic).isdisjoint({node, -1}))
    seconds = time.monotonic() - killed_at
    cluster.nodes[node].start()
    cluster.await_in_sync(topic)
    return {f"kill -9 of a node with {many} leaders, all led again, s": seconds}


def _leaders(cluster: NodeCluster, topic: str) -> set[int]:
    """Who leads the topic's partitions, as the nodes that run tell it; -1 for nobody."""
    awake = ",".join(node.bootstrap for node in cluster.nodes.values() if node.is_running())
    admin = AdminClient({"bootstrap.servers": awake, "log_level": 0})
    try:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    except KafkaException:
        return {-1}
    return {each.leader for each in partitions.values()}


def _log_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("*.log"))


def _await(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not so after {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


LAST: dict[str, tuple[Callable[[Session], Figures], int]] = {
    "replicas": (many_replicas, 1),
    "catch-up": (catch_up, 3),
    "leaders": (many_leaders, 1),
    "restart": (restart, 3),
    "failover": (failover, 5),
}
"""Each with how often it is measured."""
