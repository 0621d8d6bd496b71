"""The measurements on running brokers: each gives named figures for one broker.

A figure of throughput or latency stands beside what it cost the broker: CPU seconds a GB, or CPU
microseconds a request.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.page_cache import settle
from benchmarks.servers import Measured
from benchmarks.workloads import create_topic, delete_topics, run_workload

Figures = dict[str, float]

PAGE_CACHE = {"tidelog": {"durability": "page-cache"}, "kafka": {}, "floor": {}}
FSYNC = {"tidelog": {"durability": "fsync"}, "kafka": {"flush.messages": "1"}}

RECORD_BYTES = 1024
# At most so much of a core, seen over so many seconds.
_IDLE = (0.05, 0.2)
_IDLE_IN_CLUSTER = (0.1, 0.5)
_IDLE_TIMEOUT_S = 20.0
_DELETION_TIMEOUT_S = 180.0
PERCENTILES = {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "p99_9_ms": "p99.9 ms"}


@dataclass(slots=True, frozen=True)
class Sizes:
    """How much each measurement moves."""

    bulk_records: int = 1_000_000
    fsync_records: int = 200_000
    seconds: float = 6.0
    partitions_many: int = 2_000
    connections: int = 5_000

    def scaled(self, by: float) -> "Sizes":
        """The same with so many times the records and seconds."""
        return Sizes(
            round(self.bulk_records * by),
            round(self.fsync_records * by),
            self.seconds * by,
            round(self.partitions_many * min(by, 1)),
            round(self.connections * min(by, 1)),
        )


@dataclass(slots=True)
class Session:
    """A running broker under measurement, and those that are up beside it and must be idle."""

    broker: Measured
    sizes: Sizes
    beside: Sequence[Measured] = ()
    replicas: int = 1
    topics: list[str] = field(default_factory=list)
    topics_made: int = 0
    cpu_s_by_process: list[float] = field(default_factory=list)
    """What the last measurement cost each process of the broker."""

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def topic(self, partitions: int, durability: dict[str, dict[str, str]]) -> str:
        self.topics_made += 1
        name = f"bench-{self.topics_made}"
        config = dict(durability[self.broker.kind])
        if self.replicas > 1:
            config["min.insync.replicas"] = str(self.replicas - 1)
        create_topic(self.bootstrap, name, partitions, config, self.replicas)
        self.topics.append(name)
        return name

    def delete_topics(self, *, waits: bool = True) -> None:
        """Delete what was made and wait until its files are gone: they would fill the memory."""
        if not self.topics:
            return
        delete_topics(self.bootstrap, self.topics)
        deadline = time.monotonic() + _DELETION_TIMEOUT_S
        logs = self.broker.log_folders
        while waits and any(
            next(log.glob(f"{name}-*"), None) for log in logs for name in self.topics
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.broker.name} keeps the files of deleted topics")
            time.sleep(0.1)
        self.topics.clear()

    def measured(
        self, workload: str, *, writes_bytes: int = 0, **arguments: Any
    ) -> tuple[dict[str, Any], float]:
        """The result of a workload, and the CPU seconds that the broker spent meanwhile."""
        # `settle` counts the client's queue, of which there is one for all replicas.
        settle(self.broker.data, writes_bytes * (self.replicas + 1) // 2)
        wait_until_idle([self.broker, *self.beside])
        before = self.broker.usages()
        result = run_workload(workload, **{"bootstrap": self.bootstrap, **arguments})
        self.cpu_s_by_process = [
            now.cpu_s - was.cpu_s for now, was in zip(self.broker.usages(), before, strict=True)
        ]
        return result, sum(self.cpu_s_by_process)

    def publish(
        self, topic: str, records: int, size: int = RECORD_BYTES, **settings: Any
    ) -> tuple[dict[str, Any], float]:
        return self.measured(
            "produce",
            writes_bytes=records * size,
            topic=topic,
            records=records,
            size=size,
            settings=settings,
        )


def wait_until_idle(brokers: Sequence[Measured]) -> None:
    """Return when none of them has work left over from before, or after a while in any case."""

    def used_cpu_s() -> list[float]:
        return [usage.cpu_s for broker in brokers for usage in broker.usages()]

    # The nodes of a cluster talk to each other at all times.
    are_clusters = any(len(broker.usages()) > 1 for broker in brokers)
    share_max, probe_s = _IDLE_IN_CLUSTER if are_clusters else _IDLE
    deadline = time.monotonic() + _IDLE_TIMEOUT_S
    while time.monotonic() < deadline:
        before = used_cpu_s()
        time.sleep(probe_s)
        used = [now - was for now, was in zip(used_cpu_s(), before, strict=True)]
        if max(used) <= share_max * probe_s:
            return


def produce(session: Session) -> Figures:
    """Bulk through the page cache, one partition."""
    return bulk(session, 1, PAGE_CACHE, "produce", session.sizes.bulk_records)


def consume(session: Session) -> Figures:
    """A topic from its beginning, out of the page cache."""
    records = session.sizes.bulk_records
    topic = session.topic(1, PAGE_CACHE)
    session.publish(topic, records)
    result, cpu_s = session.measured("consume", topic=topic, partitions=1, records=records)
    return throughput("consume", result, cpu_s)


def produce_ten_partitions(session: Session) -> Figures:
    return bulk(session, 10, PAGE_CACHE, "produce to 10 partitions", session.sizes.bulk_records)


def produce_small(session: Session) -> Figures:
    """Records of 100 bytes: what a record costs rather than a byte."""
    records = session.sizes.bulk_records * 2
    result, cpu_s = session.publish(session.topic(1, PAGE_CACHE), records, size=100)
    return {
        "produce 100 B, records/s": records / result["seconds"],
        "produce 100 B, CPU s/GB": cpu_s / result["megabytes"] * 1000,
    }


def raw(session: Session) -> Figures:
    """Bulk by a client on raw sockets; `benchmarks.floor` measures bare loops with the same."""
    megabytes = session.sizes.bulk_records * RECORD_BYTES / 1e6
    topic = session.topic(1, PAGE_CACHE)
    written, produce_cpu_s = session.measured(
        "raw-produce", writes_bytes=round(megabytes * 1e6), topic=topic, megabytes=megabytes
    )
    read, consume_cpu_s = session.measured("raw-consume", topic=topic, megabytes=megabytes)
    return raw_figures(written, produce_cpu_s, read, consume_cpu_s)


def raw_figures(
    written: dict[str, Any], produce_cpu_s: float, read: dict[str, Any], consume_cpu_s: float
) -> Figures:
    return throughput("raw produce", written, produce_cpu_s) | throughput(
        "raw consume", read, consume_cpu_s
    )


def one_record_requests(session: Session) -> Figures:
    """Pipelined requests of one record each, by a client on raw sockets."""
    result, cpu_s = _requests_of_one_record(session, PAGE_CACHE)
    return {
        "one-record requests/s": result["requests_per_s"],
        "one-record request, CPU us": cpu_s / result["requests"] * 1e6,
    }


def fsync_bulk(session: Session) -> Figures:
    return bulk(session, 1, FSYNC, "fsync", session.sizes.fsync_records)


def fsync_ten_partitions(session: Session) -> Figures:
    return bulk(session, 10, FSYNC, "fsync to 10 partitions", session.sizes.fsync_records)


def fsync_one_at_a_time(session: Session) -> Figures:
    """One producer that waits for each acknowledgement."""
    topic = session.topic(1, FSYNC)
    result, cpu_s = session.measured(
        "one-at-a-time", topic=topic, size=RECORD_BYTES, seconds=session.sizes.seconds
    )
    return {
        "fsync, one at a time, requests/s": result["requests_per_s"],
        "fsync, one at a time, p99 ms": result["p99_ms"],
        "fsync, one at a time, CPU us": cpu_s / result["requests"] * 1e6,
    }


def fsync_small_batches(session: Session) -> Figures:
    """Batches of 16 KB: many acknowledgements, each after an fsync."""
    # Kafka syncs for each batch, so this takes it longest: half of the records are enough.
    records = session.sizes.fsync_records // 2
    settings = {"batch.size": 16_384, "linger.ms": 0}
    result, cpu_s = session.publish(session.topic(1, FSYNC), records, **settings)
    return throughput("fsync, batches of 16 KB", result, cpu_s)


def fsync_requests(session: Session) -> Figures:
    """Pipelined requests of one record each, every one acknowledged after an fsync."""
    result, cpu_s = _requests_of_one_record(session, FSYNC)
    return {
        "fsync, one-record requests/s": result["requests_per_s"],
        "fsync, one-record request, CPU us": cpu_s / result["requests"] * 1e6,
    }


def latency(session: Session) -> Figures:
    """Time to acknowledgement at a fixed rate that both brokers carry."""
    topic = session.topic(1, PAGE_CACHE)
    seconds = session.sizes.seconds + 2
    result, cpu_s = session.measured(
        "paced",
        writes_bytes=round(50e6 * seconds),
        topic=topic,
        megabytes_per_s=50,
        size=RECORD_BYTES,
        seconds=seconds,
    )
    figures = {f"at 50 MB/s, {label}": result[name] for name, label in PERCENTILES.items()}
    return figures | {"at 50 MB/s, CPU s/GB": cpu_s / result["megabytes"] * 1000}


def end_to_end(session: Session) -> Figures:
    """From the producer to a consumer at a low rate."""
    topic = session.topic(1, PAGE_CACHE)
    result, cpu_s = session.measured(
        "end-to-end", topic=topic, size=RECORD_BYTES, rate=1000, seconds=session.sizes.seconds
    )
    figures = {
        f"end to end at 1,000/s, {label}": result[name] for name, label in PERCENTILES.items()
    }
    return figures | {"end to end at 1,000/s, CPU us": cpu_s / result["records"] * 1e6}


def bulk(
    session: Session,
    partitions: int,
    durability: dict[str, dict[str, str]],
    name: str,
    records: int,
) -> Figures:
    result, cpu_s = session.publish(session.topic(partitions, durability), records)
    return throughput(name, result, cpu_s)


def throughput(name: str, result: dict[str, Any], cpu_s: float) -> Figures:
    """MB/s, and what they cost."""
    return {
        f"{name}, MB/s": result["megabytes"] / result["seconds"],
        f"{name}, CPU s/GB": cpu_s / result["megabytes"] * 1000,
    }


def _requests_of_one_record(
    session: Session, durability: dict[str, dict[str, str]]
) -> tuple[dict[str, Any], float]:
    topic = session.topic(1, durability)
    return session.measured(
        "one-record-requests", topic=topic, seconds=session.sizes.seconds, size=100
    )


SCENARIOS: dict[str, Callable[[Session], Figures]] = {
    "produce": produce,
    "consume": consume,
    "raw": raw,
    "ten": produce_ten_partitions,
    "small": produce_small,
    "one-record": one_record_requests,
    "fsync": fsync_bulk,
    "fsync-ten": fsync_ten_partitions,
    "fsync-one": fsync_one_at_a_time,
    "fsync-small": fsync_small_batches,
    "fsync-requests": fsync_requests,
    "latency": latency,
    "end-to-end": end_to_end,
}
