"""Frames out of a stream, however it is cut into pieces."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.frames import FrameReader


def _feed(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[bytes]:
    frames: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        room = reader.room()
        size = min(len(room), len(stream) - at, pieces[turn % len(pieces)])
        room[:size] = stream[at : at + size]
        frames += [bytes(frame) for frame in reader.received(size)]
        at += size
        turn += 1
    return frames


@given(
    st.lists(st.integers(0, 300) | st.integers(60_000, 140_000), max_size=6),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=5),
)
def test_frames_come_out_as_they_went_in(sizes: list[int], pieces: list[int]) -> None:
    contents = [bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]
    stream = b"".join(struct.pack(">i", len(each)) + each for each in contents)
    if sum(sizes) > 2000:
        pieces = [max(piece, 500) for piece in pieces]
    reader = FrameReader(1 << 20)
    assert _feed(reader, stream, pieces) == contents
    assert not reader.is_within_frame


@pytest.mark.parametrize("length", [-1, 1001, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    reader = FrameReader(1000)
    with pytest.raises(ProtocolError, match=f"{length} bytes"):
        _feed(reader, struct.pack(">i", length), [4])


def test_a_stream_that_ends_within_a_frame_is_known() -> None:
    reader = FrameReader(1000)
    assert _feed(reader, struct.pack(">i", 3) + b"ab", [100]) == []
    assert reader.is_within_frame
