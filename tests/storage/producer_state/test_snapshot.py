from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from tests.storage.log_making import FILES
from tidelog.storage.files import CorruptFileError
from tidelog.storage.producer_state.producer_state import BatchMetadata, ProducerState
from tidelog.storage.producer_state.snapshot import (
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)

STATE = ProducerState(
    producer_id=0x1122,
    producer_epoch=3,
    coordinator_epoch=4,
    last_timestamp_ms=1_700_000_000_000,
    transaction_first_offset=80,
    batches=[
        BatchMetadata(9, 89, 4, 1_600_000_000_000),
        BatchMetadata(11, 91, 1, 1_700_000_000_000),
    ],
)
BODY = bytes.fromhex(
    "00000003"
    # producer id, epoch, last sequence, last offset, offset delta
    "0000000000001122 0003 00000009 0000000000000059 00000004"
    # timestamp, coordinator epoch, first offset of the transaction
    "00000174876e8000 00000004 0000000000000050"
    "0000000000001122 0003 0000000b 000000000000005b 00000001"
    "0000018bcfe56800 00000004 0000000000000050"
    "0000000000000008 0000 ffffffff ffffffffffffffff 00000000"
    "0000000000000005 ffffffff ffffffffffffffff"
)


def test_the_file_has_kafkas_bytes(tmp_path: Path) -> None:
    marked = ProducerState(8, 0, last_timestamp_ms=5)
    path = write_snapshot(FILES, tmp_path, 92, [STATE, marked])
    assert path.name == "00000000000000000092.snapshot"
    assert path.read_bytes() == b"\x00\x01" + crc32c(BODY).to_bytes(4, "big") + BODY


def test_the_batches_of_each_producer_are_read_again(tmp_path: Path) -> None:
    path = write_snapshot(FILES, tmp_path, 92, [STATE])
    (state,) = read_snapshot(FILES, path)
    assert state.producer_id == 0x1122
    assert state.producer_epoch == 3
    assert state.coordinator_epoch == 4
    assert state.last_timestamp_ms == 1_700_000_000_000
    assert state.transaction_first_offset == 80
    assert state.batches == STATE.batches


def test_of_two_epochs_of_a_producer_the_later_counts() -> None:
    """Kafka reads the rows of one producer so too: each takes the place of the one before."""
    batch = BatchMetadata(0, 92, 0, 1_700_000_000_001)
    later = ProducerState(0x1122, 4, last_timestamp_ms=batch.timestamp_ms, batches=[batch])
    content = encode_snapshot([STATE, later])
    (state,) = decode_snapshot(content, Path("x"))
    assert (state.producer_epoch, state.batches) == (4, [batch])
    assert state.transaction_first_offset == -1


def test_no_producers_are_a_snapshot_too() -> None:
    content = encode_snapshot([])
    assert content == b"\x00\x01" + crc32c(bytes(4)).to_bytes(4, "big") + bytes(4)
    assert decode_snapshot(content, Path("x")) == []


def test_any_flipped_bit_and_any_cut_is_noticed() -> None:
    content = encode_snapshot([STATE])
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptFileError, match=r"92\.snapshot"):
            decode_snapshot(bytes(damaged), Path("92.snapshot"))
        with pytest.raises(CorruptFileError):
            decode_snapshot(content[:position], Path("92.snapshot"))
