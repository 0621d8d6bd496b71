"""Checks the files of a data directory, a partition or a single file, without changing them.

An error is something that a reader or a recovery would stumble over. A warning is repaired when
the log is opened: indexes are made anew, and after an unclean shutdown a torn tail is cut.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tidelog.protocol.record_batch import compute_crc
from tidelog.storage.directories.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.storage.directories.meta_properties import read_meta_properties
from tidelog.storage.directories.offset_checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from tidelog.storage.directories.partition_directory import parse_partition_directory
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.storage.directories.partition_metadata import read_topic_id
from tidelog.storage.dump import dump_offset_index, dump_time_index, read_batches
from tidelog.storage.files import CorruptFileError
from tidelog.storage.journal.reader import read_journal
from tidelog.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS
from tidelog.storage.leader_epochs import LeaderEpochCache
from tidelog.storage.producer_state.snapshot import read_snapshot
from tidelog.storage.segment.transaction_index import TransactionIndex
from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles

_real_files = OsFiles()


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Finding(NamedTuple):
    """Something wrong with a file; `position` is the byte, where that is known."""

    path: Path
    severity: Severity
    problem: str
    position: int | None = None

    def __str__(self) -> str:
        where = "" if self.position is None else f" at byte {self.position}"
        return f"{self.severity}: {self.path}{where}: {self.problem}"


def verify(path: Path, *, files: Files = _real_files) -> Iterator[Finding]:
    """Checks a data directory, a partition directory or one file. Raises OSError."""
    if not stat.S_ISDIR(files.stat(path).st_mode):
        yield from verify_file(path, files)
    elif files.exists(path / META_PROPERTIES):
        yield from verify_data_directory(path, files)
    else:
        yield from verify_partition(path, files)


def verify_data_directory(path: Path, files: Files = _real_files) -> Iterator[Finding]:
    """The checkpoint files, the journal, and every partition."""
    yield from _corruption(lambda: read_meta_properties(files, path))
    ends: dict[str, int] = {}
    for name in sorted(files.listdir(path)):
        topic_partition = parse_partition_directory(name)
        if topic_partition is not None:
            findings, ends[name] = _verify_partition(path / name, files)
            yield from findings
    yield from _corruption(lambda: read_journal(files, path))
    for checkpoint in (LOG_START_OFFSETS, HIGH_WATERMARKS):
        yield from _corruption(partial(read_offsets, files, path / checkpoint))
    try:
        recovery_points = read_offsets(files, path / RECOVERY_POINTS)
    except CorruptFileError as error:
        yield Finding(error.path, Severity.ERROR, error.problem)
        return
    for topic_partition, offset in recovery_points.items():
        end = ends.get(str(topic_partition))
        if end is not None and end < offset:
            yield Finding(
                path / str(topic_partition),
                Severity.ERROR,
                f"the log ends at offset {end}, but everything below {offset} was on disk",
            )
    if not files.exists(path / CLEAN_SHUTDOWN):
        yield Finding(
            path, Severity.WARNING, "in use, or not shut down cleanly: the next start recovers it"
        )


def verify_partition(path: Path, files: Files = _real_files) -> Iterator[Finding]:
    """All files of one partition."""
    yield from _verify_partition(path, files)[0]


def verify_file(path: Path, files: Files = _real_files) -> Iterator[Finding]:
    """One file, as far as it can be checked alone."""
    match path.suffix:
        case ".log":
            yield from _verify_segment(path, files)[0]
        case ".snapshot":
            yield from _corruption(lambda: read_snapshot(files, path), Severity.WARNING)
        case ".txnindex":
            index = TransactionIndex(files, path, _base_offset(path), exists=True)
            yield from _corruption(index.check, Severity.WARNING)
        case ".journal":
            yield from _corruption(lambda: read_journal(files, path.parent.parent))
        case ".index" | ".timeindex":
            yield from _verify_index(path, files)


def _verify_partition(path: Path, files: Files) -> tuple[list[Finding], int]:
    names = sorted(files.listdir(path))
    findings: list[Finding] = []
    end_offset = 0
    for name in names:
        if name.endswith(".log") and name[:-4].isdecimal():
            base_offset = int(name[:-4])
            if base_offset < end_offset:
                findings.append(
                    Finding(
                        path / name,
                        Severity.ERROR,
                        f"begins below offset {end_offset}, where the segment before it ends",
                    )
                )
            problems, end_offset = _verify_segment(path / name, files)
            findings += problems
        elif name == PARTITION_METADATA:
            findings += _corruption(lambda: read_topic_id(files, path))
        elif name == LEADER_EPOCHS:
            findings += _corruption(lambda: LeaderEpochCache.load(files, path), Severity.WARNING)
        else:
            findings += verify_file(path / name, files)
    return findings, end_offset


def _verify_segment(path: Path, files: Files) -> tuple[list[Finding], int]:
    """The findings of a segment and its indexes, and the offset after its last good batch."""
    findings: list[Finding] = []
    end_offset = _base_offset(path)
    positions: dict[int, int] = {}
    for position, header, batch in read_batches(path, files):
        problem = None
        if header is None:
            problem = "no batch can be read here"
        elif compute_crc(batch, 0, len(batch)) != header.crc:
            problem = f"the batch at offset {header.base_offset} has a wrong CRC"
        elif header.base_offset < end_offset:
            problem = f"offset {header.base_offset} comes after {end_offset - 1}"
        if problem is not None or header is None:
            findings.append(Finding(path, Severity.ERROR, problem or "", position))
            break
        end_offset = header.next_offset
        positions[position] = header.last_offset
    size_bytes = max(positions, default=-1)
    index = path.with_suffix(".index")
    if files.exists(index):
        for row in dump_offset_index(index, files):
            position = int(str(row["position"]))
            if position not in positions or positions[position] < int(str(row["offset"])):
                if position <= size_bytes:
                    text = f"the entry of offset {row['offset']} points to {position}: no batch"
                    findings.append(Finding(index, Severity.WARNING, text))
                break
    return findings, end_offset


def _verify_index(path: Path, files: Files) -> Iterator[Finding]:
    """The entries of an index ascend."""
    key = "offset" if path.suffix == ".index" else "timestamp_ms"
    rows = list(dump_offset_index(path, files) if key == "offset" else dump_time_index(path, files))
    for before, after in pairwise(int(str(row[key])) for row in rows):
        if after <= before:
            yield Finding(path, Severity.WARNING, f"{key} {after} comes after {before}")
            return


def _corruption(
    check: Callable[[], object], severity: Severity = Severity.ERROR
) -> Iterator[Finding]:
    try:
        check()
    except CorruptFileError as error:
        yield Finding(error.path, severity, error.problem)


def _base_offset(path: Path) -> int:
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0
