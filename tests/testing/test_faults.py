"""The faulty filesystem keeps what was synced, may lose the rest, and fails where it is told."""

import errno
import os
from pathlib import Path

import pytest

from tidelog.storage.files import replace_file, write_file, write_fully
from tidelog.testing.faults import SECTOR_BYTES, FaultyFiles, PowerCut

SEEDS = range(40)


def after_cut(files: FaultyFiles, tmp_path: Path, name: str, seed: int) -> bytes | None:
    """What a cut now would leave of a file; the files go on as if it had not come."""
    path = files.power_cut(tmp_path / "after", seed).root / name
    files.cut_after = None
    return path.read_bytes() if path.exists() else None


def test_what_was_synced_survives(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    replace_file(files, files.root / "file", b"synced")
    assert {after_cut(files, tmp_path, "file", seed) for seed in SEEDS} == {b"synced"}


def test_writes_since_the_sync_are_dropped_kept_or_torn(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    path = files.root / "file"
    write_file(files, path, b"a" * 4 * SECTOR_BYTES, durable=True)
    files.sync_directory(files.root)
    fd = files.open(path, os.O_WRONLY)
    write_fully(files, fd, b"b" * 4 * SECTOR_BYTES, 0)
    contents = {after_cut(files, tmp_path, "file", seed) for seed in SEEDS}
    assert b"a" * 4 * SECTOR_BYTES in contents
    assert b"b" * 4 * SECTOR_BYTES in contents
    assert any(content and {*content} == {*b"ab"} for content in contents)
    files.fdatasync(fd)
    assert after_cut(files, tmp_path, "file", 0) == b"b" * 4 * SECTOR_BYTES


def test_a_new_name_needs_a_sync_of_its_directory(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    write_file(files, files.root / "file", b"x", durable=True)
    assert {after_cut(files, tmp_path, "file", seed) for seed in SEEDS} == {None, b"x"}
    files.sync_directory(files.root)
    assert {after_cut(files, tmp_path, "file", seed) for seed in SEEDS} == {b"x"}


def test_a_rename_is_kept_or_lost_as_a_whole(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    replace_file(files, files.root / "file", b"old")
    replace_file(files, files.root / "file", b"new", durable=False)
    seen = {after_cut(files, tmp_path, "file", seed) for seed in SEEDS}
    assert b"old" in seen
    assert seen <= {b"old", b"new", b"", b"ne", b"n", b"\0", b"\0\0", b"\0\0\0"}


def test_changes_of_a_directory_keep_their_order(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    for name in "abc":
        write_file(files, files.root / name, b"x", durable=True)
    for seed in SEEDS:
        names = sorted(os.listdir(files.power_cut(tmp_path / "after", seed).root))
        assert names == ["a", "b", "c"][: len(names)]


def test_nothing_happens_after_the_cut(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    files.cut_after = 2
    with pytest.raises(PowerCut):
        write_file(files, files.root / "file", b"x", durable=True)  # create, write, sync
    with pytest.raises(PowerCut):
        files.listdir(files.root)
    assert files.operations == 2


def test_a_full_disk_writes_what_fits_and_heals(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    fd = files.open(files.root / "file", os.O_RDWR | os.O_CREAT)
    files.space_bytes = 10
    assert files.pwrite(fd, b"x" * 16, 0) == 10
    with pytest.raises(OSError, match="No space") as caught:
        files.pwrite(fd, b"x", 10)
    assert caught.value.errno == errno.ENOSPC
    assert files.pwrite(fd, b"yy", 0) == 2  # overwriting needs no room
    with pytest.raises(OSError, match="No space"):
        files.fallocate(fd, 0, 20)
    files.ftruncate(fd, 4)
    assert files.pwrite(fd, b"x" * 6, 4) == 6
    files.heal()
    assert files.pwrite(fd, b"x" * 6, 10) == 6
    files.close(fd)
    assert files.used_bytes == 16
    files.unlink(files.root / "file")
    assert files.used_bytes == 0


def test_a_path_fails_and_the_rest_works(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    files.mkdir(files.root / "bad")
    files.fail(files.root / "bad")
    with pytest.raises(OSError, match="Input/output"):
        write_file(files, files.root / "bad" / "file", b"x")
    write_file(files, files.root / "file", b"x")
    files.fail(files.root / "file", only="sync")
    fd = files.open(files.root / "file", os.O_RDWR)
    files.pwrite(fd, b"y", 0)
    with pytest.raises(OSError, match="Input/output"):
        files.fdatasync(fd)
    files.close(fd)


def test_a_directory_that_cannot_grow_takes_only_names_that_it_has_or_had(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    for name in ("a", "b", "gone"):
        write_file(files, files.root / name, b"x")
    files.unlink(files.root / "gone")
    files.has_room_for_names = False
    with pytest.raises(OSError, match="No space"):
        write_file(files, files.root / "new", b"")
    with pytest.raises(OSError, match="No space"):
        files.mkdir(files.root / "new")
    with pytest.raises(OSError, match="No space"):
        files.rename(files.root / "a", files.root / "new")
    files.rename(files.root / "a", files.root / "gone")
    files.rename(files.root / "gone", files.root / "b")
    assert files.listdir(files.root) == ["b"]
    files.heal()
    write_file(files, files.root / "new", b"")
