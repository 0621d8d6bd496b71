"""A random life of a log store that loses power again and again, and what must hold after it."""

from __future__ import annotations

import errno
import random
from pathlib import Path

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import random_uuid
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorld

OPTIONS = StoreOptions(
    journal_file_bytes=32 << 10,
    journal_first_file_bytes=16 << 10,
    journal_spares_max=2,
    direct_sync_bytes=3000,
    checkpoint_journal_bytes=48 << 10,
    checkpoint_appended_bytes=200 << 10,
)


class ExpectedLog:
    """What a partition must hold: the values by offset, and how many of them are acknowledged."""

    def __init__(self, topic_id: bytes, config: LogConfig) -> None:
        self.topic_id = topic_id
        self.config = config
        self.values: list[bytes] = []
        self.batch_starts: list[int] = []
        self.acknowledged = 0


class PowerCutRun:
    """Drives one store through appends, truncations, deletions, checkpoints and power cuts."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self._directory = directory
        self._cuts = 0
        self._count = 0
        self.expected: dict[TopicPartition, ExpectedLog] = {}
        self.deleted: set[bytes] = set()
        self.files = FaultyFiles(directory / "disk-0")
        self.store = self._open()

    def run(self, cuts: int, steps: int) -> None:
        for _ in range(cuts):
            self.files.cut_after = self.files.operations + self.rng.randint(1, steps * 6)
            try:
                for _ in range(steps):
                    self._step()
                self.files.cut_after = self.files.operations
            except PowerCut:
                pass
            self._cut_and_recover()
        self.store.close()
        self._cut_power()
        self.store = self._open()
        self._check()
        self.store.close()

    # Steps

    def _step(self) -> None:
        choice = self.rng.random()
        if choice < 0.08 or not self.expected:
            self._create()
        elif choice < 0.75:
            self._append_turn()
        elif choice < 0.83:
            self._truncate()
        elif choice < 0.88:
            self.store.checkpoint()
        elif choice < 0.91:
            self._delete()
        elif choice < 0.95:
            self._roll()
        elif choice < 0.965:
            self.store.maintain(self._count * 100_000)
        elif choice < 0.98:
            self._fill_or_empty_the_disk()
        else:
            self._change_durability()

    def _any_log(self) -> Log:
        return self.store.logs[self.rng.choice(sorted(self.expected))]

    def _create(self) -> None:
        topic_partition = TopicPartition(f"t{self.rng.randint(0, 3)}", self.rng.randint(0, 1))
        if topic_partition in self.expected:
            return
        expected = ExpectedLog(
            random_uuid(self.rng),
            LogConfig(
                segment_bytes=self.rng.choice((4000, 20_000, 1 << 20)),
                index_interval_bytes=500,
                durability=self.rng.choice(("fsync", "fsync", "fsync", "page-cache")),
            ),
        )
        try:
            self.store.create(topic_partition, expected.topic_id, expected.config)
        except ApiError as error:
            self._expect_full_disk(error)
        else:
            self.expected[topic_partition] = expected

    def _append_turn(self) -> None:
        """Some appends, then the end of the loop turn, after which all of them are durable."""
        for _ in range(self.rng.randint(1, 6)):
            log = self._any_log()
            expected = self.expected[log.topic_partition]
            values = []
            for _ in range(self.rng.randint(1, 4)):
                self._count += 1
                values.append(b"%d " % self._count + bytes(self.rng.choice((10, 300, 900))))
            batch = encode_batch([Record(i, 1000, None, v, []) for i, v in enumerate(values)])
            expected.batch_starts.append(len(expected.values))
            expected.values += values  # may be in the log from the moment the append is tried
            try:
                log.append_as_leader(memoryview(batch), 0, 1000)
            except ApiError as error:
                self._expect_full_disk(error)
                del expected.values[expected.batch_starts.pop() :]
        self.store.commit()
        for topic_partition, expected in self.expected.items():
            log = self.store.logs[topic_partition]
            assert log.durable_offset == log.log_end_offset == len(expected.values)
            if expected.config.durability == "fsync":
                expected.acknowledged = log.durable_offset

    def _truncate(self) -> None:
        log = self._any_log()
        expected = self.expected[log.topic_partition]
        offset = self.rng.randint(0, log.log_end_offset)
        # From here on the batch that holds the offset and what follows may be gone, or still be
        # there after a cut.
        end = max((start for start in expected.batch_starts if start <= offset), default=0)
        expected.acknowledged = min(expected.acknowledged, end)
        try:
            log.truncate_to(offset)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.files.heal()
            log.truncate_to(offset)
        expected.batch_starts = [start for start in expected.batch_starts if start < end]
        del expected.values[log.log_end_offset :]
        self.store.commit()

    def _roll(self) -> None:
        try:
            self._any_log().roll(0)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def _fill_or_empty_the_disk(self) -> None:
        room = self.rng.choice((0, 100, 2000, 30_000))
        self.files.space_bytes = None if self.files.space_bytes else self.files.used_bytes + room

    def _expect_full_disk(self, error: ApiError) -> None:
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert self.files.space_bytes is not None, error

    def _delete(self) -> None:
        topic_partition = self.rng.choice(sorted(self.expected))
        expected = self.expected.pop(topic_partition)
        self.store.delete(topic_partition)
        self.store.commit()
        self.deleted.add(expected.topic_id)

    def _change_durability(self) -> None:
        log = self._any_log()
        expected = self.expected[log.topic_partition]
        other = "page-cache" if expected.config.durability == "fsync" else "fsync"
        config = LogConfig(segment_bytes=expected.config.segment_bytes, durability=other)
        expected.config = config
        self.store.set_config(log.topic_partition, config)
        self.store.commit()

    # Power

    def _open(self) -> LogStore:
        return LogStore.open(
            [self.files.root],
            OPTIONS,
            world=InlineWorld(self.files, now_ms=1000),
            post=lambda call: call(),
        )

    def _cut_power(self) -> None:
        self._cuts += 1
        target = self._directory / f"disk-{self._cuts % 3}"
        self.store.close(clean=False) if self.files.cut_after is None else None
        self.files = self.files.power_cut(target, self.rng.randrange(1 << 30))

    def _cut_and_recover(self) -> None:
        self._cut_power()
        for _ in range(self.rng.choice((0, 0, 1, 3))):  # cuts during recovery
            self.files.cut_after = self.rng.randint(1, 60)
            try:
                self.store = self._open()
            except PowerCut:
                pass
            self._cut_power()
        self.store = self._open()
        self._check()

    def _check(self) -> None:
        for topic_partition, expected in list(self.expected.items()):
            log = self.store.get(topic_partition)
            if log is None or (expected.acknowledged == 0 and log.topic_id != expected.topic_id):
                assert expected.acknowledged == 0, f"{topic_partition} is gone"
                del self.expected[topic_partition]
                continue
            values, expected.batch_starts = read_values(log)
            assert log.log_end_offset == len(values), f"{log} holds {len(values)} records"
            assert len(values) >= expected.acknowledged, (
                f"{topic_partition}: {expected.acknowledged} acknowledged, {len(values)} found"
            )
            assert values[: expected.acknowledged] == expected.values[: expected.acknowledged]
            expected.values = values
            expected.acknowledged = len(values)
            self.store.set_config(topic_partition, expected.config)
            if expected.config.durability != "fsync":
                expected.acknowledged = 0
        for topic_partition, log in list(self.store.logs.items()):
            if topic_partition not in self.expected:
                assert log.topic_id not in self.deleted, f"{topic_partition} came back"
                self.store.delete(topic_partition)
        self.store.commit()


def read_values(log: Log) -> tuple[list[bytes], list[int]]:
    """All values of a log, whose offsets must be 0, 1, 2 and so on, and where batches start."""
    values: list[bytes] = []
    batch_starts: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        assert found.file_slice is not None
        for _, records in decode_batches(memoryview(found.file_slice.read(log.files))):
            batch_starts.append(len(values))
            for record in records:
                assert record.offset == len(values), (
                    f"{log} {record.offset} after {len(values)} records"
                )
                values.append(record.value or b"")
        offset = found.next_offset
    return values, batch_starts
