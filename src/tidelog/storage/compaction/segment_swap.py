"""How a compacted segment takes the place of the segments it was made from.

The files are renamed in three steps, each of which leaves a log that can be opened:

1. `.cleaned` -> `.swap`, the .log last: from then on the new segment counts;
2. the old segments -> `.deleted`, or away where the directory has no room for another name; of the
   one that has the new one's names only the .log;
3. `.swap` -> the final names, the .log first.

After a crash: a `.log.swap` says that step 1 was done, so the old segments in its range go and
step 3 follows. Other `.swap` files alone belong to step 1 when the `.log.cleaned` is still there
(they go), else to step 3 (they are renamed). Kafka renames in another order and may have several
new segments, of which a `.cleaned` one says that step 1 was not done at its offset and above.

On a full disk step 1 may be refused, and is undone then: up to its last rename by removing files,
after that by renaming the .log back or, where that is refused as well, by changing one byte of the
`.log.swap`, the format of its first batch, to what no batch has. Steps 2 and 3 are not refused: all
the names of step 3 are there before, as step 1 sees to the only one that a segment may do without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tidelog.protocol.record_batch import MAGIC_AT
from tidelog.storage.files import NO_SPACE, write_fully
from tidelog.storage.segment.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file,
    segment_path,
)
from tidelog.world.files import Files

_GIVEN_UP = b"\x7f"
_INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def begin_swap(files: Files, directory: Path, base_offset: int) -> None:
    """Step 1, made durable. Raises OSError; `undo_swap` has to follow then."""
    files.close(
        files.open(
            segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX),
            os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC,
        )
    )
    for suffix in (*_INDEX_SUFFIXES, LOG_SUFFIX):
        _rename(files, directory, base_offset, suffix + CLEANED_SUFFIX, suffix + SWAP_SUFFIX)
    files.sync_directory(directory)


def undo_swap(files: Files, directory: Path, base_offset: int) -> None:
    """Removes the `.cleaned` and `.swap` files of one segment, whichever exist. Raises OSError.

    Only for a segment whose place the old ones still have. What tells that step 1 was not done goes
    last: after a crash nothing that is left counts.
    """
    cleaned = segment_path(directory, base_offset, LOG_SUFFIX + CLEANED_SUFFIX)
    swap = segment_path(directory, base_offset, LOG_SUFFIX + SWAP_SUFFIX)
    if files.exists(swap):
        try:
            files.rename(swap, cleaned)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            _give_up(files, swap)
    for suffix in _INDEX_SUFFIXES:
        for stage in (SWAP_SUFFIX, CLEANED_SUFFIX):
            _unlink(files, segment_path(directory, base_offset, suffix + stage))
    for path in (cleaned, swap):
        _unlink(files, path)


def _give_up(files: Files, path: Path) -> None:
    fd = files.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        write_fully(files, fd, _GIVEN_UP, MAGIC_AT)
        files.fsync(fd)
    finally:
        files.close(fd)


def _is_given_up(files: Files, path: Path) -> bool:
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return files.pread(fd, len(_GIVEN_UP), MAGIC_AT) == _GIVEN_UP
    finally:
        files.close(fd)


def finish_swap(files: Files, directory: Path, base_offset: int) -> None:
    """Step 3. Raises OSError."""
    for suffix in (LOG_SUFFIX, *_INDEX_SUFFIXES):
        _rename(files, directory, base_offset, suffix + SWAP_SUFFIX, suffix)


def recover_swaps(
    files: Files, directory: Path, end_offset_of: Callable[[Path, int], int]
) -> list[str]:
    """Undoes or completes what a crash interrupted, and removes .deleted and .cleaned files.

    `end_offset_of(path, base_offset)` tells the offset after the last record of a segment file.
    Returns the names of segments whose swap was completed.
    """
    names = sorted(files.listdir(directory))
    given_up = [
        name
        for name in names
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and _is_given_up(files, directory / name)
    ]
    for name in given_up:
        undo_swap(files, directory, offset_of_file(name))
    if given_up:
        names = sorted(files.listdir(directory))
    # Kafka may leave any of a segment's files .cleaned, we only the .log and what has its base.
    undone_from = min(
        (offset_of_file(name) for name in names if name.endswith(CLEANED_SUFFIX)), default=None
    )
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    completed = []
    for name in swaps:
        base_offset = offset_of_file(name)
        if undone_from is not None and base_offset >= undone_from:
            # Before the .cleaned files: they are what tells that this step was not done.
            _unlink(files, directory / name)
        elif name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            end_offset = end_offset_of(directory / name, base_offset)
            for old in names:
                offset = offset_of_file(old)
                if not old.endswith(SEGMENT_SUFFIXES) or not base_offset <= offset < end_offset:
                    continue
                # A file of the same offset without its .swap is the new one, renamed already: a
                # power cut may keep a later rename and lose an earlier one.
                if offset != base_offset or old + SWAP_SUFFIX in swaps:
                    _unlink(files, directory / old)
            completed.append(name.removesuffix(SWAP_SUFFIX))
    for base_offset in sorted({offset_of_file(name) for name in swaps}):
        finish_swap(files, directory, base_offset)
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            _unlink(files, directory / name)
    return completed


def _rename(files: Files, directory: Path, base_offset: int, old: str, new: str) -> None:
    try:
        files.rename(
            segment_path(directory, base_offset, old), segment_path(directory, base_offset, new)
        )
    except FileNotFoundError:
        pass  # no aborted transactions, no file; or a step that was done already


def _unlink(files: Files, path: Path) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        pass
