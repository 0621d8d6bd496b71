"""Compaction beside traffic: produce latency before, during and after a pass, and its speed.

    python -m benchmarks.compaction                  about 30 seconds
    python -m benchmarks.compaction --records 100000

A compacted topic is filled with records over a tenth as many keys. Then one client sends a record
at a time to another topic, with acks=all, while the cleaner goes over the first.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import Record, encode_batch
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

_BATCH_RECORDS = 1000
_PAUSE_S = 0.001
_TABLE = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    options = parser.parse_args()
    settings = {
        "log.cleaner.backoff.ms": str(int(options.seconds * 1000) + 2000),
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(mode="process", data=folder, settings=settings) as broker,
        WireClient("127.0.0.1", broker.port) as client,
    ):
        _run(client, Path(folder), options.records, options.seconds)


def _run(client: WireClient, folder: Path, record_count: int, seconds: float) -> None:
    _create(client, "latency", {})
    _create(client, "table", _TABLE)
    started = time.monotonic()
    _fill(client, record_count)
    full_bytes = _table_bytes(folder)
    print(f"filled {full_bytes >> 20} MB in {time.monotonic() - started:.1f} s")
    # The cleaner looks for the first time a back-off after the start.
    _tell("before", _measure(client, max(1.0, seconds - (time.monotonic() - started))))
    while _table_bytes(folder) == full_bytes and not list((folder / "table-0").glob("*.cleaned")):
        _measure(client, 0.1)
    begun = time.monotonic()
    during = []
    while _table_bytes(folder) > full_bytes // 2 and time.monotonic() - begun < 60:
        during += _measure(client, 0.2)
    _tell("during", during)
    _tell("after", _measure(client, seconds))
    print(f"cleaned to {_table_bytes(folder) >> 20} MB in {time.monotonic() - begun:.1f} s")


def _create(client: WireClient, name: str, settings: dict[str, str]) -> None:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    client.call(CreateTopicsRequest(topics=[topic]), 7)


def _fill(client: WireClient, record_count: int) -> None:
    rng = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    for _ in range(record_count // _BATCH_RECORDS):
        keys = (b"key-%08d" % rng.randrange(record_count // 10) for _ in range(_BATCH_RECORDS))
        records = [Record(place, now_ms, key, b"x" * 100) for place, key in enumerate(keys)]
        _produce(client, "table", bytes(encode_batch(records)))


def _measure(client: WireClient, seconds: float) -> list[float]:
    """Latencies in milliseconds of one produce request after the other."""
    batch = bytes(encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"v" * 100)]))
    latencies = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sent = time.perf_counter()
        _produce(client, "latency", batch)
        latencies.append((time.perf_counter() - sent) * 1000)
        time.sleep(_PAUSE_S)
    return latencies


def _produce(client: WireClient, topic: str, batch: bytes) -> None:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)


def _table_bytes(folder: Path) -> int:
    total_bytes = 0
    for path in (folder / "table-0").glob("*.log"):
        try:
            total_bytes += path.stat().st_size
        except FileNotFoundError:  # swapped out this very moment
            continue
    return total_bytes


def _tell(when: str, latencies: list[float]) -> None:
    ordered = sorted(latencies) or [0.0]
    half, most = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    print(f"{when:7} p50 {half:6.2f} ms   p99 {most:6.2f} ms   {len(latencies)} requests")


if __name__ == "__main__":
    main()
