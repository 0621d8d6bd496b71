"""Producer state on disk: `<offset>.snapshot` holds the producers as of that offset.

Kafka's format: version (16 bits, 1), CRC-32C (32 bits) of what follows, the number of rows (32
bits), and 46 bytes for each. Kafka writes one row for a producer, with its last batch: a leader
that was restarted takes a retry of a batch before that one for out of order, which ends the
producer. Here each batch that is kept has a row, the last one last. Kafka reads such a file as one
of the last batches, because a row takes the place of the producer's row before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c

from tidelog.storage.files import CorruptFileError, read_file, write_file
from tidelog.storage.producer_state.producer_state import (
    BATCHES_KEPT,
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
_ROW = struct.Struct(">qhiqiqiq")
_NO_BATCH = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, -1)


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{SUFFIX}"


def encode_snapshot(states: Iterable[ProducerState], *, batches_max: int = BATCHES_KEPT) -> bytes:
    """With so many batches of each producer, the last ones."""
    rows = [
        _row(state, batch)
        for state in states
        for batch in state.batches[-batches_max:] or (_NO_BATCH,)
    ]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def _row(state: ProducerState, batch: BatchMetadata) -> bytes:
    is_last = not state.batches or batch is state.batches[-1]
    return _ROW.pack(
        state.producer_id,
        state.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        state.last_timestamp_ms if is_last else batch.timestamp_ms,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


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
    if len(body) != _COUNT.size + count * _ROW.size:
        raise CorruptFileError(path, f"{len(body)} bytes do not hold {count} producers")
    states: dict[int, ProducerState] = {}
    for row in _ROW.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first = row
        known = states.get(producer_id)
        batches = known.batches if known is not None and known.producer_epoch == epoch else []
        if offset >= 0:
            batches.append(BatchMetadata(sequence, offset, delta, timestamp_ms))
        states[producer_id] = ProducerState(
            producer_id, epoch, coordinator_epoch, timestamp_ms, first, batches[-BATCHES_KEPT:]
        )
    return list(states.values())


def write_snapshot(
    files: Files,
    directory: Path,
    offset: int,
    states: Iterable[ProducerState],
    *,
    batches_max: int = BATCHES_KEPT,
) -> Path:
    """Writes, without a sync: a torn snapshot fails its checksum and an older one is used."""
    path = snapshot_path(directory, offset)
    write_file(files, path, encode_snapshot(states, batches_max=batches_max))
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

    def take(self, producers: ProducerStates, *, batches_max: int = BATCHES_KEPT) -> Path:
        """Writes a snapshot as of now, unless there is one. Raises OSError."""
        offset = producers.map_end_offset
        if offset not in self.offsets[-1:]:
            write_snapshot(
                self._files,
                self._directory,
                offset,
                producers.active(),
                batches_max=batches_max,
            )
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
