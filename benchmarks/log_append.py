"""What one append to a log costs, in microseconds, for small and large batches.

Run with `python benchmarks/log_append.py [DIRECTORY]`; by default in a temporary directory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tidelog.protocol.record_batch import BATCH_OVERHEAD
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.world.operating_system import OperatingSystem

NOW_MS = 1_700_000_000_000
ROUNDS = 3


def make_log(directory: Path) -> Log:
    config = LogConfig(durability="page-cache", max_message_bytes=4 << 20)
    topic_partition = TopicPartition("bench", 0)
    return open_log(directory, topic_partition, config, world=OperatingSystem())


def make_batch(records: int, value_bytes: int, producer_id: int, sequence: int) -> bytearray:
    value = b"x" * value_bytes
    return encode_batch(
        [Record(offset, NOW_MS, None, value) for offset in range(records)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def append_us(directory: Path, records: int, value_bytes: int, count: int, producer: bool) -> float:
    """The best of some rounds: microseconds per append."""
    best = float("inf")
    for round_number in range(ROUNDS):
        log = make_log(directory / f"{records}-{value_bytes}-{producer}-{round_number}")
        batches = [
            memoryview(
                make_batch(
                    records, value_bytes, 7 if producer else -1, i * records if producer else -1
                )
            )
            for i in range(count)
        ]
        append = log.append_as_leader
        start = time.perf_counter()
        for batch in batches:
            append(batch, 0, NOW_MS)
        best = min(best, time.perf_counter() - start)
        log.close()
    return best / count * 1e6


def read_us(directory: Path, count: int) -> float:
    """A consumer at the tail: one append, one read of it, per turn; the read alone is counted."""
    log = make_log(directory / "read")
    spent = 0.0
    for _ in range(count):
        offset = log.log_end_offset
        log.append_as_leader(memoryview(make_batch(1, 100, -1, -1)), 0, NOW_MS)
        start = time.perf_counter()
        found = log.read(offset, 1 << 20, log.log_end_offset)
        spent += time.perf_counter() - start
        assert found.size_bytes > BATCH_OVERHEAD
    log.close()
    return spent / count * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        directory = Path(name)
        print(f"{'append':32}{'µs':>8}{'MB/s':>10}")
        for label, records, value_bytes, count, producer in (
            ("1 record of 100 B", 1, 100, 10_000, False),
            ("1 record of 100 B, idempotent", 1, 100, 10_000, True),
            ("1 record of 1 KB", 1, 1024, 10_000, False),
            ("15 records of 1 KB", 15, 1024, 2_000, False),
            ("1000 records of 1 KB", 1000, 1024, 60, False),
        ):
            spent_us = append_us(directory, records, value_bytes, count, producer)
            size_bytes = len(make_batch(records, value_bytes, -1, -1))
            print(f"{label:32}{spent_us:8.2f}{size_bytes / spent_us:10.0f}")
        print(f"{'read of the tail':32}{read_us(directory, 5_000):8.2f}")


if __name__ == "__main__":
    main()
