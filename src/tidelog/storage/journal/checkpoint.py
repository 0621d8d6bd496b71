"""The small file beside a journal that says which of its files must be there.

Frames alone cannot tell that whole files are missing from the journal's start or end. This file
can: it names the first and the last file that recovery needs, and the LSN from which it replays.
A checkpoint frame in the journal repeats that LSN, so losing this file loses no data.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from tidelog.storage.files import read_file, replace_file
from tidelog.world.files import Files

FILE_NAME = "journal-checkpoint"
_VERSION = 0


class JournalCheckpoint(NamedTuple):
    """Recovery replays frames from `replay_lsn` on, out of files first to last."""

    replay_lsn: int
    first_sequence: int
    last_sequence: int


def write_journal_checkpoint(files: Files, directory: Path, checkpoint: JournalCheckpoint) -> None:
    """Replaces the checkpoint of the log directory; durable when it returns."""
    text = f"{_VERSION}\n{' '.join(map(str, checkpoint))}\n"
    data = f"{text}{crc32c(text.encode()):08x}\n".encode()
    replace_file(files, directory / FILE_NAME, data)


def read_journal_checkpoint(files: Files, directory: Path) -> JournalCheckpoint | None:
    """The checkpoint; None when there is none or it is damaged (then the frames must do)."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    lines = read_file(files, path).split(b"\n")
    if len(lines) != 4 or lines[0] != str(_VERSION).encode():
        return None
    text = lines[0] + b"\n" + lines[1] + b"\n"
    if lines[2] != b"%08x" % crc32c(text):
        return None
    replay_lsn, first_sequence, last_sequence = map(int, lines[1].split())
    return JournalCheckpoint(replay_lsn, first_sequence, last_sequence)
