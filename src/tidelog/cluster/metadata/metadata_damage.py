"""Tells damage in the metadata log from an end that a power cut tore.

Decisions that share a sync are one batch, which is on disk before the next one is written; only
the control records before it share its sync. So when two whole batches of decisions lie behind a
place that does not hold the batch of the next offset, that place was on disk once, and what stood
there was acknowledged. Cutting the log there would lose it silently.

This holds where the node is the only voter. A follower appends and syncs many batches at once; what
it has lost the other voters have, so its log is cut and it fetches the rest again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.protocol.control_records import Voter, VotersRecord, decode_control
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import (
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
)
from tidelog.protocol.records import decode_records
from tidelog.storage.files import CorruptFileError, read_file
from tidelog.storage.segment.file_names import LOG_SUFFIX, offset_of_file
from tidelog.world.files import Files

_BATCHES_THAT_PROVE_DAMAGE = 2
_MAGIC_BYTE = bytes((MAGIC,))


def refuse_damage(
    files: Files,
    directory: Path,
    start_offset: int,
    voters_at_start: Sequence[Voter],
    node_id: int,
    static_voter_ids: Sequence[int] = (),
) -> None:
    """Raises CorruptFileError when decisions from `start_offset` on have been damaged.

    To be called before the log is opened, which cuts it behind the first damaged batch.
    `voters_at_start` are those that the snapshot at `start_offset` names; `static_voter_ids` are
    those of the configuration, which count while the log names none.
    """
    voters = voters_at_start
    sound_end: tuple[Path, int] | None = None
    next_offset: int | None = None
    is_damaged = False
    batches = 0
    for path in _segment_files(files, directory, start_offset):
        content = read_file(files, path)
        base_offset = offset_of_file(path.name)
        if next_offset is not None and base_offset < next_offset and not content:
            continue  # the disk refused to roll, and the log went on in the segment before
        at = 0
        if not is_damaged and next_offset in (None, base_offset):
            sound_bytes, next_offset = _sound_part(content, base_offset)
            voters = _voters_named(content[:sound_bytes]) or voters
            sound_end = path, sound_bytes
            is_damaged = sound_bytes < len(content)
            at = sound_bytes + 1
        else:
            is_damaged = True
        if is_damaged:
            batches += sum(
                not header.is_control and header.next_offset > start_offset
                for header in _batches_anywhere(content, at)
            )
    voter_ids = [voter.voter_id for voter in voters] or [*static_voter_ids]
    is_alone = voter_ids == [node_id]
    if is_alone and sound_end is not None and batches >= _BATCHES_THAT_PROVE_DAMAGE:
        path, position = sound_end
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


def _sound_part(content: bytes, next_offset: int) -> tuple[int, int]:
    """Up to which byte, and to which offset, one whole batch follows the other."""
    at = 0
    while (header := _batch_at(content, at)) is not None and header.base_offset == next_offset:
        at += header.size_bytes
        next_offset = header.next_offset
    return at, next_offset


def _voters_named(content: bytes) -> list[Voter]:
    """The voters that whole batches name last; none if they name none."""
    voters: list[Voter] = []
    for at, header in iterate_headers(content):
        if header.is_control:
            batch = memoryview(content)[at : at + header.size_bytes]
            for record in decode_records(batch, header):
                control = decode_control(record)
                if isinstance(control, VotersRecord):
                    voters = control.voters
    return voters


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
