"""Reads what a journal holds after a crash, and tells a torn end from damage.

Reading stops at the first place that holds no frame. That is the usual end of a journal, or a group
that a power cut tore before anybody was told it was durable. When a later frame proves that the
place was on disk once (see `journal_format`), acknowledged data may be lost and the reader refuses.
What lies before the last checkpoint does not matter: the segments have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.files import CorruptFileError
from tidelog.storage.journal.checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    read_journal_checkpoint,
)
from tidelog.storage.journal.format import (
    FRAME_MAGIC,
    HEADER_BLOCK_BYTES,
    FileHeader,
    Frame,
    FrameKind,
    decode_file_header,
    decode_frame,
    journal_file_name,
    parse_journal_file_name,
    peek_frame_lsn,
)
from tidelog.world.files import Files

WHAT_TO_DO = (
    "Restore the file from a copy, or, to give up what only the journal held, move the directory "
    f"'journal' and the file '{FILE_NAME}' out of the data directory and start again"
)


class MappedJournalFile(NamedTuple):
    """A journal file in memory: its frames' batches are views into the mapping."""

    path: Path
    header: FileHeader
    view: memoryview


class Hole(NamedTuple):
    """A place that holds no frame although frames follow it; `next_lsn` is the first of them."""

    path: Path
    position: int
    lsn: int
    next_lsn: int


class JournalContents(NamedTuple):
    """The frames that recovery replays, in order, and where the next journal may begin."""

    frames: list[Frame]
    replay_lsn: int
    next_sequence: int
    next_lsn: int


def read_journal(files: Files, directory: Path) -> JournalContents:
    """Reads the journal of a log directory. Raises CorruptFileError when it is damaged where it
    holds acknowledged records that the segments may lack."""
    journal = directory / "journal"
    checkpoint = read_journal_checkpoint(files, directory)
    sequences = list_journal_files(files, journal)
    if checkpoint is not None:
        _check_none_missing(journal, checkpoint, sequences)
        sequences = [s for s in sequences if s >= checkpoint.first_sequence]
    else:
        checkpoint = JournalCheckpoint(0, 0, 0)
    mapped = _map_journal_files(files, journal, sequences)
    frames, holes = scan_journal_files(mapped)
    replay_lsn = max(
        checkpoint.replay_lsn,
        *(frame.offset for frame in frames if frame.kind is FrameKind.CHECKPOINT),
        0,
    )
    frames = _cut_at_torn_group(frames, holes, replay_lsn)
    return JournalContents(
        [frame for frame in frames if frame.lsn >= replay_lsn],
        replay_lsn,
        *read_journal_end(files, directory),
    )


def read_journal_end(files: Files, directory: Path) -> tuple[int, int]:
    """The sequence number and LSN at which the next journal may begin, without reading frames."""
    journal = directory / "journal"
    checkpoint = read_journal_checkpoint(files, directory) or JournalCheckpoint(0, 0, 0)
    sequences = list_journal_files(files, journal)
    mapped = _map_journal_files(files, journal, sequences)
    return (
        max([checkpoint.last_sequence, *sequences]) + 1,
        max([checkpoint.replay_lsn, *(file.header.end_lsn for file in mapped)]),
    )


def list_journal_files(files: Files, journal: Path) -> list[int]:
    """The sequence numbers of the files in a journal directory."""
    names = files.listdir(journal) if files.exists(journal) else []
    return sorted(s for name in names if (s := parse_journal_file_name(name)) is not None)


def map_journal_file(files: Files, path: Path, *, assumed_base_lsn: int = 0) -> MappedJournalFile:
    """Maps a journal file. With a damaged header its place in the journal is taken from its first
    frame, and failing that is `assumed_base_lsn`."""
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = files.fstat(fd).st_size
        view = memoryview(files.map(fd, size_bytes) if size_bytes else b"")
    finally:
        files.close(fd)
    header = decode_file_header(view)
    if header is None:
        sequence = parse_journal_file_name(path.name) or 0
        lsn = peek_frame_lsn(view, HEADER_BLOCK_BYTES)
        base_lsn = assumed_base_lsn if lsn is None else lsn - HEADER_BLOCK_BYTES
        header = FileHeader(sequence, base_lsn, size_bytes)
    return MappedJournalFile(path, header, view)


def scan_journal_files(mapped: list[MappedJournalFile]) -> tuple[list[Frame], list[Hole]]:
    """All frames of consecutive files, and the places between them that hold none."""
    frames: list[Frame] = []
    holes: list[Hole] = []
    end_lsn = -1  # where the journal has been read to; unknown before the first frame
    for file in mapped:
        base_lsn = file.header.base_lsn
        for frame in _frames_of(file):
            expected_lsn = end_lsn
            if frame.lsn == base_lsn + HEADER_BLOCK_BYTES:
                if frame.kind is FrameKind.FILE_OPENED:
                    # A write that failed before its sync left frames that were given up.
                    while frames and frames[-1].lsn >= frame.offset:
                        end_lsn = frames.pop().lsn
                    expected_lsn = frame.lsn if end_lsn in (-1, frame.offset) else end_lsn
            elif expected_lsn < base_lsn:
                expected_lsn = base_lsn + HEADER_BLOCK_BYTES
            if expected_lsn not in (-1, frame.lsn):
                holes.append(Hole(file.path, expected_lsn - base_lsn, expected_lsn, frame.lsn))
            frames.append(frame)
            end_lsn = frame.lsn + frame.size_bytes
    return frames, holes


def _frames_of(file: MappedJournalFile) -> Iterator[Frame]:
    """Every frame of a file, stepping over places that hold none."""
    view, base_lsn = file.view, file.header.base_lsn
    data = view.obj
    position = HEADER_BLOCK_BYTES
    while True:
        frame = decode_frame(view, position, base_lsn + position)
        if frame is not None:
            yield frame
            position += frame.size_bytes
            continue
        position = data.find(FRAME_MAGIC, position + 1)  # type: ignore[attr-defined]
        if position < 0:
            return


def _check_none_missing(journal: Path, checkpoint: JournalCheckpoint, sequences: list[int]) -> None:
    needed = range(checkpoint.first_sequence, checkpoint.last_sequence + 1)
    for sequence in sorted(set(needed) - set(sequences)):
        raise CorruptFileError(
            journal / journal_file_name(sequence),
            f"this journal file is missing and {FILE_NAME} says it is needed. {WHAT_TO_DO}",
        )


def _map_journal_files(
    files: Files, journal: Path, sequences: list[int]
) -> list[MappedJournalFile]:
    mapped: list[MappedJournalFile] = []
    end_lsn = 0
    for sequence in sequences:
        path = journal / journal_file_name(sequence)
        file = map_journal_file(files, path, assumed_base_lsn=end_lsn)
        if file.header.sequence != sequence:
            continue  # it was about to be used again, so nothing in it is needed
        mapped.append(file)
        end_lsn = file.header.end_lsn
    return mapped


def _cut_at_torn_group(frames: list[Frame], holes: list[Hole], replay_lsn: int) -> list[Frame]:
    for hole in holes:
        if hole.next_lsn <= replay_lsn:
            continue
        if any(frame.group_lsn > hole.lsn for frame in frames if frame.lsn >= hole.next_lsn):
            raise CorruptFileError(
                hole.path,
                f"the journal is damaged at byte {hole.position}: records that were acknowledged "
                f"stood there. {WHAT_TO_DO}",
            )
        return [frame for frame in frames if frame.lsn < hole.lsn]
    return frames
