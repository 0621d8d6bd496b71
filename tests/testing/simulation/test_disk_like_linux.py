"""Without faults, the simulated disk answers every call as the operating system does."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.testing.simulation.disk import SimulatedDisk
from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles

CLOSED = 999_999  # no descriptor has this number
NAMES = ("a", "b", "d", "e")
FLAGS = (
    os.O_RDONLY,
    os.O_WRONLY,
    os.O_RDWR,
    os.O_RDWR | os.O_CREAT,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT | os.O_EXCL,
    os.O_RDWR | os.O_CREAT | os.O_APPEND,
    os.O_RDONLY | os.O_DIRECTORY,
)

names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
in_one_directory = st.lists(st.sampled_from(NAMES), max_size=1).flatmap(
    lambda parents: st.tuples(
        *[st.sampled_from(NAMES).map(lambda name: "/".join([*parents, name])) for _ in range(2)]
    )
)
handles = st.integers(0, 4)
positions = st.integers(-1, 1500)
sizes = st.integers(-1, 1500)
contents = st.builds(
    lambda byte, size: bytes([byte]) * size, st.integers(1, 255), st.integers(0, 700)
)

operations = st.one_of(
    st.tuples(st.just("open"), names, st.sampled_from(FLAGS)),
    st.tuples(st.just("open"), st.sampled_from(NAMES), st.just(os.O_RDWR | os.O_CREAT)),
    st.tuples(st.just("close"), handles),
    st.tuples(st.just("pread"), handles, sizes, positions),
    st.tuples(st.just("pwrite"), handles, contents, positions),
    st.tuples(st.just("pwrite"), handles, contents, positions),
    # pwritev takes -1 for the file's own position, of which a Files has none.
    st.tuples(st.just("pwritev"), handles, st.lists(contents, max_size=3), st.integers(0, 1500)),
    st.tuples(st.just("ftruncate"), handles, sizes),
    st.tuples(st.just("fallocate"), handles, positions, sizes),
    st.tuples(st.just("fsync"), handles),
    st.tuples(st.just("fdatasync"), handles),
    st.tuples(st.just("fstat"), handles),
    st.tuples(st.just("map"), handles, st.integers(1, 1500)),
    st.tuples(st.just("stat"), names),
    st.tuples(st.just("exists"), names),
    st.tuples(st.just("listdir"), names),
    st.tuples(st.just("mkdir"), names),
    st.tuples(st.just("rmdir"), names),
    st.tuples(st.just("rename"), in_one_directory),
    st.tuples(st.just("unlink"), names),
    st.tuples(st.just("sync_directory"), names),
    st.tuples(st.just("lock"), names),
)


class Caller:
    """Makes the calls on one of the two filesystems; knows its descriptors by their place."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        self._fds: list[int] = []

    def call(self, name: str, *arguments: object) -> object:
        """The result in a form that can be compared, or the error's number."""
        try:
            return self._call(name, *arguments)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        except ValueError:
            return "ValueError"

    def _call(self, name: str, *arguments: object) -> object:
        first, *others = arguments
        function: Callable[..., object] = getattr(self._files, name)
        if name == "rename":
            assert isinstance(first, tuple)
            return function(*[f"{self._root}/{path}" for path in first])
        target = f"{self._root}/{first}" if isinstance(first, str) else self._fd(first)
        result = function(target, *others)
        if name == "close":
            assert isinstance(first, int)
            self._fds[first] = CLOSED  # the kernel gives the number to the next one
        if name in ("open", "lock"):
            assert isinstance(result, int)
            self._fds.append(result)
            return "open"
        if isinstance(result, os.stat_result):
            is_directory = stat.S_ISDIR(result.st_mode)
            return is_directory, stat.S_ISREG(result.st_mode), is_directory or result.st_size
        if isinstance(result, mmap.mmap):
            return bytes(result)
        if name == "listdir":
            assert isinstance(result, list)
            return sorted(result)
        return result

    def _fd(self, index: object) -> int:
        assert isinstance(index, int)
        return self._fds[index] if index < len(self._fds) else CLOSED

    def close_all(self) -> None:
        for index in range(len(self._fds)):
            self.call("close", index)


def contents_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@settings(max_examples=300, deadline=None)
@given(calls=st.lists(operations, max_size=40), seed=st.integers(0, 3))
def test_the_simulated_disk_answers_as_the_operating_system_does(
    calls: list[tuple[str, object]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = SimulatedDisk(Random(seed), directories=["/disk"])
        real, simulated = Caller(OsFiles(), directory), Caller(disk.files(), "/disk")
        try:
            for call in calls:
                expected, found = real.call(*call), simulated.call(*call)
                assert found == expected, call
        finally:
            real.close_all()
        assert disk.tree() == {
            f"/disk/{path}": content for path, content in contents_of(Path(directory)).items()
        }
        assert disk.used_bytes >= sum(map(len, disk.tree().values()))
        simulated.close_all()
        assert disk.used_bytes == sum(map(len, disk.tree().values()))


@pytest.mark.parametrize("name", ["x" * 256, "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 128])
def test_names_have_the_length_that_linux_allows(tmp_path: Path, name: str) -> None:
    disk = SimulatedDisk(Random(0), directories=[tmp_path])
    for files in (OsFiles(), disk.files()):
        with pytest.raises(OSError) as caught:
            files.open(tmp_path / name, os.O_RDWR | os.O_CREAT)
        assert caught.value.errno == errno.ENAMETOOLONG
        files.close(files.open(tmp_path / name[1:], os.O_RDWR | os.O_CREAT))


def test_a_write_takes_as_many_buffers_as_linux_does(tmp_path: Path) -> None:
    disk = SimulatedDisk(Random(0), directories=[tmp_path])
    for files in (OsFiles(), disk.files()):
        fd = files.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        assert files.pwritev(fd, [b"x"] * 1024, 0) == 1024
        with pytest.raises(OSError) as caught:
            files.pwritev(fd, [b"x"] * 1025, 0)
        assert caught.value.errno == errno.EINVAL
        files.close(fd)


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("file", "directory", errno.EISDIR),
        ("directory", "file", errno.ENOTDIR),
        ("directory", "full", errno.ENOTEMPTY),
        ("missing", "file", errno.ENOENT),
        ("file", "missing/file", errno.ENOENT),
        ("file", "file/file", errno.ENOTDIR),
        ("file", "file", None),
        ("full", "full", None),
        ("full", "directory", None),
        ("file", "other", None),
    ],
)
def test_renames(tmp_path: Path, source: str, target: str, code: int | None) -> None:
    disk = SimulatedDisk(Random(0), directories=[tmp_path])
    for files in (OsFiles(), disk.files()):
        files.mkdir(tmp_path / "directory")
        files.mkdir(tmp_path / "full" / "directory")
        files.close(files.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
        found = None
        try:
            files.rename(tmp_path / source, tmp_path / target)
        except OSError as error:
            found = error.errno
        assert found == code
        if code is None:
            assert files.exists(tmp_path / target)
            assert files.exists(tmp_path / source) == (source == target)


def test_times_and_modes_are_those_of_the_clock_and_the_kind() -> None:
    now_ms = 5000
    disk = SimulatedDisk(Random(0), now_ms=lambda: now_ms)
    files = disk.files()
    files.mkdir("/d")
    fd = files.open("/d/file", os.O_RDWR | os.O_CREAT)
    now_ms = 7250
    files.pwrite(fd, b"abc", 0)
    status = files.fstat(fd)
    assert stat.S_ISREG(status.st_mode)
    assert (status.st_size, status.st_mtime, status.st_mtime_ns) == (3, 7.25, 7_250_000_000)
    assert files.stat("/d/file") == status
    status = files.stat("/d")
    assert stat.S_ISDIR(status.st_mode)
    assert status.st_mtime == 5.0
