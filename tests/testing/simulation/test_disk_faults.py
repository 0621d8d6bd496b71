"""The simulated disk fills up, breaks and is damaged as it is told, or as the seed has it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Literal

import pytest

from tidelog.storage.files import read_file, replace_file, write_file, write_fully
from tidelog.testing.simulation.disk import DiskFaults, SimulatedDisk
from tidelog.testing.simulation.files import SimulatedFiles
from tidelog.testing.simulation.inodes import SECTOR_BYTES

SEEDS = range(60)
RW = os.O_RDWR | os.O_CREAT


# Space


def test_a_full_disk_writes_what_fits_and_heals() -> None:
    disk = SimulatedDisk(Random(0), space_bytes=10)
    files = disk.files()
    fd = files.open("/file", RW)
    assert files.disk_usage("/") == (10, 10)
    assert files.pwrite(fd, b"x" * 16, 0) == 10
    assert files.disk_usage("/") == (10, 0)
    with pytest.raises(OSError) as caught:
        files.pwrite(fd, b"x", 10)
    assert caught.value.errno == errno.ENOSPC
    assert files.pwrite(fd, b"yy", 0) == 2  # overwriting needs no room
    assert files.pwrite(fd, b"zzz", 8) == 2
    for call in (
        lambda: files.fallocate(fd, 0, 20),
        lambda: files.ftruncate(fd, 20),
        lambda: files.pwrite(fd, b"x", 20),
    ):
        with pytest.raises(OSError, match="No space"):
            call()
    assert disk.read("/file") == b"yyxxxxxxzz"
    files.ftruncate(fd, 4)
    assert files.pwritev(fd, [b"abc", b"def", b"ghi"], 4) == 6
    disk.heal()
    assert files.pwrite(fd, b"x" * 6, 10) == 6
    assert disk.used_bytes == 16


def test_a_removed_file_gives_its_space_back_when_it_is_closed() -> None:
    disk = SimulatedDisk(Random(0), space_bytes=10)
    files = disk.files()
    fd = files.open("/file", RW)
    files.pwrite(fd, bytes(10), 0)
    files.unlink("/file")
    assert files.pread(fd, 10, 0) == bytes(10)
    assert files.disk_usage("/") == (10, 0)
    files.close(fd)
    assert files.disk_usage("/") == (10, 10)
    write_file(files, "/a", bytes(4))
    write_file(files, "/b", bytes(5))
    files.rename("/a", "/b")
    assert disk.used_bytes == 4


@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_the_end_of_a_life_gives_back_what_only_it_had(end: str) -> None:
    disk = SimulatedDisk(Random(0), space_bytes=10)
    files = disk.files()
    files.pwrite(files.open("/file", RW), bytes(10), 0)
    files.unlink("/file")
    files.sync_directory("/")
    getattr(disk, end)()
    assert disk.used_bytes == 0


def test_short_writes_are_gone_on_with() -> None:
    disk = SimulatedDisk(Random(0), faults=DiskFaults(short_write=0.5))
    files = disk.files()
    fd = files.open("/file", RW)
    written = [files.pwrite(fd, b"x" * 100, 0) for _ in range(50)]
    assert all(1 <= count <= 100 for count in written)
    assert len(set(written)) > 10
    content = bytes(range(256)) * 10
    write_fully(files, fd, content, 0)
    assert disk.read("/file") == content


# Errors


def test_a_path_fails_and_the_rest_works() -> None:
    disk = SimulatedDisk(Random(0))
    files = disk.files()
    files.mkdir("/bad")
    fd = files.open("/bad/old", RW)
    disk.fail("/bad")
    for call in (
        lambda: files.pwrite(fd, b"x", 0),
        lambda: files.fsync(fd),
        lambda: files.listdir("/bad"),
        lambda: files.open("/bad/new", RW),
    ):
        with pytest.raises(OSError, match="Input/output"):
            call()
    write_file(files, "/badger", b"x")
    disk.heal()
    files.pwrite(fd, b"x", 0)


def test_only_syncs_fail() -> None:
    disk = SimulatedDisk(Random(0))
    files = disk.files()
    fd = files.open("/file", RW)
    disk.fail("/file", only="sync", error=errno.ENOSPC)
    files.pwrite(fd, b"y", 0)
    with pytest.raises(OSError, match="No space"):
        files.fdatasync(fd)
    assert files.pread(fd, 1, 0) in (b"y", b"\0")


@pytest.mark.parametrize(
    ("faults", "failing"),
    [
        (DiskFaults(read_error=1), {"read"}),
        (DiskFaults(write_error=1), {"write", "rename"}),
        (DiskFaults(sync_error=1), {"sync", "sync_directory"}),
    ],
)
def test_the_seed_fails_the_kinds_of_operations_that_it_may(
    faults: DiskFaults, failing: set[str]
) -> None:
    disk = SimulatedDisk(Random(0))
    files = disk.files()
    fd = files.open("/file", RW)
    disk.faults = faults
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: files.pread(fd, 1, 0),
        "write": lambda: files.pwrite(fd, b"x", 0),
        "rename": lambda: files.rename("/file", "/file"),
        "sync": lambda: files.fsync(fd),
        "sync_directory": lambda: files.sync_directory("/"),
    }
    for name, call in calls.items():
        if name in failing:
            with pytest.raises(OSError, match="Input/output"):
                call()
        else:
            call()


def test_an_error_by_chance_passes() -> None:
    disk = SimulatedDisk(Random(0), faults=DiskFaults(write_error=0.5))
    files = disk.files()
    disk.faults = DiskFaults()
    fd = files.open("/file", RW)
    disk.faults = DiskFaults(write_error=0.5)
    results = set()
    for _ in range(30):
        try:
            results.add(files.pwrite(fd, b"x", 0))
        except OSError:
            results.add(-1)
    assert results == {1, -1}


# Failed syncs


def failed_then_synced(seed: int) -> tuple[SimulatedDisk, SimulatedFiles, int]:
    """A file of synced a's, and b's over half of it and behind it, whose first sync failed."""
    disk = SimulatedDisk(Random(seed))
    files = disk.files()
    replace_file(files, "/file", b"a" * 4 * SECTOR_BYTES)
    fd = files.open("/file", RW)
    files.pwrite(fd, b"b" * 4 * SECTOR_BYTES, 2 * SECTOR_BYTES)
    disk.fail("/file", only="sync")
    with pytest.raises(OSError, match="Input/output"):
        files.fsync(fd)
    disk.heal()
    files.fsync(fd)
    return disk, files, fd


def test_a_sync_after_a_failed_one_may_pass_over_what_was_lost() -> None:
    seen = set()
    for seed in SEEDS:
        disk, _, _ = failed_then_synced(seed)
        before = disk.read("/file")
        disk.power_cut()
        after = disk.read("/file")
        assert len(after) == 6 * SECTOR_BYTES
        assert after[: 2 * SECTOR_BYTES] == b"a" * 2 * SECTOR_BYTES
        for start in range(2 * SECTOR_BYTES, 6 * SECTOR_BYTES, SECTOR_BYTES):
            old = b"a" if start < 4 * SECTOR_BYTES else b"\0"
            assert after[start : start + SECTOR_BYTES] in (old * SECTOR_BYTES, b"b" * SECTOR_BYTES)
        whole = b"b" * 4 * SECTOR_BYTES
        seen.add((before[2 * SECTOR_BYTES :] == whole, after[2 * SECTOR_BYTES :] == whole))
    assert seen == {
        (True, True),  # the second sync wrote it
        (True, False),  # it took it for clean
        (False, False),  # it was gone from the page cache at once
    }


def test_what_is_written_again_after_a_failed_sync_is_synced() -> None:
    for seed in SEEDS:
        disk, files, fd = failed_then_synced(seed)
        files.pwrite(fd, b"c" * 4 * SECTOR_BYTES, 2 * SECTOR_BYTES)
        files.fsync(fd)
        disk.power_cut()
        assert disk.read("/file")[2 * SECTOR_BYTES :] == b"c" * 4 * SECTOR_BYTES


def test_a_kill_after_a_failed_sync_leaves_what_the_page_cache_has() -> None:
    for seed in SEEDS:
        disk, _, _ = failed_then_synced(seed)
        before = disk.read("/file")
        disk.kill()
        assert read_file(disk.files(), "/file") == before


# Damage


def test_damage_flips_one_bit_of_what_was_synced() -> None:
    disk = SimulatedDisk(Random(0))
    files = disk.files()
    replace_file(files, "/file", bytes(2000))
    position = disk.damage("/file", 700)
    assert position == 700
    disk.power_cut()
    content = disk.read("/file")
    assert [at for at, byte in enumerate(content) if byte] == [700]
    assert content[700].bit_count() == 1
    assert 0 <= disk.damage("/file") < 2000


def test_damage_zeroes_one_sector() -> None:
    disk = SimulatedDisk(Random(0))
    replace_file(disk.files(), "/file", b"x" * 2000)
    disk.damage("/file", 1700, how="zero")
    assert disk.read("/file") == b"x" * 3 * SECTOR_BYTES + bytes(2000 - 3 * SECTOR_BYTES)
    disk.damage("/file", 600, how="zero")
    disk.power_cut()
    assert disk.read("/file") == (
        b"x" * SECTOR_BYTES + bytes(SECTOR_BYTES) + b"x" * SECTOR_BYTES + bytes(464)
    )


def test_damage_reaches_what_the_disk_has_below_an_unsynced_write() -> None:
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed))
        files = disk.files()
        replace_file(files, "/file", b"x" * 100)
        files.pwrite(files.open("/file", RW), b"y" * 50, 100)
        disk.damage("/file", 10, how="zero")
        disk.power_cut()
        assert not any(disk.read("/file"))


# Counters


def test_operations_are_counted_and_told() -> None:
    told: list[tuple[str, str, int]] = []
    disk = SimulatedDisk(Random(0), on_operation=lambda *operation: told.append(operation))
    files = disk.files()
    files.mkdir("/d")
    write_file(files, "/d/file", b"abc", durable=True)
    assert read_file(files, "/d/file") == b"abc"
    files.sync_directory("/d")
    disk.power_cut()
    assert (disk.operations, disk.syncs, disk.bytes_written) == (5, 2, 3)
    assert told == [
        ("stat", "/d", 0),
        ("mkdir", "/d", 0),
        ("create", "/d/file", 0),
        ("pwrite", "/d/file", 3),
        ("fsync", "/d/file", 0),
        ("open", "/d/file", 0),
        ("fstat", "/d/file", 0),
        ("pread", "/d/file", 3),
        ("sync_directory", "/d", 0),
        ("power_cut", "/", 0),
    ]


# One error


@pytest.mark.parametrize("kind", ["read", "write", "sync"])
def test_one_operation_of_a_kind_fails_and_the_next_does_not(
    kind: Literal["read", "write", "sync"],
) -> None:
    told: list[tuple[str, str]] = []
    disk = SimulatedDisk(Random(0))
    disk.on_error = lambda *what: told.append(what)
    files = disk.files()
    fd = files.open("/file", RW)
    files.pwrite(fd, b"abc", 0)
    disk.fail_once(kind, after=2)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: files.pread(fd, 3, 0),
        "write": lambda: files.pwrite(fd, b"abc", 0),
        "sync": lambda: files.fdatasync(fd),
    }
    for name, call in calls.items():
        call()
        if name == kind:
            with pytest.raises(OSError, match="/file") as caught:
                call()
            assert caught.value.errno == errno.EIO
        call()
    assert told == [(kind, "/file")]
    assert disk.errors == 1
    assert disk.is_in_doubt == (kind == "sync")


def test_doubt_ends_with_the_power() -> None:
    disk = SimulatedDisk(Random(0))
    files = disk.files()
    disk.fail_once("sync")
    with pytest.raises(OSError, match="/"):
        files.sync_directory("/")
    disk.kill()
    assert disk.is_in_doubt
    disk.power_cut()
    assert not disk.is_in_doubt
