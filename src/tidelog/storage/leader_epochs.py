"""Where each leader epoch of a partition began.

Followers and consumers compare these to find the offset up to which two replicas agree. The file
`leader-epoch-checkpoint` has Kafka's text format: version 0, the number of entries, then one line
`epoch start_offset` each.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.files import CorruptFileError, read_file, replace_file
from tidelog.world.files import Files

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Epochs and start offsets, both strictly ascending, kept in step with the file.

    Only what the start of the log has left behind may still be in the file: it goes with the next
    change, and whoever loads the file looks at the start. So a log can let go of its oldest records
    when the disk is full.
    """

    __slots__ = ("_files", "entries", "latest_epoch", "path", "synced_version", "version")

    def __init__(self, files: Files, directory: Path, entries: list[EpochEntry]) -> None:
        self.path = directory / FILE_NAME
        self._files = files
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self.version = 0  # counts the changes of the file
        self.synced_version = 0  # the one that a flush made durable

    @classmethod
    def load(cls, files: Files, directory: Path) -> LeaderEpochCache:
        """Reads the file (no file: no epochs). Raises CorruptFileError."""
        path = directory / FILE_NAME
        try:
            content = read_file(files, path)
        except FileNotFoundError:
            return cls(files, directory, [])
        return cls(files, directory, _parse(path, content))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; contradicting older entries go.

        Raises OSError, and then nothing has changed: an append that is tried again assigns again.
        """
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return
        kept = [e for e in entries if e.epoch < epoch and e.start_offset < start_offset]
        assigned = [*kept, EpochEntry(epoch, start_offset)]
        self._write(assigned)
        self._take(assigned)

    def truncate_to(self, end_offset: int) -> None:
        """Forgets epochs that begin at `end_offset` or later (the log was truncated to it)."""
        if self.entries and self.entries[-1].start_offset >= end_offset:
            self.replace([e for e in self.entries if e.start_offset < end_offset])

    def advance_start(self, start_offset: int) -> None:
        """Forgets epochs that ended before `start_offset` (the log starts there now)."""
        entries = self.entries
        slot = bisect_right(entries, start_offset, key=itemgetter(1)) - 1
        if slot < 0 or entries[slot].start_offset == start_offset == entries[0].start_offset:
            return
        self._take([EpochEntry(entries[slot].epoch, start_offset), *entries[slot + 1 :]])

    def clear(self) -> None:
        if self.entries:
            self.replace([])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1 when it is before all that is known."""
        slot = bisect_right(self.entries, offset, key=itemgetter(1)) - 1
        return self.entries[slot].epoch if slot >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch` and where it ended; (-1, -1) when undefined."""
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        slot = bisect_right(entries, epoch, key=itemgetter(0))
        known_epoch = entries[slot - 1].epoch if slot else epoch
        return known_epoch, entries[slot].start_offset

    def replace(self, entries: list[EpochEntry]) -> None:
        """Takes other entries, in memory and in the file."""
        self._take(entries)
        self._write(entries)

    def _take(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    def _write(self, entries: list[EpochEntry]) -> None:
        """It is not synced here: flushes do that, off the loop thread."""
        lines = ["0", str(len(entries))]
        lines += [f"{entry.epoch} {entry.start_offset}" for entry in entries]
        replace_file(self._files, self.path, ("\n".join(lines) + "\n").encode(), durable=False)
        self.version += 1


def _parse(path: Path, content: bytes) -> list[EpochEntry]:
    try:
        version, count, *rows = content.decode("ascii").split("\n")
        if int(version) != 0:
            raise CorruptFileError(path, f"unknown version {version!r}")
        entries = [EpochEntry(*map(int, row.split(" "))) for row in rows if row]
        if len(entries) != int(count):
            raise CorruptFileError(path, f"{count} entries promised, {len(entries)} found")
    except (ValueError, TypeError) as error:
        raise CorruptFileError(path, f"not a leader epoch checkpoint ({error})") from error
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            raise CorruptFileError(path, f"{after} does not follow {before}")
    return entries
