"""A lake's table of plain Parquet files with a log of our own.

    ROOT/date=2026-11-05/part-….parquet           committed files, for any Parquet reader
    ROOT/_tidelog/log/00000000000000000007.json   one commit: files added and removed, transactions
    ROOT/_tidelog/log/00000000000000000000.checkpoint.json    the whole state at some version
    ROOT/_tidelog/staging/part-….parquet          written by a task, not committed
    ROOT/_tidelog/removed/part-….parquet          replaced by a compaction, for readers still at it

A commit is decided when its log file appears, which happens once: the file is linked under the next
version's name, and a second writer finds the name taken. Then its files are moved to their places
by renames. Whoever commits next, or looks at the table to write, first finishes the moves of the
newest version; readers that follow the log find a file in whichever of its three places it is.

A reader that knows nothing of the log and lists the folders sees committed files only, each whole.
While the files of a commit are being moved it may see some and not yet others, and for the moment
of a compaction rows of both the old and the new files.
"""

import base64
import os
import time
import uuid
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.errors import CommitConflict, LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.table import OWN_FOLDER, Change, Format, Snapshot, check_written
from tidelog.spark.lake.writing import DEFAULT_TARGET_FILE_BYTES, Target

T = TypeVar("T")

LOG_FOLDER = f"{OWN_FOLDER}/log"

_CHECKPOINT_INTERVAL = 25
# Log files that a slow reader may still want after the checkpoint that made them unneeded.
_LOG_FILES_KEPT = 100
_LOAD_TRIES_MAX = 10


class _Commit(msgspec.Struct, omit_defaults=True):
    operation: str
    time_ms: int
    add: list[DataFile] = []
    remove: list[str] = []
    transactions: dict[str, int] = {}


class _State(msgspec.Struct):
    version: int
    identity: str
    files: dict[str, DataFile]
    transactions: dict[str, int]
    arrow_schema: str
    partition_columns: tuple[str, ...]
    is_archive: bool


class ParquetTable:
    """One table of plain Parquet files."""

    format: Format = "parquet"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = root / LOG_FOLDER
        self._staging = root / OWN_FOLDER / "staging"
        self._removed = root / OWN_FOLDER / "removed"
        self._state = self._load()
        self.identity = self._state.identity
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._state.arrow_schema)))
        self.layout = Layout(schema, self._state.partition_columns, self._state.is_archive)

    @classmethod
    def create(cls, root: Path, layout: Layout) -> "ParquetTable":
        """Make the table; one that somebody else makes at the same time is opened."""
        log = root / LOG_FOLDER
        log.mkdir(parents=True, exist_ok=True)
        state = _State(
            version=0,
            identity=str(uuid.uuid4()),
            files={},
            transactions={},
            arrow_schema=base64.b64encode(layout.schema.serialize().to_pybytes()).decode(),
            partition_columns=layout.partition_columns,
            is_archive=layout.is_archive,
        )
        _write_once(log / _checkpoint_name(0), msgspec.json.encode(state))
        return cls(root)

    def snapshot(self) -> Snapshot:
        self._catch_up()
        state = self._state
        return Snapshot(state.version, tuple(state.files.values()), dict(state.transactions).get)

    def commit(self, base: Snapshot, change: Change) -> None:
        # Only the newest version may have files that are not moved yet.
        self.finish_moves()
        if self._state.version != base.version:
            raise CommitConflict(f"{self.root}: another writer was first")
        check_written(self.target(), change)
        made = _Commit(
            operation=change.operation,
            time_ms=int(time.time() * 1000),
            add=list(change.adds),
            remove=[file.path for file in change.removes],
            transactions=dict(change.transactions),
        )
        version = base.version + 1
        if not _write_once(self._log / _commit_name(version), msgspec.json.encode(made)):
            raise CommitConflict(f"{self.root}: another writer was first")
        self._apply(made)
        self._move(made)
        if version % _CHECKPOINT_INTERVAL == 0:
            self._checkpoint()

    def target(self, target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES) -> Target:
        return Target(self._staging, True, self.layout, target_file_bytes)

    def place(self, file: DataFile) -> Path:
        places = [self.root / file.path, self._staging / file.name, self._removed / file.name]
        # A file that is being moved may be missed in both places once.
        for place in places * 2:
            if place.exists():
                return place
        raise LakeError(f"{places[0]} is in the log of the lake, and missing")

    def vacuum(self, grace_s: float) -> int:
        self.finish_moves()
        oldest_s = time.time() - grace_s
        count = 0
        unneeded = [*self._staging.glob("*"), *self._removed.glob("*"), *self._log.glob(".*")]
        # One that was committed since is needed, however old it is.
        needed = {file.name for file in self.snapshot().files}
        for path in unneeded:
            try:
                if path.name not in needed and path.stat().st_mtime <= oldest_s:
                    path.unlink()
                    count += 1
            except FileNotFoundError:
                continue
        return count

    def finish_moves(self) -> None:
        """Move the files of the newest commit, if whoever made it died before."""
        self._catch_up()
        path = self._log / _commit_name(self._state.version)
        if path.exists():
            self._move(_decode(path, _Commit))

    def _move(self, commit: _Commit) -> None:
        for file in commit.add:
            place = self.root / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            _rename(self._staging / file.name, place)
        if commit.remove:
            self._removed.mkdir(exist_ok=True)
        for gone in commit.remove:
            hidden = self._removed / gone.rpartition("/")[2]
            if _rename(self.root / gone, hidden):
                # Vacuuming counts from the moment it was replaced.
                os.utime(hidden)

    def _apply(self, commit: _Commit) -> None:
        state = self._state
        for path in commit.remove:
            state.files.pop(path, None)
        for file in commit.add:
            state.files[file.path] = file
        state.transactions.update(commit.transactions)
        state.version += 1

    def _catch_up(self) -> None:
        newest = self._versions()[0]
        while self._state.version < newest:
            try:
                commit = _decode(self._log / _commit_name(self._state.version + 1), _Commit)
            except FileNotFoundError:
                self._state = self._load()
            else:
                self._apply(commit)

    def _load(self) -> _State:
        for tries_left in reversed(range(_LOAD_TRIES_MAX)):
            newest, checkpoint = self._versions()
            try:
                self._state = _decode(self._log / _checkpoint_name(checkpoint), _State)
                for version in range(checkpoint + 1, newest + 1):
                    self._apply(_decode(self._log / _commit_name(version), _Commit))
            except FileNotFoundError:
                # A writer has cleaned the log meanwhile.
                if not tries_left:
                    raise
            else:
                return self._state
        raise AssertionError("the last try returns or raises")

    def _versions(self) -> tuple[int, int]:
        """The newest version, and the newest that has a checkpoint."""
        try:
            names = os.listdir(self._log)
        except FileNotFoundError:
            names = []
        checkpoints = [int(name[:20]) for name in names if name.endswith(".checkpoint.json")]
        if not checkpoints:
            raise LakeError(f"{self.root} holds no table of Tidelog: {self._log} has no log")
        versions = [int(name[:20]) for name in names if _is_commit(name)]
        return max(versions + checkpoints), max(checkpoints)

    def _checkpoint(self) -> None:
        version = self._state.version
        _write_once(self._log / _checkpoint_name(version), msgspec.json.encode(self._state))
        for name in os.listdir(self._log):
            is_old = name[:20].isdigit() and int(name[:20]) < version - _LOG_FILES_KEPT
            if is_old:
                (self._log / name).unlink(missing_ok=True)


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


def _checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.json"


def _is_commit(name: str) -> bool:
    return len(name) == len(_commit_name(0)) and name[:20].isdigit() and name.endswith(".json")


def _decode(path: Path, kind: type[T]) -> T:
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise LakeError(f"{path} is damaged: {error}. Restore it from a copy") from error


def _write_once(path: Path, content: bytes) -> bool:
    """Make a file appear whole and durable under its name; False if the name is taken."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _rename(source: Path, destination: Path) -> bool:
    """Move a file; False if it is not there, because it was moved before."""
    try:
        os.rename(source, destination)
    except FileNotFoundError:
        return False
    return True
