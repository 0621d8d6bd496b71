"""Small disks of their own for the nodes: they can be filled, and they can lose power.

With loop devices a disk is an ext4 in a file, and `cut_power` shuts that filesystem down as
xfstests do (EXT4_IOC_SHUTDOWN without a flush of its journal): whatever was not synced is gone when
it is mounted again. Without them it is a tmpfs, which cannot lose power.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.cluster import namespaces

_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = 2
# The kernel writes nothing back by itself meanwhile: what is not synced is not on the disk.
_EXT4_OPTIONS = "loop,commit=3600"
_BALLAST = "ballast"
_SIZE_BYTES = 384 << 20


class Disk:
    """A filesystem at `path`, with `size_bytes` in all."""

    def __init__(self, path: Path, size_bytes: int, *, image: Path | None) -> None:
        self.path = path
        self._image = image
        self._size_bytes = size_bytes
        self._is_off = False
        path.mkdir(parents=True)
        if image is not None:
            with image.open("wb") as file:
                file.truncate(size_bytes)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self._mount()

    @property
    def can_lose_power(self) -> bool:
        return self._image is not None

    def fill_up(self, leave_bytes: int) -> None:
        """Take all room but this, unless it has no power."""
        if self._is_off:
            return
        state = os.statvfs(self.path)
        size = state.f_bavail * state.f_frsize - leave_bytes
        if size <= 0:
            return
        ballast = os.open(self._ballast, os.O_CREAT | os.O_WRONLY)
        try:
            os.posix_fallocate(ballast, 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise  # what was free a moment ago is taken: it is as full as it can be
        finally:
            os.close(ballast)

    def make_room(self) -> None:
        if not self._is_off:
            self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Lose what is not synced. Whoever has files open gets errors from now on."""
        self._is_off = True
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(folder)

    def power_on(self) -> None:
        """Mount it again after a power cut, with room; nobody may have files of it open."""
        _run("umount", str(self.path))
        self._mount()
        self._is_off = False
        self.make_room()

    def empty(self) -> None:
        """A new disk in its place."""
        _run("umount", str(self.path))
        if self._image is not None:
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()

    @property
    def _ballast(self) -> Path:
        return self.path / _BALLAST

    def _mount(self) -> None:
        if self._image is not None:
            _run("mount", "-o", _EXT4_OPTIONS, str(self._image), str(self.path))
        else:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "disk", str(self.path))


def make_disks(folder: Path, nodes: Iterable[int]) -> dict[int, Disk]:
    """A disk for each node, below `folder`; those that can lose power, where that can be had.

    The images are in memory: a sync costs little, and a power cut is as real.
    """
    images = folder / "images" if namespaces.has_loop_devices() else None
    if images is not None:
        images.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "images", str(images))
    return {
        node: Disk(
            folder / f"disk-{node}",
            _SIZE_BYTES,
            image=None if images is None else images / f"disk-{node}.ext4",
        )
        for node in nodes
    }


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
