"""Producer state on disk: `<offset>.snapshot` holds the producers as of that offset.

Kafka's format: version (16 bits, 1), CRC-32C (32 bits) of what follows, the number of producers
(32 bits), and 46 bytes for each. Of a producer's batches only the last is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c

from tidelog.storage.files import CorruptFileError, read_file, write_file
from tidelog.storage.producer_state.producer_state import (
    NO_OFFSET,
    NO_SEQUENCE,
    BatchMetadata,
    ProducerState,
    ProducerStates,
)
from tidelog.world.files import Files

SUFFIX = ".snapshot"
_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{SUFFIX}"


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    entries = []
    for state in states:
        last = state.batches[-1] if state.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, -1)
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                state.last_timestamp_ms,
                state.coordinator_epoch,
                state.transaction_first_offset,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes, path: Path) -> list[ProducerState]:
    """Raises CorruptFileError (which names `path`)."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptFileError(path, f"{len(content)} bytes are too few for a producer snapshot")
    version, crc = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptFileError(path, f"unknown producer snapshot version {version}")
    body = memoryview(content)[_HEAD.size :]
    if crc32c(body) != crc:
        raise CorruptFileError(path, "the checksum of the producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptFileError(path, f"{len(body)} bytes do not hold {count} producers")
    states = []
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first = entry
        batches = [BatchMetadata(sequence, offset, delta, timestamp_ms)] if offset >= 0 else []
        states.append(
            ProducerState(producer_id, epoch, coordinator_epoch, timestamp_ms, first, batches)
        )
    return states


def write_snapshot(
    files: Files, directory: Path, offset: int, states: Iterable[ProducerState]
) -> Path:
    """Writes, without a sync: a torn snapshot fails its checksum and an older one is used."""
    path = snapshot_path(directory, offset)
    write_file(files, path, encode_snapshot(states))
    return path


def read_snapshot(files: Files, path: Path) -> list[ProducerState]:
    return decode_snapshot(read_file(files, path), path)


class SnapshotFiles:
    """The snapshots of one log, ascending by offset."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: Path, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = offsets

    def take(self, producers: ProducerStates) -> Path:
        """Writes a snapshot as of now, unless there is one. Raises OSError."""
        offset = producers.map_end_offset
        if offset not in self.offsets[-1:]:
            write_snapshot(self._files, self._directory, offset, producers.active())
            self.offsets.append(offset)
        return snapshot_path(self._directory, offset)

    def load(self, producers: ProducerStates, log_start_offset: int, upper_offset: int) -> None:
        """Loads the newest snapshot in [log start, upper]; damaged and later ones are removed."""
        while self.offsets and self.offsets[-1] >= log_start_offset:
            offset = self.offsets[-1]
            if offset <= upper_offset:
                try:
                    path = snapshot_path(self._directory, offset)
                    producers.load(read_snapshot(self._files, path), offset)
                except (CorruptFileError, FileNotFoundError):
                    pass
                else:
                    return
            self.remove([offset])
        producers.clear(log_start_offset)

    def remove(self, offsets: Iterable[int]) -> None:
        removed = set(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in removed]
        for offset in removed:
            try:
                self._files.unlink(snapshot_path(self._directory, offset))
            except FileNotFoundError:
                pass
