"""Makes groups of appends durable: one write and one sync for everything that waits.

Runs on the journal's own worker. While one sync runs, the loop thread collects the next group.

A group's batches are already in the page cache of their segment files, so there are two ways to
make them durable. The journal way writes them a second time, to the journal, and syncs that: one
sync whatever the number of partitions, and no change of metadata. The direct way syncs the segment
files themselves: no second write, but a sync of each file that costs more because the file has
grown. A partition with at least `direct_sync_bytes` in one group goes the direct way (a quarter of
that when it is alone in the group), the others share the journal. Measured on ext4, 16 KB batches:
one log with 1 MB a group, direct 1.6 times the throughput at 0.9 of the CPU time; ten logs with
100 KB each, the journal 2.6 times at 0.8; ten logs with 800 KB each, about even at 0.85 for direct.

Recovery sees no difference. A direct sync covers every byte of the log that is not on disk yet, so
frames of earlier groups are no longer missing from the segments, and later frames come on top. Only
a truncation in the journal could cut what a later direct sync made durable; a SEGMENTS_SYNCED frame
after it, on disk before anybody is told, says that what came before it is settled.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from tidelog.storage.directories.partition_metadata import sync_topic_id
from tidelog.storage.files import NO_SPACE, OpenFile, write_fully
from tidelog.storage.flush import Flush
from tidelog.storage.journal.files import JournalFile, JournalFiles
from tidelog.storage.journal.format import (
    HEADER_BLOCK_BYTES,
    FrameKind,
    encode_frame_header,
    frame_size_bytes,
)
from tidelog.storage.journal.group import (
    Append,
    Completion,
    Fence,
    Item,
    JournaledLog,
    Mark,
    Sync,
    Synced,
    WrittenGroup,
)
from tidelog.world.files import Buffer, Files

_BUFFERS_MAX = 512  # of one pwritev; the kernel takes 1024


class JournalWriter:
    """Writes groups to the journal files; `write_group` is all that its thread calls.

    `written_lsn` is where the next frame goes. After a failed sync nothing is written any more
    (`error` says why): the kernel may have dropped what it could not write, so trying again could
    report success for data that is gone.
    """

    def __init__(
        self,
        files: Files,
        journal_files: JournalFiles,
        first_file: JournalFile,
        *,
        direct_sync_bytes: int,
        want_next_file: Callable[[], None],
    ) -> None:
        self._files = files
        self._journal_files = journal_files
        self._direct_sync_bytes = direct_sync_bytes
        self._want_next_file = want_next_file
        self._file: JournalFile | None = first_file
        self._position = HEADER_BLOCK_BYTES
        self._end_lsn = first_file.header.base_lsn
        self._group_lsn = 0
        self._asked_for_next = False
        self._gave_up_frames = False
        self._buffers: list[Buffer] = []
        self._buffers_at = HEADER_BLOCK_BYTES
        self.error: OSError | None = None
        self.disk_full = False
        self._open_file(first_file)

    @property
    def written_lsn(self) -> int:
        return self._end_lsn

    def write_group(self, items: list[Item]) -> WrittenGroup:
        """Makes a group durable and returns who is durable up to where; nothing after a failure."""
        if self.error is None:
            try:
                return self._write_group(items)
            except OSError as error:
                self.error = self.error or error
        return self._refuse(items, self.error)

    def give_up(self, items: list[Item], bug: BaseException) -> WrittenGroup:
        """`write_group` raised what is no failure of the disk: tells all who wait for the group.

        Whatever stops a group stops the journal, or later groups would leap over it.
        """
        self.error = self.error or OSError(errno.EIO, f"{type(bug).__name__}: {bug}")
        return self._refuse(items, self.error)

    def run_flush(self, state: JournaledLog, flush: Flush) -> None:
        """Runs a checkpoint's flush; any thread. After a failure nothing is reported durable."""
        with state.sync_lock:
            try:
                flush.run()
            except OSError as error:
                if state.removed and isinstance(error, FileNotFoundError):
                    return
                self.error = self.error or error
                raise

    def sync_identity(self, state: JournaledLog) -> None:
        """Makes durable that a new log exists and which topic it belongs to; any thread."""
        directory = state.log.directory
        sync_topic_id(self._files, directory)
        self._files.sync_directory(directory)
        self._files.sync_directory(directory.parent)
        state.identity_synced = True

    def _write_group(self, items: list[Item]) -> WrittenGroup:
        direct = self._choose_direct(items)
        fences: list[tuple[Fence, int]] = []
        self._gave_up_frames = False
        for item in items:
            if type(item) is Append:
                state = item.state
                if state not in direct and not self._add_append(item):
                    direct[state] = None
                state.unsynced[item.file.path] = item.file
            elif type(item) is Mark:
                if item.cut_file is not None and item.state in direct:
                    # A SEGMENTS_SYNCED frame must not come behind a truncation that is not yet
                    # carried out: it would settle that too.
                    del direct[item.state]
                    self._sync_directly({item.state: None})
                self._add_mark(item.kind, item.state, item.offset)
                if item.cut_file is not None:
                    assert item.state is not None
                    item.state.truncated = True
                    item.state.unsynced[item.cut_file.path] = item.cut_file
            elif type(item) is Sync:
                item.state.unsynced.update((file.path, file) for file in item.files)
                direct[item.state] = None
            elif type(item) is Synced:
                if item.generation == item.state.generation:
                    for path in item.paths:
                        item.state.unsynced.pop(path, None)
            else:
                fences.append((item, self._end_lsn))
        if self._buffers:
            self._sync_journal()
        if self._gave_up_frames:
            self._make_up_for_lost_frames(items, direct)
        if direct:
            self._sync_directly(direct)
        calls: list[Callable[[], None]] = [partial(fence.passed, lsn) for fence, lsn in fences]
        completions: dict[JournaledLog, Completion] = {}
        for item in items:
            if type(item) is Append or type(item) is Sync:
                completions[item.state] = (item.state, item.generation, item.next_offset)
            elif type(item) is Mark and item.done is not None:
                calls.append(partial(item.done, None))
        return WrittenGroup(list(completions.values()), calls)

    def _make_up_for_lost_frames(self, items: list[Item], direct: dict[JournaledLog, None]) -> None:
        """The journal could not take this group: its appends go the direct way, marks have none."""
        for item in items:
            if type(item) is Append:
                direct[item.state] = None
            elif type(item) is Mark:
                raise OSError(errno.ENOSPC, "the journal had no room for a mark")

    def _choose_direct(self, items: list[Item]) -> dict[JournaledLog, None]:
        sizes: dict[JournaledLog, int] = {}
        for item in items:
            if type(item) is Append:
                sizes[item.state] = sizes.get(item.state, 0) + len(item.batches)
        # Alone in its group, a log spares the others' share of the journal's sync as well.
        limit = self._direct_sync_bytes // (4 if len(sizes) == 1 else 1)
        return {
            state: None
            for state, size_bytes in sizes.items()
            if size_bytes >= limit and not state.log.has_gap_to_recover
        }

    def _add_append(self, append: Append) -> bool:
        state = append.state
        size_bytes = frame_size_bytes(state.topic, len(append.batches))
        if not self._make_room(size_bytes, for_mark=False):
            return False
        log = state.log
        self._add_frame(
            encode_frame_header(
                FrameKind.BATCHES,
                self._end_lsn,
                self._group_lsn,
                topic=state.topic,
                topic_id=log.topic_id,
                partition=log.topic_partition.partition,
                leader_epoch=append.leader_epoch,
                offset=append.offset,
                next_offset=append.next_offset,
                batches=append.batches,
            ),
            append.batches,
            size_bytes,
        )
        return True

    def _add_mark(self, kind: FrameKind, state: JournaledLog | None, offset: int) -> None:
        topic = b"" if state is None else state.topic
        size_bytes = frame_size_bytes(topic, 0)
        if not self._make_room(size_bytes, for_mark=True):
            raise OSError(errno.ENOSPC, "the journal had no room for a mark")
        header = encode_frame_header(
            kind,
            self._end_lsn,
            self._group_lsn,
            topic=topic,
            topic_id=bytes(16) if state is None else state.log.topic_id,
            partition=-1 if state is None else state.log.topic_partition.partition,
            offset=offset,
        )
        self._add_frame(header, b"", size_bytes)

    def _add_frame(self, header: bytes, batches: Buffer, size_bytes: int) -> None:
        self._buffers.append(header)
        if batches:
            self._buffers.append(batches)
        self._position += size_bytes
        self._end_lsn += size_bytes

    def _make_room(self, size_bytes: int, *, for_mark: bool) -> bool:
        """Sees that a frame fits into the file, going on to the next file when it does not."""
        file = self._file
        if file is not None:
            limit = file.header.size_bytes if for_mark else file.data_limit
            if self._position + size_bytes <= limit:
                return True
        if size_bytes > self._journal_files.frame_bytes_max:
            return False
        if self._buffers and not self._sync_journal():
            return False
        try:
            file = self._journal_files.take_next()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.disk_full = True
            # Marks may use the end of a file that has no room for batches.
            return (
                for_mark
                and self._file is not None
                and self._position + size_bytes <= self._file.header.size_bytes
            )
        self.disk_full = False
        self._open_file(file)
        return True

    def _open_file(self, file: JournalFile) -> None:
        previous_end_lsn = self._end_lsn
        self._file = file
        self._position = self._buffers_at = HEADER_BLOCK_BYTES
        self._end_lsn = self._group_lsn = file.header.base_lsn + HEADER_BLOCK_BYTES
        self._asked_for_next = False
        self._add_mark(FrameKind.FILE_OPENED, None, previous_end_lsn)

    def _sync_journal(self) -> bool:
        """Writes and syncs the collected frames; False when the disk was too full to write them.

        Frames that went out in part are given up, and the file with them: the next file says where
        the journal went on.
        """
        assert self._file is not None
        fd = self._file.file.fd
        buffers, self._buffers = self._buffers, []
        start = self._buffers_at
        self._buffers_at = self._position
        try:
            self._write_fully(fd, buffers, start)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._end_lsn -= self._position - start
            self._file = None
            self._gave_up_frames = self.disk_full = True
            return False
        self._files.fdatasync(fd)
        self._group_lsn = self._end_lsn
        if not self._asked_for_next and self._position * 2 > self._file.header.size_bytes:
            self._asked_for_next = True
            self._want_next_file()
        return True

    def _write_fully(self, fd: int, buffers: list[Buffer], position: int) -> None:
        for first in range(0, len(buffers), _BUFFERS_MAX):
            chunk = buffers[first : first + _BUFFERS_MAX]
            size_bytes = sum(map(len, chunk))
            written = self._files.pwritev(fd, chunk, position)
            if written < size_bytes:
                rest = memoryview(b"".join(chunk))[written:]
                write_fully(self._files, fd, rest, position + written)
            position += size_bytes

    def _sync_directly(self, states: dict[JournaledLog, None]) -> None:
        settled = False
        for state in states:
            try:
                with state.sync_lock:
                    if self.error is not None:
                        raise self.error
                    self._sync_segments(state)
            except FileNotFoundError:
                if not state.removed:
                    raise
                continue
            if state.truncated:
                self._add_mark(FrameKind.SEGMENTS_SYNCED, state, -1)
                settled = True
        if settled:
            if not self._sync_journal():
                raise OSError(errno.ENOSPC, "the journal had no room for a mark")
            for state in states:
                state.truncated = False

    def _sync_segments(self, state: JournaledLog) -> None:
        unsynced, state.unsynced = state.unsynced, {}
        file = None
        for file in unsynced.values():
            self._sync_open_file(file)
        if state.truncated or state.directory_synced_for is not file:
            self._files.sync_directory(state.log.directory)
            state.directory_synced_for = file
        if not state.identity_synced:
            self.sync_identity(state)

    def _sync_open_file(self, file: OpenFile) -> None:
        try:
            if file.fd >= 0:
                self._files.fdatasync(file.fd)
        except OSError:
            if file.fd >= 0:
                raise
            # Closed meanwhile: the log was deleted, and nobody waits for it any more.

    def _refuse(self, items: list[Item], error: OSError | None) -> WrittenGroup:
        calls: list[Callable[[], None]] = []
        for item in items:
            if type(item) is Mark and item.done is not None:
                calls.append(partial(item.done, error))
            elif type(item) is Fence:
                calls.append(partial(item.passed, -1))
        return WrittenGroup([], calls)
