"""After a power cut the simulated disk has what was synced, and some of the rest, in order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage.files import read_file, replace_file, write_file, write_fully
from tidelog.testing.simulation.disk import DiskFaults, PowerCut, SimulatedDisk
from tidelog.testing.simulation.files import SimulatedFiles
from tidelog.testing.simulation.inodes import SECTOR_BYTES

SEEDS = range(60)
RW = os.O_RDWR | os.O_CREAT


def after_cut(
    write: Callable[[SimulatedFiles], object], *, faults: DiskFaults | None = None
) -> list[dict[str, bytes]]:
    """What each seed makes of the disk when the power goes after `write`."""
    trees = []
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed), faults=faults)
        write(disk.files())
        disk.power_cut()
        trees.append(disk.tree())
    return trees


# Content


def test_what_was_synced_survives() -> None:
    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", b"synced")

    assert after_cut(write) == [{"/file": b"synced"}] * len(SEEDS)


def test_writes_since_the_sync_are_dropped_kept_or_torn() -> None:
    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", b"a" * 4 * SECTOR_BYTES)
        write_fully(files, files.open("/file", os.O_WRONLY), b"b" * 4 * SECTOR_BYTES, 0)

    contents = {tree["/file"] for tree in after_cut(write)}
    assert b"a" * 4 * SECTOR_BYTES in contents
    assert b"b" * 4 * SECTOR_BYTES in contents
    assert any({*content} == {*b"ab"} for content in contents)


def test_a_file_that_grew_has_its_old_or_new_length_or_one_between() -> None:
    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", b"a" * 100)
        write_fully(files, files.open("/file", os.O_WRONLY), b"b" * 2000, 100)

    contents = [tree["/file"] for tree in after_cut(write)]
    assert all(content.startswith(b"a" * 100) for content in contents)
    lengths = {len(content) for content in contents}
    assert {100, 2100} < lengths
    assert all(100 <= length <= 2100 for length in lengths)
    # The sector that the synced bytes share with new ones may be the old one.
    rest = {content[100:SECTOR_BYTES] for content in contents if len(content) > SECTOR_BYTES}
    assert rest == {b"b" * (SECTOR_BYTES - 100), bytes(SECTOR_BYTES - 100)}


def test_a_file_that_was_cut_has_old_bytes_wherever_it_is_longer() -> None:
    old = bytes(range(256)) * 8

    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", old)
        files.ftruncate(files.open("/file", os.O_WRONLY), 700)

    contents = {tree["/file"] for tree in after_cut(write)}
    assert {old, old[:700]} < contents
    assert all(content == old[: len(content)] and len(content) >= 700 for content in contents)


def may_be_left(found: bytes, synced: bytes, written: bytes) -> bool:
    """Whether a cut may leave `found` of a file that was `synced` and is now as `written`."""
    if not min(len(synced), len(written)) <= len(found) <= max(len(synced), len(written)):
        return False
    for start in range(0, len(found), SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, len(found))
        old = synced[start:end].ljust(end - start, b"\0")
        new = written[start:end]
        # Behind the end of a file that was cut, the disk has what it had.
        if found[start:end] not in (old, new + old[len(new) :]):
            return False
    return True


changes = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2500), st.integers(1, 1200)),
    st.tuples(st.just("resize"), st.integers(0, 3000), st.just(0)),
    st.tuples(st.just("sync"), st.just(0), st.just(0)),
)


@settings(max_examples=400, deadline=None)
@given(steps=st.lists(changes, max_size=15), seed=st.integers(0, 1 << 30))
def test_each_sector_is_as_it_was_synced_or_as_it_was_written(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    disk = SimulatedDisk(Random(seed))
    files = disk.files()
    fd = files.open("/file", RW)
    files.sync_directory("/")
    synced = written = b""
    for number, (step, position, size_bytes) in enumerate(steps):
        if step == "sync":
            files.fdatasync(fd)
            synced = written
        elif step == "write":
            files.pwrite(fd, bytes([number + 1]) * size_bytes, position)
            written = written[:position].ljust(position, b"\0") + (
                bytes([number + 1]) * size_bytes + written[position + size_bytes :]
            )
        else:
            files.ftruncate(fd, position)
            written = written[:position].ljust(position, b"\0")
    assert disk.read("/file") == written
    disk.power_cut()
    found = disk.read("/file")
    assert may_be_left(found, synced, written)
    disk.power_cut()
    assert disk.read("/file") == found


def test_torn_sectors_are_damaged_in_what_was_not_synced_only() -> None:
    synced = b"a" * 700

    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", synced)
        write_fully(files, files.open("/file", os.O_WRONLY), b"b" * 1000, 700)

    contents = [tree["/file"] for tree in after_cut(write, faults=DiskFaults(torn_sector=0.3))]
    assert all(content[:700] == synced for content in contents)
    assert any({*content[700:1024]} - {*b"b\0"} for content in contents), "no bit was flipped"
    contents = [tree["/file"] for tree in after_cut(write)]
    assert not any({*content[700:]} - {*b"b\0"} for content in contents)


# Names


def test_a_new_name_needs_a_sync_of_its_directory() -> None:
    def write(files: SimulatedFiles) -> None:
        write_file(files, "/file", b"x", durable=True)

    assert {tree.get("/file") for tree in after_cut(write)} == {None, b"x"}


def test_a_directory_takes_what_is_in_it_along() -> None:
    def write(files: SimulatedFiles) -> None:
        files.mkdir("/a/b")
        replace_file(files, "/a/b/file", b"x")

    assert {tuple(tree) for tree in after_cut(write)} == {(), ("/a/b/file",)}


def test_a_removed_file_may_come_back_with_what_was_synced() -> None:
    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", b"synced")
        files.unlink("/file")

    assert {tree.get("/file") for tree in after_cut(write)} == {None, b"synced"}


def test_a_rename_is_kept_or_lost_as_a_whole() -> None:
    def write(files: SimulatedFiles) -> None:
        replace_file(files, "/file", b"old")
        write_file(files, "/file.tmp", b"new", durable=True)
        files.rename("/file.tmp", "/file")

    trees = after_cut(write)
    for expected in (
        {"/file": b"old"},
        {"/file": b"old", "/file.tmp": b"new"},
        {"/file": b"new"},
    ):
        assert expected in trees
        trees = [tree for tree in trees if tree != expected]
    assert not trees


names = st.sampled_from("abcd")
name_changes = st.one_of(
    st.tuples(st.just("create"), names, names),
    st.tuples(st.just("unlink"), names, names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("sync"), names, names),
)


@settings(max_examples=400, deadline=None)
@given(steps=st.lists(name_changes, max_size=20), seed=st.integers(0, 1 << 30))
def test_the_changes_of_a_directory_that_are_there_are_the_first(
    steps: list[tuple[str, str, str]], seed: int
) -> None:
    disk = SimulatedDisk(Random(seed), directories=["/d"])
    files = disk.files()
    states: list[dict[str, bytes]] = [{}]
    for number, (step, name, other) in enumerate(steps):
        try:
            if step == "create":
                fd = files.open(f"/d/{name}", RW | os.O_EXCL)
                files.pwrite(fd, b"%d" % number, 0)
                files.fsync(fd)
            elif step == "unlink":
                files.unlink(f"/d/{name}")
            elif step == "rename":
                files.rename(f"/d/{name}", f"/d/{other}")
            else:
                files.sync_directory("/d")
                states.clear()
        except OSError:
            continue
        states.append(disk.tree())
    disk.power_cut()
    assert disk.tree() in states


# Lives


def test_the_power_goes_at_the_operation_that_was_named() -> None:
    disk = SimulatedDisk(Random(1))
    files = disk.files()
    disk.end_after_operations(3)
    with pytest.raises(PowerCut):
        write_file(files, "/file", b"x", durable=True)  # create, write, sync
    assert disk.operations == 2
    assert disk.is_cut
    for call in (
        lambda: files.listdir("/"),
        lambda: files.exists("/file"),
        lambda: files.mkdir("/d"),
        lambda: files.open("/file", RW),
        lambda: files.pread(1, 1, 0),
        lambda: files.fsync(1),
        lambda: files.rename("/file", "/other"),
    ):
        with pytest.raises(PowerCut):
            call()
    files.close(1)  # the garbage collector may do so
    disk.files().mkdir("/d")  # the new life has power
    assert not disk.is_cut


def test_a_kill_keeps_what_was_written() -> None:
    disk = SimulatedDisk(Random(1))
    files = disk.files()
    fd = files.open("/file", RW)
    files.pwrite(fd, b"unsynced", 0)
    disk.kill()
    with pytest.raises(PowerCut):
        files.pwrite(fd, b"x", 0)
    assert read_file(disk.files(), "/file") == b"unsynced"


def test_what_a_killed_node_wrote_may_be_lost_later() -> None:
    lost = set()
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed))
        write_file(disk.files(), "/file", b"unsynced")
        disk.kill()
        disk.files().mkdir("/d")
        disk.power_cut()
        lost.add("/file" not in disk.tree())
    assert lost == {False, True}


def test_descriptors_of_an_earlier_life_are_bad() -> None:
    disk = SimulatedDisk(Random(1))
    old = disk.files().open("/file", RW)
    disk.kill()
    files = disk.files()
    new = files.open("/file", RW)
    assert old != new
    for call in (
        lambda: files.pread(old, 1, 0),
        lambda: files.pwrite(old, b"x", 0),
        lambda: files.fsync(old),
        lambda: files.close(old),
    ):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_one_life_at_a_time() -> None:
    disk = SimulatedDisk(Random(1))
    disk.files()
    with pytest.raises(RuntimeError, match="still up"):
        disk.files()


@pytest.mark.parametrize("end", ["close", "kill", "power_cut"])
def test_a_lock_lasts_until_its_descriptor_closes_or_the_life_ends(end: str) -> None:
    disk = SimulatedDisk(Random(1))
    files = disk.files()
    fd = files.lock("/lock")
    other = files.open("/lock", RW)
    with pytest.raises(BlockingIOError):
        files.lock("/lock")
    files.close(other)
    with pytest.raises(BlockingIOError):
        files.lock("/lock")
    if end == "close":
        files.close(fd)
    else:
        getattr(disk, end)()
        files = disk.files()
    files.close(files.lock("/lock"))


# Determinism

RUN = """
import os
from random import Random
from tidelog.testing.simulation.disk import DiskFaults, SimulatedDisk
disk = SimulatedDisk(Random(7), faults=DiskFaults(0.05, 0.05, 0.2, 0.3, 0.2), directories=["/d"])
seen = []
for life in range(20):
    files = disk.files()
    for n in range(30):
        try:
            fd = files.open(f"/d/{n * 7 % 11}", os.O_RDWR | os.O_CREAT)
            files.pwrite(fd, b"%d" % n * 500, n * 10)
            if n % 3 == 0: files.fsync(fd)
            if n % 5 == 0: files.sync_directory("/d")
            if n % 13 == 0: files.unlink(f"/d/{n % 11}")
            seen.append(",".join(files.listdir("/d")))
        except OSError as error:
            seen.append(str(error))
    disk.power_cut()
    seen.append(disk.digest())
print(disk.digest(), hash("x"), *seen, sep="|")
"""


def test_a_seed_gives_the_same_disk_in_every_process() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("|")
        for seed in ("1", "2")
    ]
    assert outputs[0][1] != outputs[1][1]
    assert outputs[0][0] == outputs[1][0]
    assert outputs[0][2:] == outputs[1][2:]


def test_listings_have_an_order_of_the_seeds_own() -> None:
    orders = set()
    for seed in SEEDS:
        files = SimulatedDisk(Random(seed)).files()
        for name in "abc":
            files.mkdir(f"/{name}")
        order = files.listdir("/")
        assert order == files.listdir("/")
        orders.add(tuple(order))
    assert len(orders) == 6


def test_trees_are_told_apart_by_names_and_contents() -> None:
    def digest(*changes: Callable[[SimulatedFiles], object]) -> str:
        disk = SimulatedDisk(Random(1))
        files = disk.files()
        for change in changes:
            change(files)
        return disk.digest()

    digests = [
        digest(),
        digest(lambda files: files.mkdir("/a")),
        digest(lambda files: write_file(files, "/a", b"")),
        digest(lambda files: write_file(files, "/a", b"x")),
        digest(lambda files: write_file(files, "/b", b"x")),
    ]
    assert len(set(digests)) == len(digests)
    assert digests[1] == digest(lambda files: files.mkdir("/a"))


def test_a_kill_at_an_operation_keeps_what_was_written_before_it() -> None:
    disk = SimulatedDisk(Random(1))
    files = disk.files()
    disk.end_after_operations(3, how="kill")
    with pytest.raises(PowerCut):
        write_file(files, "/file", b"x", durable=True)  # create, write, sync
    assert disk.was_killed
    assert disk.ended_at == "fsync of /file"
    assert disk.tree() == {"/file": b"x"}
    with pytest.raises(PowerCut):
        files.listdir("/")
    assert disk.files().listdir("/") == ["file"]
    assert not disk.was_killed
