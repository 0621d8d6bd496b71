"""What the tests of the store share: batches, stores, and a loop thread's queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.files import Files

SMALL = StoreOptions(
    journal_file_bytes=64 << 10,
    journal_first_file_bytes=32 << 10,
    direct_sync_bytes=1 << 30,
)
TOPIC_ID = bytes(range(1, 17))
ORDERS = TopicPartition("orders", 0)


def batch_of(*values: bytes) -> memoryview:
    return memoryview(encode_batch([Record(i, 1000, None, v, []) for i, v in enumerate(values)]))


def append(log: Log, *values: bytes) -> int:
    """Appends one batch and returns the log's end."""
    return log.append_as_leader(batch_of(*values), 0, 1000).next_offset


def values_of(log: Log) -> list[bytes]:
    values: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        assert found.file_slice is not None
        for _, records in decode_batches(memoryview(found.file_slice.read(log.files))):
            values += [bytes(record.value or b"") for record in records]
        offset = found.next_offset
    return values


def open_store(
    *directories: Path, files: Files | None = None, options: StoreOptions = SMALL
) -> LogStore:
    """A store that does everything at once, on the calling thread."""
    return LogStore.open(
        list(directories), options, world=InlineWorld(files, now_ms=1000), post=lambda call: call()
    )


class Loop:
    """Stands in for the event loop: calls that other threads post run when the test lets them."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, call: Callable[[], None]) -> None:
        self.calls.put(call)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in 30 seconds"
            try:
                self.calls.get(timeout=0.05)()
            except Empty:
                continue
