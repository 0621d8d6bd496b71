"""One of the directories that hold partitions: a disk that may fail while the others serve."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID, format_uuid, random_uuid
from tidelog.storage.directories.meta_properties import (
    FILE_NAME,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from tidelog.world import World
from tidelog.world.files import Files

if TYPE_CHECKING:
    from tidelog.storage.log import Log

LOCK_FILE_NAME = ".lock"


class LogDirectoryError(TidelogError):
    """A log directory cannot be used; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A log directory as an operator sees it. Sizes are -1 when the disk does not tell."""

    path: Path
    directory_id: bytes
    online: bool
    error: str | None
    total_bytes: int
    usable_bytes: int


class DirectoryLock:
    """Keeps a second node out of a log directory for as long as this one lives."""

    def __init__(self, files: Files, directory: Path) -> None:
        path = directory / LOCK_FILE_NAME
        self._files = files
        try:
            self._fd = files.lock(path)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LogDirectoryError(
                f"{directory} is in use by another node (it holds the lock on {path}). "
                "Stop that node, or give this one a data directory of its own"
            ) from error

    def release(self) -> None:
        self._files.close(self._fd)


class LogDirectory:
    """A log directory with its identity, its logs and what keeps them durable.

    `error` says why the directory is offline; None while it is online.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self.directory_id = ZERO_UUID
        self.lock: DirectoryLock | None = None
        self.error: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.strays: list[Path] = []  # what lies in the directory and is not the store's

    @property
    def online(self) -> bool:
        return self.error is None

    def state(self) -> DirectoryState:
        total_bytes = usable_bytes = -1
        if self.online:
            try:
                total_bytes, usable_bytes = self._files.disk_usage(self.path)
            except OSError:
                pass  # the sizes are only for show; a disk that failed is found out by writes
        return DirectoryState(
            self.path, self.directory_id, self.online, self.error, total_bytes, usable_bytes
        )

    def release(self) -> None:
        """Lets other nodes take the directory."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None


def claim_directories(
    world: World, paths: Sequence[Path], node_id: int, cluster_id: str | None
) -> tuple[list[LogDirectory], str]:
    """Locks the directories and checks that they belong to this node of this cluster.

    New directories get their identity; one on a disk that fails is offline. Returns the cluster id
    too: the one given, that of the directories, or a new one. Raises LogDirectoryError.
    """
    files = world.files
    directories = [LogDirectory(files, path) for path in paths]
    try:
        metas = {directory: _claim(files, directory) for directory in directories}
        cluster_id = _check_owner(metas, node_id, cluster_id)
        cluster_id = cluster_id or format_uuid(random_uuid(world.random))
        for directory, meta in metas.items():
            if directory.online:
                _identify(world, directory, meta, node_id, cluster_id)
        _check_distinct(directories)
    except BaseException:
        for directory in directories:
            directory.release()
        raise
    return directories, cluster_id


def _claim(files: Files, directory: LogDirectory) -> MetaProperties | None:
    try:
        files.mkdir(directory.path)
        directory.lock = DirectoryLock(files, directory.path)
        return read_meta_properties(files, directory.path)
    except OSError as error:
        directory.error = str(error)
        return None


def _identify(
    world: World,
    directory: LogDirectory,
    meta: MetaProperties | None,
    node_id: int,
    cluster_id: str,
) -> None:
    if meta is not None and meta.directory_id is not None:
        directory.directory_id = meta.directory_id
        return
    directory.directory_id = random_uuid(world.random)
    try:
        write_meta_properties(
            world.files, directory.path, MetaProperties(cluster_id, node_id, directory.directory_id)
        )
    except OSError as error:
        directory.error = str(error)


def _check_owner(
    metas: Mapping[LogDirectory, MetaProperties | None], node_id: int, cluster_id: str | None
) -> str | None:
    for directory, meta in metas.items():
        if meta is None:
            continue
        path = directory.path
        cluster_id = cluster_id or meta.cluster_id
        if meta.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"{path} belongs to cluster {meta.cluster_id}, not to {cluster_id} "
                f"({path / FILE_NAME}). Use another data directory or the right cluster id"
            )
        if meta.node_id != node_id:
            raise LogDirectoryError(
                f"{path} belongs to node {meta.node_id}, not to node {node_id} "
                f"({path / FILE_NAME}). Use another data directory or the right node id"
            )
    return cluster_id


def _check_distinct(directories: Sequence[LogDirectory]) -> None:
    seen: dict[bytes, Path] = {}
    for directory in directories:
        if not directory.online:
            continue
        other = seen.setdefault(directory.directory_id, directory.path)
        if other != directory.path:
            raise LogDirectoryError(
                f"{directory.path} and {other} have the same directory.id in {FILE_NAME}: one is a "
                "copy of the other. Take one of them out of the configuration"
            )
