"""Tells damage in the metadata log from an end that a power cut tore.

Decisions that share a sync are one batch, which is on disk before the next one is written; only
the control records before it share its sync. So when two whole batches of decisions lie behind a
place that holds no batch, that place was on disk once, and what stood there was acknowledged.
Cutting the log there would lose it silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import MAGIC, MAGIC_AT, BatchHeader, check_crc, read_header
from tidelog.storage.files import CorruptFileError, read_file
from tidelog.storage.segment.file_names import LOG_SUFFIX, offset_of_file
from tidelog.world.files import Files

_BATCHES_THAT_PROVE_DAMAGE = 2
_MAGIC_BYTE = bytes((MAGIC,))


def refuse_damage(files: Files, directory: Path, start_offset: int) -> None:
    """Raises CorruptFileError when decisions from `start_offset` on have been damaged.

    To be called before the log is opened, which cuts it behind the first damaged batch.
    """
    damaged: tuple[Path, int] | None = None
    batches = 0
    for path in _segment_files(files, directory, start_offset):
        content = read_file(files, path)
        sound_bytes = _sound_bytes(content)
        at = 0
        if damaged is None and sound_bytes < len(content):
            damaged = path, sound_bytes
            at = sound_bytes + 1
        if damaged is not None:
            batches += sum(
                not header.is_control and header.next_offset > start_offset
                for header in _batches_anywhere(content, at)
            )
    if damaged is not None and batches >= _BATCHES_THAT_PROVE_DAMAGE:
        path, position = damaged
        raise CorruptFileError(
            path,
            f"it is damaged at byte {position}: metadata that was acknowledged stood there. "
            f"Restore the file from a copy, or, to give up all metadata from there on, cut it to "
            f"{position} bytes and move later files of its kind away",
        )


def _segment_files(files: Files, directory: Path, start_offset: int) -> list[Path]:
    """The segments that hold offsets from `start_offset` on."""
    bases = sorted(
        offset_of_file(name)
        for name in files.listdir(directory)
        if name.endswith(LOG_SUFFIX) and offset_of_file(name) >= 0
    )
    first = max((base for base in bases if base <= start_offset), default=0)
    return [directory / f"{base:020d}{LOG_SUFFIX}" for base in bases if base >= first]


def _sound_bytes(content: bytes) -> int:
    """Up to where the content is one whole batch after the other."""
    at = 0
    while (header := _batch_at(content, at)) is not None:
        at += header.size_bytes
    return at


def _batches_anywhere(content: bytes, at: int) -> Iterator[BatchHeader]:
    """Every whole batch from `at` on, whatever lies between them."""
    while True:
        magic_at = content.find(_MAGIC_BYTE, at + MAGIC_AT)
        if magic_at < 0:
            return
        at = magic_at - MAGIC_AT
        header = _batch_at(content, at)
        if header is None:
            at += 1
        else:
            yield header
            at += header.size_bytes


def _batch_at(content: bytes, at: int) -> BatchHeader | None:
    try:
        header = read_header(content, at)
        if at + header.size_bytes > len(content):
            return None
        check_crc(content, at, header.size_bytes)
    except ApiError:
        return None
    return header
