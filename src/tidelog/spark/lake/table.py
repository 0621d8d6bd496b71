"""What a lake's table is, whichever format keeps its log: snapshots and commits.

A commit names the snapshot it was decided on and fails if the table has moved on, so decisions
(which ranges are fresh, which files to replace) are always made on what they change.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tidelog.spark.lake.coverage import VersionOf
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.errors import CommitConflict, LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.writing import DEFAULT_TARGET_FILE_BYTES, Target

Format = Literal["delta", "parquet"]
FORMATS: tuple[Format, ...] = ("delta", "parquet")

# Spark, Hive and Delta pass over folders whose names begin with an underscore.
OWN_FOLDER = "_tidelog"

_COMMIT_TRIES_MAX = 50
_COMMIT_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table: its files and its application transactions."""

    version: int
    files: tuple[DataFile, ...]
    transaction: VersionOf


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does. All of it becomes visible at once."""

    operation: str
    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)

    @property
    def changes_data(self) -> bool:
        """Whether rows come or go; a compaction only moves them."""
        return not self.removes


class Table(Protocol):
    """A table whose rows are in Parquet files and whose versions are in a log."""

    format: Format
    root: Path
    layout: Layout
    identity: str
    """What tells this table from any other, wherever it is moved to."""

    def snapshot(self) -> Snapshot:
        """The newest version."""

    def commit(self, base: Snapshot, change: Change) -> None:
        """Make the version after `base`; CommitConflict if there is one already.

        LakeError if a file that is to be added is gone, as one that was vacuumed meanwhile.
        """

    def target(self, target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES) -> Target:
        """Where files are written before they are committed."""

    def place(self, file: DataFile) -> Path:
        """Where a committed file is now."""

    def finish_moves(self) -> None:
        """Bring all committed files to their final places."""

    def vacuum(self, grace_s: float) -> int:
        """Delete files that no version needs and that are older than the grace time; how many."""


def check_written(target: Target, change: Change) -> None:
    """LakeError if a file that a commit would add is not where its task left it.

    A vacuum whose grace time is shorter than a batch takes it away. A commit that names it all the
    same would cover records that nobody has.
    """
    for file in change.adds:
        if not target.place(file.path).exists():
            raise LakeError(
                f"{target.place(file.path)} is gone before its commit: the lake was vacuumed with "
                "a grace time that is shorter than a batch takes. Run it again with a longer one"
            )


def commit_with_retries(table: Table, decide: Callable[[Snapshot], Change | None]) -> bool:
    """Decide on the newest snapshot and commit, anew whenever another writer was first.

    `decide` gives None if there is nothing to do; the answer is whether something was committed.
    """
    for tries_left in reversed(range(_COMMIT_TRIES_MAX)):
        base = table.snapshot()
        change = decide(base)
        if change is None:
            table.finish_moves()
            return False
        try:
            table.commit(base, change)
        except CommitConflict:
            if not tries_left:
                raise
            time.sleep(_COMMIT_PAUSE_S)
        else:
            return True
    raise AssertionError("the last try returns or raises")
