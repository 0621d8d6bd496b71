"""Which voters and which kraft.version the log has named, and from which offset on.

A change of voters counts as soon as it is in the log, long before it is committed, and is taken
back when the log is truncated below it; so the history keeps the offset of each change. Voters of
the configuration (kraft.version 0) count until the log names others.
"""

from __future__ import annotations

from functools import lru_cache

from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    MetadataLogControl,
    VotersRecord,
    decode_control,
)
from tidelog.protocol.record_batch import Buffer, iterate_headers
from tidelog.protocol.records import decode_records
from tidelog.raft.raft_log import RaftLog
from tidelog.raft.voters import ReplicaKey, VoterSet

BEFORE_LOG = -1
"""The offset of what the bootstrap snapshot says, which is before the first record."""
_LOAD_BYTES = 1 << 20


class VoterHistory:
    """Offsets rise strictly in both lists."""

    __slots__ = ("_static", "_versions", "_voters")

    def __init__(self, static_voters: VoterSet) -> None:
        self._static = static_voters
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    # The present

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1] if self._voters else self._static

    @property
    def voters_offset(self) -> int | None:
        """The offset of the record that names the voters; None when no record does."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    def is_electable(self, key: ReplicaKey, high_watermark: int | None) -> bool:
        """Whether a replica may be elected: it is a voter, or the newest record, which is not known
        to be committed, has removed it. The others may need its log to get that committed, and
        then nobody else can be elected."""
        if self.voters.is_voter(key):
            return True
        if not self._voters:
            return False
        if high_watermark is not None and self._voters[-1][0] < high_watermark:
            return False
        before = self._voters[-2][1] if len(self._voters) > 1 else self._static
        return before.is_voter(key)

    # The past

    def voters_at(self, offset: int) -> VoterSet | None:
        """The voters that the log named up to and including `offset`."""
        found = [voters for at, voters in self._voters if at <= offset]
        return found[-1] if found else None

    def voters_since(self, offset: int) -> list[VoterSet]:
        """The voters at `offset`, if the log names some, and all that it names later."""
        at_offset = self.voters_at(offset)
        later = [voters for at, voters in self._voters if at > offset]
        return later if at_offset is None else [at_offset, *later]

    def kraft_version_at(self, offset: int) -> int:
        found = [version for at, version in self._versions if at <= offset]
        return found[-1] if found else 0

    # Changes

    def load(self, log: RaftLog) -> None:
        """Read everything again: the newest snapshot, then the log from there."""
        self._voters.clear()
        self._versions.clear()
        snapshot_id = log.newest_snapshot_id
        offset = log.start_offset
        if snapshot_id is not None:
            offset = max(offset, snapshot_id.offset)
            position: int | None = 0
            while position is not None:
                chunk = log.read_snapshot(snapshot_id, position, _LOAD_BYTES)
                assert chunk is not None, f"{snapshot_id} is listed and cannot be read"
                position = self._read_snapshot_chunk(chunk, snapshot_id.offset - 1, position)
        while offset < log.end_offset:
            offset = self.append(log.read(offset, _LOAD_BYTES))

    def _read_snapshot_chunk(self, chunk: Buffer, offset: int, position: int) -> int | None:
        """The control records in front of a snapshot; the position of the next part of it."""
        end = 0
        for at, header in iterate_headers(chunk, allow_partial=True):
            end = at + header.size_bytes
            if not header.is_control:
                return None
            for _, control in _controls_of(bytes(memoryview(chunk)[at:end])):
                self._note(offset, control)
        return position + end if end else None

    def append(self, batches: Buffer) -> int:
        """Note what is appended to the log; returns the offset after it."""
        next_offset = 0
        for at, header in iterate_headers(batches):
            next_offset = header.next_offset
            if header.is_control:
                batch = bytes(memoryview(batches)[at : at + header.size_bytes])
                for offset, control in _controls_of(batch):
                    self._note(offset, control)
        return next_offset

    def _note(self, offset: int, control: MetadataLogControl) -> None:
        if isinstance(control, VotersRecord):
            voters = VoterSet.from_record(control)
            # One change at a time, or two leaders could be elected by disjoint majorities. Voters
            # of the configuration have no directory ids yet.
            assert not self._voters or offset < 0 or self.voters.overlaps(voters), (
                f"{self.voters} and {voters} at {offset} may have disjoint majorities"
            )
            self._voters.append((offset, voters))
        elif isinstance(control, KRaftVersionRecord):
            self._versions.append((offset, control.kraft_version))

    def truncate_to(self, end_offset: int) -> None:
        """The log ends there now: later changes never were."""
        while self._voters and self._voters[-1][0] >= end_offset:
            self._voters.pop()
        while self._versions and self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def forget_before(self, start_offset: int) -> None:
        """A snapshot has everything below: only what counted there is still needed."""
        while len(self._voters) > 1 and self._voters[1][0] < start_offset:
            del self._voters[0]
        while len(self._versions) > 1 and self._versions[1][0] < start_offset:
            del self._versions[0]


@lru_cache(maxsize=256)
def _controls_of(batch: bytes) -> list[tuple[int, MetadataLogControl]]:
    """The control records of a batch. Every replica of a process reads the same ones."""
    controls = []
    for _, header in iterate_headers(batch):
        for record in decode_records(memoryview(batch), header):
            control = decode_control(record)
            if isinstance(control, MetadataLogControl):
                controls.append((record.offset, control))
    return controls
