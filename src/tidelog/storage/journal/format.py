"""How the journal lies on disk.

A journal is a sequence of files of which each starts with one header block and goes on with frames.
Positions are log sequence numbers (LSN): the address of a byte in the endless log that the files
are pieces of. A file's header says at which LSN the file begins; a frame repeats the LSN it was
written for. Files are used again for later pieces of that log, and what an earlier use left behind
can never pass for a frame, because its LSN belongs elsewhere.

A frame also carries the LSN at which its group began: one group is one write and one sync, and it
was started only when everything before it was on disk. So when a reader meets a place that holds
no frame, a later frame tells the two possible reasons apart: if its group began at or before that
place, the group was torn by a power cut and nobody was told that it was durable; if its group began
after it, the place was on disk once and has been damaged since.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.topic_partition import TopicPartition

HEADER_BLOCK_BYTES = 4096
FILE_MAGIC = b"TIDEJRNL"
FILE_VERSION = 1
FRAME_MAGIC = b"tide"

_FILE_HEADER = Struct(">8sIIQQQ")  # magic, crc, version, sequence, base LSN, size in bytes
_FILE_HEADER_CHECKED = Struct(">IQQQ")
_FRAME_START = Struct(">4sI")  # magic, crc
# size, kind, topic length, LSN, group LSN, topic id, partition, leader epoch, offset, next offset
_FRAME_CHECKED = Struct(">IBxHQQ16siiqq")
FRAME_HEADER_BYTES = _FRAME_START.size + _FRAME_CHECKED.size


class FrameKind(IntEnum):
    """What a frame says."""

    FILE_OPENED = 1  # the first frame of a file; offset = LSN where the file before it ended
    BATCHES = 2  # all record batches of a partition in [offset, next offset)
    TRUNCATION = 3  # the partition dropped everything from offset on
    DELETION = 4  # the partition was deleted
    SEGMENTS_SYNCED = 5  # the partition's segments hold all that frames before this one say
    RESTART = 6  # the partition dropped everything and goes on at offset
    CHECKPOINT = 7  # the segments of all partitions hold all that frames below LSN `offset` say


_KINDS = frozenset(FrameKind)


class FileHeader(NamedTuple):
    """The start of a journal file: which piece of the journal it is."""

    sequence: int
    base_lsn: int
    size_bytes: int

    def encode(self) -> bytes:
        checked = _FILE_HEADER_CHECKED.pack(FILE_VERSION, *self)
        return _FILE_HEADER.pack(FILE_MAGIC, crc32c(checked), FILE_VERSION, *self)

    @property
    def end_lsn(self) -> int:
        return self.base_lsn + self.size_bytes


class Frame(NamedTuple):
    """One decoded frame; `batches` is a view into the file."""

    kind: FrameKind
    lsn: int
    group_lsn: int
    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    offset: int
    next_offset: int
    batches: memoryview
    size_bytes: int


def decode_file_header(data: bytes | memoryview) -> FileHeader | None:
    """The header of a journal file, or None when these bytes are not one."""
    if len(data) < _FILE_HEADER.size:
        return None
    magic, crc, version, sequence, base_lsn, size_bytes = _FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC or version != FILE_VERSION:
        return None
    header = FileHeader(sequence, base_lsn, size_bytes)
    checked = _FILE_HEADER_CHECKED.pack(version, *header)
    return header if crc32c(checked) == crc else None


def encode_frame_header(
    kind: FrameKind,
    lsn: int,
    group_lsn: int,
    *,
    topic: bytes = b"",
    topic_id: bytes = bytes(16),
    partition: int = -1,
    leader_epoch: int = -1,
    offset: int = -1,
    next_offset: int = -1,
    batches: memoryview | bytes = b"",
) -> bytes:
    """All of a frame but its batches, which follow it; costs one pass of CRC-32C over them."""
    size_bytes = FRAME_HEADER_BYTES + len(topic) + len(batches)
    checked = (
        _FRAME_CHECKED.pack(
            size_bytes,
            kind,
            len(topic),
            lsn,
            group_lsn,
            topic_id,
            partition,
            leader_epoch,
            offset,
            next_offset,
        )
        + topic
    )
    crc = crc32c(checked)
    if batches:
        crc = crc32c(batches, crc)
    return _FRAME_START.pack(FRAME_MAGIC, crc) + checked


def frame_size_bytes(topic: bytes, batches_bytes: int) -> int:
    """How long a frame with these parts is."""
    return FRAME_HEADER_BYTES + len(topic) + batches_bytes


def decode_frame(view: memoryview, position: int, lsn: int) -> Frame | None:
    """The frame at `position`, which must have been written for `lsn`; None when there is none."""
    if position + FRAME_HEADER_BYTES > len(view):
        return None
    magic, crc = _FRAME_START.unpack_from(view, position)
    if magic != FRAME_MAGIC:
        return None
    checked_at = position + _FRAME_START.size
    (
        size_bytes,
        kind,
        topic_bytes,
        frame_lsn,
        group_lsn,
        topic_id,
        partition,
        leader_epoch,
        offset,
        next_offset,
    ) = _FRAME_CHECKED.unpack_from(view, checked_at)
    end = position + size_bytes
    topic_at = position + FRAME_HEADER_BYTES
    if frame_lsn != lsn or topic_at + topic_bytes > end or end > len(view):
        return None
    if kind not in _KINDS or crc32c(view[checked_at:end]) != crc:
        return None
    topic = str(view[topic_at : topic_at + topic_bytes], "utf-8")
    return Frame(
        FrameKind(kind),
        lsn,
        group_lsn,
        TopicPartition(topic, partition),
        topic_id,
        leader_epoch,
        offset,
        next_offset,
        view[topic_at + topic_bytes : end],
        size_bytes,
    )


def peek_frame_lsn(view: memoryview, position: int) -> int | None:
    """The LSN of the frame at `position` wherever it was written for; None when there is none."""
    if position + FRAME_HEADER_BYTES > len(view):
        return None
    lsn: int = _FRAME_CHECKED.unpack_from(view, position + _FRAME_START.size)[3]
    return None if decode_frame(view, position, lsn) is None else lsn


def journal_file_name(sequence: int) -> str:
    return f"{sequence:020d}.journal"


def parse_journal_file_name(name: str) -> int | None:
    """The sequence number in a journal file's name; None for other files."""
    stem, _, suffix = name.partition(".")
    if suffix != "journal" or len(stem) != 20 or not stem.isdecimal():
        return None
    return int(stem)
