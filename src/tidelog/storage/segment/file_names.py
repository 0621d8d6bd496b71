"""How the files of a segment are named: by the offset of its first record, and a suffix."""

from __future__ import annotations

from pathlib import Path

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

SEGMENT_SUFFIXES = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

_OFFSET_DIGITS = 20


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_of_file(name: str) -> int:
    """The offset that a file is named by; -1 for other files."""
    digits = name[:_OFFSET_DIGITS]
    return int(digits) if len(digits) == _OFFSET_DIGITS and digits.isdecimal() else -1
