"""Damaged files are recovered, or refused with a message that names the file and what to do."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.store_cases import (
    ORDERS,
    SMALL,
    TOPIC_ID,
    append,
    batch_of,
    open_store,
    values_of,
)
from tidelog.protocol.record_batch import stamp
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.storage.directories.offset_checkpoint import RECOVERY_POINTS
from tidelog.storage.directories.partition_metadata import read_topic_id
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log_config import LogConfig
from tidelog.storage.recovery import RecoveryError
from tidelog.world.files import StrPath
from tidelog.world.operating_system.files import OsFiles

SEGMENT = "orders-0/00000000000000000000.log"


def crashed_store(directory: Path, *, checkpoint_after: int | None = None) -> list[bytes]:
    """A store of one partition that crashed with ten records acknowledged."""
    store = open_store(directory)
    log = store.create(ORDERS, TOPIC_ID, LogConfig(index_interval_bytes=100))
    values = [b"%d" % n for n in range(10)]
    for n, value in enumerate(values):
        append(log, value)
        store.commit()
        if n + 1 == checkpoint_after:
            store.checkpoint()
    store.close(clean=False)
    return values


def recovered_values(directory: Path) -> list[bytes]:
    store = open_store(directory)
    values = values_of(store.logs[ORDERS])
    store.close()
    return values


def test_a_segment_that_never_reached_the_disk_comes_from_the_journal(tmp_path: Path) -> None:
    values = crashed_store(tmp_path)
    (tmp_path / SEGMENT).write_bytes(b"")
    assert recovered_values(tmp_path) == values


def test_a_whole_partition_directory_comes_from_the_journal(tmp_path: Path) -> None:
    values = crashed_store(tmp_path)
    for path in (tmp_path / "orders-0").iterdir():
        path.unlink()
    (tmp_path / "orders-0").rmdir()
    assert recovered_values(tmp_path) == values


@pytest.mark.parametrize("position", [0, 8, 17, 30, 70, 200])
def test_a_bit_flip_behind_the_recovery_point_is_repaired(tmp_path: Path, position: int) -> None:
    values = crashed_store(tmp_path)
    content = bytearray((tmp_path / SEGMENT).read_bytes())
    content[position] ^= 1
    (tmp_path / SEGMENT).write_bytes(content)
    assert recovered_values(tmp_path) == values


def test_a_torn_tail_is_cut_and_replayed(tmp_path: Path) -> None:
    values = crashed_store(tmp_path / "crashed", checkpoint_after=4)
    content = (tmp_path / "crashed" / SEGMENT).read_bytes()
    for size_bytes in range(len(content) // 2, len(content), 37):
        copy = tmp_path / str(size_bytes)
        shutil.copytree(tmp_path / "crashed", copy)
        (copy / SEGMENT).write_bytes(content[:size_bytes])
        assert recovered_values(copy) == values


def test_a_log_that_ends_below_its_recovery_point_is_refused(tmp_path: Path) -> None:
    crashed_store(tmp_path, checkpoint_after=10)
    (tmp_path / SEGMENT).write_bytes((tmp_path / SEGMENT).read_bytes()[:200])
    with pytest.raises(RecoveryError, match=r"orders-0/0+\.log.*everything below 10 was on disk"):
        open_store(tmp_path)
    # What the message says helps: give up the records by removing the line.
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert recovered_values(tmp_path) == [b"0", b"1"]


def test_a_deleted_segment_after_a_clean_shutdown_is_refused(tmp_path: Path) -> None:
    crashed_store(tmp_path)
    recovered_values(tmp_path)
    (tmp_path / SEGMENT).unlink()
    with pytest.raises(RecoveryError, match="everything below 10 was on disk"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "journal-checkpoint",
    ],
)
@pytest.mark.parametrize("content", [None, b"", b"garbage\n\0\xff", b"0\n3\norders 0 1\n"])
def test_lost_and_damaged_checkpoints_are_recovered(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    values = crashed_store(tmp_path, checkpoint_after=4)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    assert recovered_values(tmp_path) == values


def test_a_damaged_checkpoint_after_a_clean_shutdown_is_recovered(tmp_path: Path) -> None:
    values = crashed_store(tmp_path)
    recovered_values(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"x")
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"x")
    assert recovered_values(tmp_path) == values


def test_lost_indexes_are_rebuilt(tmp_path: Path) -> None:
    values = crashed_store(tmp_path, checkpoint_after=10)
    for path in (tmp_path / "orders-0").glob("*index"):
        path.unlink()
    assert recovered_values(tmp_path) == values


def test_a_damaged_partition_metadata_is_made_again_from_the_journal(tmp_path: Path) -> None:
    values = crashed_store(tmp_path)
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"")
    store = open_store(tmp_path)
    assert store.logs[ORDERS].topic_id == TOPIC_ID
    assert values_of(store.logs[ORDERS]) == values
    store.close()


def test_a_topic_id_with_a_flipped_bit_is_made_again_from_the_journal(tmp_path: Path) -> None:
    values = crashed_store(tmp_path)
    path = tmp_path / "orders-0" / "partition.metadata"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    assert read_topic_id(OsFiles(), tmp_path / "orders-0") != TOPIC_ID
    store = open_store(tmp_path)
    assert store.logs[ORDERS].topic_id == TOPIC_ID
    assert values_of(store.logs[ORDERS]) == values
    store.close()


def test_a_damaged_partition_metadata_without_journal_is_refused(tmp_path: Path) -> None:
    crashed_store(tmp_path)
    recovered_values(tmp_path)
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"version: 7\ntopic_id: abc" * 9)
    with pytest.raises(CorruptFileError, match=r"partition\.metadata"):
        open_store(tmp_path)


def test_a_damaged_partition_metadata_of_a_log_that_was_never_used_is_forgotten(
    tmp_path: Path,
) -> None:
    """A power cut damaged it before it was synced; the metadata of the cluster has it."""
    store = open_store(tmp_path)
    store.create(ORDERS, TOPIC_ID, LogConfig())
    store.close(clean=False)
    path = tmp_path / "orders-0" / "partition.metadata"
    path.write_bytes(path.read_bytes()[:-2] + b"~w")
    store = open_store(tmp_path)
    assert store.logs[ORDERS].topic_id == ZERO_UUID
    assert not path.exists()
    store.close()


def test_a_directory_of_another_topic_is_refused(tmp_path: Path) -> None:
    crashed_store(tmp_path)
    other = tmp_path / "other"
    store = open_store(other)
    store.create(ORDERS, bytes(16 * [7]), LogConfig())
    store.close()
    for name in ("partition.metadata",):
        (tmp_path / "orders-0" / name).write_bytes((other / "orders-0" / name).read_bytes())
    with pytest.raises(RecoveryError, match="the journal holds records of"):
        open_store(tmp_path)


def test_truncation_survives_a_crash(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
    store.commit()
    store.checkpoint()
    log.truncate_to(2)
    append(log, b"e")
    store.commit()
    store.close(clean=False)
    assert recovered_values(tmp_path) == [b"a", b"b", b"e"]


def test_a_log_that_starts_elsewhere_survives_a_crash(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    log.truncate_fully_and_start_at(100)
    append(log, b"b")
    store.commit()
    store.close(clean=False)
    store = open_store(tmp_path)
    log = store.logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (100, 101)
    assert values_of(log) == [b"b"]
    store.close()


def test_problems_of_several_partitions_are_told_together(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for n in range(3):
        append(store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()), b"a")
    store.commit()
    store.checkpoint()
    store.close(clean=False)
    for n in (0, 2):
        (tmp_path / f"orders-{n}" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(RecoveryError) as caught:
        open_store(tmp_path)
    assert len(str(caught.value).splitlines()) == 2


def test_gaps_that_a_follower_of_a_compacted_log_has_are_replayed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    for offset in (0, 7, 9):
        batch = bytearray(batch_of(b"%d" % offset))
        stamp(batch, 0, offset, 0)
        log.append_as_follower(memoryview(batch))
        store.commit()
    store.close(clean=False)
    (tmp_path / SEGMENT).write_bytes(b"")
    assert recovered_values(tmp_path) == [b"0", b"7", b"9"]


@pytest.mark.parametrize("content", [None, b"garbage", b"0\n0\n"])
def test_gaps_of_compaction_survive_the_loss_of_recovery_points(
    tmp_path: Path, content: bytes | None
) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig(cleanup_policy=frozenset({"compact"})))
    for offset in (0, 7, 9):
        batch = bytearray(batch_of(b"%d" % offset))
        stamp(batch, 0, offset, 0)
        log.append_as_follower(memoryview(batch))
        log.roll(1000)
    store.commit()
    store.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    assert recovered_values(tmp_path) == [b"0", b"7", b"9"]


class FilesWithoutRoomForCheckpoints(OsFiles):
    """The disk is full, from a moment on, when a checkpoint is to be written down."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: StrPath, flags: int, mode: int = 0o644, /) -> int:  # type: ignore[override]
        if self.is_full and str(path).endswith(f"{RECOVERY_POINTS}.tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().open(path, flags, mode)


@pytest.mark.parametrize("direct_sync_bytes", [1, 1 << 30])
def test_a_checkpoint_that_could_not_be_written_moves_no_recovery_point(
    tmp_path: Path, direct_sync_bytes: int
) -> None:
    """Compaction relies on it: a recovery takes what is missing above the one on disk for lost."""
    files = FilesWithoutRoomForCheckpoints()
    options = replace(SMALL, direct_sync_bytes=direct_sync_bytes)
    store = open_store(tmp_path, files=files, options=options)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"0")
    store.commit()
    store.checkpoint()
    recovery_point = log.local.recovery_point
    assert recovery_point == 1
    append(log, b"1")
    store.commit()
    files.is_full = True
    store.checkpoint()
    assert not store.is_checkpointing(log)
    assert log.local.recovery_point == recovery_point
    store.close(clean=False)
    assert recovered_values(tmp_path) == [b"0", b"1"]


def copied_log(
    directory: Path,
    direct_sync_bytes: int,
    *,
    checkpoint: bool = False,
    config: LogConfig = LogConfig(),
) -> list[bytes]:
    """A copy of a compacted log, of which some offsets are missing, whose node crashed."""
    store = open_store(directory, options=replace(SMALL, direct_sync_bytes=direct_sync_bytes))
    log = store.create(ORDERS, TOPIC_ID, config)
    for offset in (0, 1, 5, 6, 20):
        batch = batch_of(b"%d" % offset)
        stamp(batch, 0, offset, 0)
        log.append_as_follower(batch)
        store.commit()
        if not offset:
            store.checkpoint()
    assert log.durable_offset == 21
    if checkpoint:
        store.checkpoint()
    values = values_of(log)
    store.close(clean=False)
    return values


@pytest.mark.parametrize("direct_sync_bytes", [1, 1 << 30])
def test_gaps_in_a_copy_of_a_compacted_log_are_no_damage(
    tmp_path: Path, direct_sync_bytes: int
) -> None:
    values = copied_log(tmp_path, direct_sync_bytes)
    assert recovered_values(tmp_path) == values == [b"0", b"1", b"5", b"6", b"20"]


def test_gaps_below_the_recovery_point_are_no_damage_without_an_index(tmp_path: Path) -> None:
    values = copied_log(tmp_path, 1 << 30, checkpoint=True)
    for path in (tmp_path / "orders-0").glob("*.index"):
        path.unlink()
    assert recovered_values(tmp_path) == values


@pytest.mark.parametrize("segment_bytes", [1 << 30, 80])
def test_gaps_in_a_copy_that_is_left_to_the_page_cache_are_no_damage(
    tmp_path: Path, segment_bytes: int
) -> None:
    config = LogConfig(durability="page-cache", segment_bytes=segment_bytes)
    values = copied_log(tmp_path, 1 << 30, config=config)
    for _ in range(2):
        store = open_store(tmp_path)
        assert values_of(store.logs[ORDERS]) == values == [b"0", b"1", b"5", b"6", b"20"]
        store.close(clean=False)  # another crash, right after the recovery


def test_gaps_are_forgotten_when_the_recovery_point_has_passed_them(tmp_path: Path) -> None:
    config = LogConfig(durability="page-cache")
    copied_log(tmp_path, 1 << 30, config=config)
    path = tmp_path / "orders-0" / "offset-gaps"
    assert path.exists()
    store = open_store(tmp_path)
    append(store.logs[ORDERS], b"21")
    store.commit()
    assert path.exists()
    store.checkpoint()
    assert not path.exists()
    store.close()
