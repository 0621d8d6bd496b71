"""Frames come back as they were written, and nothing else passes for one."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.journal.format import (
    FRAME_HEADER_BYTES,
    FileHeader,
    FrameKind,
    decode_file_header,
    decode_frame,
    encode_frame_header,
    journal_file_name,
    parse_journal_file_name,
    peek_frame_lsn,
)

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=249)
int64 = st.integers(0, 2**63 - 1)


def encode(topic: str, batches: bytes, lsn: int = 4096, offset: int = 7) -> bytes:
    header = encode_frame_header(
        FrameKind.BATCHES,
        lsn,
        lsn - 10,
        topic=topic.encode(),
        topic_id=bytes(range(16)),
        partition=3,
        leader_epoch=5,
        offset=offset,
        next_offset=offset + 2,
        batches=batches,
    )
    return header + batches


@given(names, st.binary(max_size=2000), int64, st.integers(0, 2**62))
def test_a_frame_comes_back_as_it_was(topic: str, batches: bytes, lsn: int, offset: int) -> None:
    lsn = max(10, lsn)
    data = b"before" + encode(topic, batches, lsn, offset) + b"after"
    frame = decode_frame(memoryview(data), 6, lsn)
    assert frame is not None
    assert frame.kind is FrameKind.BATCHES
    assert frame.topic_partition == TopicPartition(topic, 3)
    assert (frame.lsn, frame.group_lsn) == (lsn, lsn - 10)
    assert frame.topic_id == bytes(range(16))
    assert (frame.leader_epoch, frame.offset, frame.next_offset) == (5, offset, offset + 2)
    assert frame.batches == batches
    assert 6 + frame.size_bytes == len(data) - 5
    assert peek_frame_lsn(memoryview(data), 6) == lsn


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_changed_byte_makes_a_frame_invalid(batches: bytes, data: st.DataObject) -> None:
    frame = bytearray(encode("orders", batches))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    assert decode_frame(memoryview(frame), 0, 4096) is None


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_cut_frame_is_invalid(batches: bytes, data: st.DataObject) -> None:
    frame = encode("orders", batches)
    size_bytes = data.draw(st.integers(0, len(frame) - 1))
    assert decode_frame(memoryview(frame)[:size_bytes], 0, 4096) is None


def test_a_frame_of_an_earlier_use_of_the_file_is_invalid() -> None:
    assert decode_frame(memoryview(encode("orders", b"x", lsn=4096)), 0, 1 << 20) is None


@given(st.binary(max_size=200), int64)
def test_random_bytes_are_no_frame(data: bytes, lsn: int) -> None:
    assert decode_frame(memoryview(data), 0, lsn) is None


@given(int64, int64, st.integers(0, 2**40))
def test_a_file_header_comes_back_and_damage_shows(
    sequence: int, base_lsn: int, size_bytes: int
) -> None:
    header = FileHeader(sequence, base_lsn, size_bytes)
    data = header.encode()
    assert decode_file_header(data) == header
    assert decode_file_header(data[:-1]) is None
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert decode_file_header(bytes(damaged)) is None


def test_file_names_hold_the_sequence_number() -> None:
    assert journal_file_name(7) == "00000000000000000007.journal"
    assert parse_journal_file_name("00000000000000000007.journal") == 7
    assert parse_journal_file_name("00000000000000000007.spare") is None
    assert parse_journal_file_name("7.journal") is None
    assert FRAME_HEADER_BYTES == 72
