"""The files of one journal: made ready ahead of use, used once around, used again.

A sync of a file whose blocks are allocated and written needs no change of filesystem metadata,
which is most of what a sync costs. So a file is filled with zeros when it is made, and a file that
no frame in it needs any more becomes a spare and is used again under a later number:

    0007.journal  --release-->  0007.spare  --new header, sync, rename-->  0012.journal

What a spare holds does not matter; a `.journal` file always has a valid header that is on disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.storage.files import OpenFile, write_fully
from tidelog.storage.journal.checkpoint import JournalCheckpoint, write_journal_checkpoint
from tidelog.storage.journal.format import (
    HEADER_BLOCK_BYTES,
    FileHeader,
    journal_file_name,
    parse_journal_file_name,
)
from tidelog.world import World

SPARE_SUFFIX = ".spare"
NEW_SUFFIX = ".new"
_ZEROS = bytes(1 << 20)


class JournalFile:
    """One file of the journal that is open for writing."""

    __slots__ = ("file", "header")

    def __init__(self, header: FileHeader, file: OpenFile) -> None:
        self.header = header
        self.file = file

    @property
    def data_limit(self) -> int:
        """Batches end here; the little rest is kept for marks, which must go in on a full disk."""
        return self.header.size_bytes - self.header.size_bytes // 32


class JournalFiles:
    """Hands out journal files in order and takes back those that are not needed any more.

    `directory` is the log directory. Called by the writer thread (`take_next`) and the maintenance
    thread (`prepare_next`, `release_below`); a lock keeps them apart.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        *,
        file_bytes: int,
        spares_max: int,
        next_sequence: int,
        next_lsn: int,
    ) -> None:
        self._files = world.files
        self._directory = directory
        self._path = directory / "journal"
        self._file_bytes = file_bytes
        self._spares_max = spares_max
        self._next_sequence = next_sequence
        self._next_lsn = next_lsn
        self._lock = world.make_lock()
        self._used: list[FileHeader] = []
        self._ready: JournalFile | None = None
        self._replay_lsn = next_lsn
        self._spares: list[Path] = []

    @property
    def replay_lsn(self) -> int:
        return self._replay_lsn

    @property
    def frame_bytes_max(self) -> int:
        """Frames above this go into no file."""
        return self._file_bytes - self._file_bytes // 32 - 2 * HEADER_BLOCK_BYTES

    def start(self, first_file_bytes: int) -> JournalFile:
        """Turns all files that are there into spares and hands out the first file.

        Only for a journal of which the segments hold everything. Without a spare the first file is
        a small one, so that a node starts without writing megabytes of zeros.
        """
        with self._lock:
            self._files.mkdir(self._path)
            self._files.sync_directory(self._directory)
            self._record()  # from here on recovery needs none of the files that are there
            for name in sorted(self._files.listdir(self._path)):
                path = self._path / name
                if self._next_lsn == 0 or name.endswith(NEW_SUFFIX):
                    # Half made; or nothing says how far the journal went, so that frames in these
                    # files could pass for new ones.
                    self._files.unlink(path)
                elif name.endswith(SPARE_SUFFIX):
                    self._keep_or_remove(path)
                elif parse_journal_file_name(name) is not None:
                    self._retire(path)
            file = self._make(first_file_bytes, reuse=self._pop_spare())
            self._used.append(file.header)
            self._record()
            return file

    def prepare_next(self) -> None:
        """Makes the next file ready, so that `take_next` does not have to."""
        with self._lock:
            if self._ready is None:
                self._ready = self._make(self._file_bytes, reuse=self._pop_spare())
                self._record()

    def take_next(self) -> JournalFile:
        """The next file to write. Raises OSError when the disk has no room for one."""
        with self._lock:
            file, self._ready = self._ready, None
            if file is None:
                file = self._make(self._file_bytes, reuse=self._pop_spare())
            self._used.append(file.header)
            self._record()
            return file

    def release_below(self, lsn: int) -> None:
        """A checkpoint covers every frame below `lsn`: files that end there are free again."""
        with self._lock:
            self._replay_lsn = max(self._replay_lsn, lsn)
            keep = [header for header in self._used[:-1] if header.end_lsn > lsn]
            keep += self._used[-1:]
            free = [header for header in self._used if header not in keep]
            self._used = keep
            self._record()
            for header in free:
                self._retire(self._path / journal_file_name(header.sequence))

    def close(self) -> None:
        """Forgets the file that was made ready; descriptors close with their last reference."""
        with self._lock:
            self._ready = None

    def _record(self) -> None:
        first = self._used[0].sequence if self._used else self._next_sequence
        write_journal_checkpoint(
            self._files,
            self._directory,
            JournalCheckpoint(self._replay_lsn, first, self._next_sequence - 1),
        )

    def _pop_spare(self) -> Path | None:
        return self._spares.pop() if self._spares else None

    def _retire(self, path: Path) -> None:
        spare = path.with_suffix(SPARE_SUFFIX)
        self._files.rename(path, spare)
        self._keep_or_remove(spare)

    def _keep_or_remove(self, spare: Path) -> None:
        size_bytes = self._files.stat(spare).st_size
        if len(self._spares) < self._spares_max and size_bytes == self._file_bytes:
            self._spares.append(spare)
        else:
            self._files.unlink(spare)

    def _make(self, size_bytes: int, *, reuse: Path | None) -> JournalFile:
        sequence = self._next_sequence
        path = self._path / journal_file_name(sequence)
        source = self._path / f"{sequence:020d}{NEW_SUFFIX}" if reuse is None else reuse
        try:
            file = OpenFile(self._files, source, os.O_RDWR | os.O_CREAT)
            if reuse is None:
                self._fill_with_zeros(file.fd, size_bytes)
            else:
                size_bytes = self._files.fstat(file.fd).st_size
            header = FileHeader(sequence, self._next_lsn, size_bytes)
            write_fully(self._files, file.fd, header.encode(), 0)
            self._files.fsync(file.fd)
            # The spare's old name must be gone for good before its new one counts, and the
            # directory keeps changes in order: one sync after the rename does both.
            self._files.rename(source, path)
            self._files.sync_directory(self._path)
        except OSError:
            self._remove_quietly(source)
            raise
        self._next_sequence = sequence + 1
        self._next_lsn = header.end_lsn
        return JournalFile(header, file)

    def _fill_with_zeros(self, fd: int, size_bytes: int) -> None:
        self._files.fallocate(fd, 0, size_bytes)
        for position in range(0, size_bytes, len(_ZEROS)):
            chunk = memoryview(_ZEROS)[: min(len(_ZEROS), size_bytes - position)]
            write_fully(self._files, fd, chunk, position)

    def _remove_quietly(self, path: Path) -> None:
        """Gives back the space of a half-made file; the error that led here is what counts."""
        try:
            self._files.unlink(path)
        except OSError:
            pass
