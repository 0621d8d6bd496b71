"""Frames out of a stream, however it is cut into pieces and wherever its reader has to stop."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.server.network.frame_reader import FrameReader, Frames
from tidelog.server.network.receive_buffer import CHUNK_BYTES, ReceiveMemory, ReceiveMemoryError

SIZES = st.lists(st.integers(0, 300) | st.integers(60_000, 140_000), max_size=6)
PIECES = st.lists(st.integers(1, 70_000), min_size=1, max_size=5)


def _stream(contents: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in contents)


def _contents(sizes: list[int]) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]


def _cut(stream: bytes, pieces: list[int]) -> Iterator[bytes]:
    if len(stream) > 2000:
        pieces = [max(piece, 500) for piece in pieces]
    at = turn = 0
    while at < len(stream):
        piece = stream[at : at + pieces[turn % len(pieces)]]
        yield piece
        at += len(piece)
        turn += 1


def _receive(reader: FrameReader, piece: bytes) -> Iterator[Frames]:
    """What comes of a piece, which may not fit into the room at once."""
    while piece:
        room = reader.room()
        size = min(len(room), len(piece))
        assert size
        room[:size] = piece[:size]
        piece = piece[size:]
        yield reader.received(size)


def _feed(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[bytes]:
    return [
        bytes(frame)
        for piece in _cut(stream, pieces)
        for frames in _receive(reader, piece)
        for frame in frames
    ]


@given(SIZES, PIECES)
def test_frames_come_out_as_they_went_in(sizes: list[int], pieces: list[int]) -> None:
    memory = ReceiveMemory()
    reader = FrameReader(memory, 1 << 20)
    contents = _contents(sizes)
    assert _feed(reader, _stream(contents), pieces) == contents
    assert not reader.is_within_frame
    assert not reader.is_holding
    assert memory.buffers_bytes == 0


@given(SIZES, PIECES, st.lists(st.booleans(), min_size=1, max_size=12))
def test_frames_that_are_not_taken_come_again(
    sizes: list[int], pieces: list[int], stops: list[bool]
) -> None:
    reader = FrameReader(ReceiveMemory(), 1 << 20)
    contents = _contents(sizes)
    found: list[bytes] = []
    turn = 0

    def take(frames: Frames) -> None:
        nonlocal turn
        for frame in frames:
            turn += 1
            if stops[turn % len(stops)] and turn < 1000:
                frames.close()
                return
            found.append(bytes(frame))

    for piece in _cut(_stream(contents), pieces):
        for frames in _receive(reader, piece):
            take(frames)
            while reader.is_holding:
                take(reader.held())
    assert found == contents
    assert not reader.is_within_frame


@given(SIZES, st.integers(0, 700_000))
def test_what_the_reader_keeps_stays_as_it_is(sizes: list[int], stop_at: int) -> None:
    """Two streams share memory; frames of one are kept, or held, while the other goes on."""
    memory = ReceiveMemory()
    reader, other = FrameReader(memory, 1 << 20), FrameReader(memory, 1 << 20)
    contents = _contents(sizes)
    stream = _stream(contents)
    kept: list[memoryview] = []
    noise = _stream([b"\xff" * 200] * 20)
    for piece in _cut(stream[:stop_at], [100_000]):
        for frames in _receive(reader, piece):
            for frame in frames:
                kept.append(frame)
                if len(kept) == 3:
                    kept.pop()
                    frames.close()
            if reader.is_holding:
                _feed(other, noise, [1000])
                kept += reader.held()
        _feed(other, noise, [1000])
    assert [bytes(each) for each in kept] == contents[: len(kept)]
    whole = sum(len(_stream(contents[:count])) <= stop_at for count in range(1, len(sizes) + 1))
    assert len(kept) == whole


@given(st.integers(8, 10_000_000), st.lists(st.integers(1, 70_000), max_size=10))
def test_memory_for_a_frame_follows_what_has_arrived(claimed: int, pieces: list[int]) -> None:
    memory = ReceiveMemory()
    reader = FrameReader(memory, 10_000_000)
    list(*_receive(reader, struct.pack(">i", claimed) + b"x"))
    arrived = 5
    for piece in pieces:
        arrived += (size := min(piece, 4 + claimed - arrived))
        for frames in _receive(reader, bytes(size)):
            list(frames)
        assert memory.buffers_bytes <= max(65_536, 4 * arrived)
        assert memory.buffers_bytes <= 4 + claimed
    assert bool(memory.buffers_bytes) == (arrived < 4 + claimed)
    reader.close()
    assert memory.buffers_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 7, 1001, 2**31 - 1])
@pytest.mark.parametrize("piece", [1, 3, 4, 100])
def test_a_length_that_cannot_be_is_refused_behind_the_frames_before_it(
    length: int, piece: int
) -> None:
    reader = FrameReader(ReceiveMemory(), 1000, frame_bytes_min=8)
    found: list[bytes] = []
    with pytest.raises(ProtocolError, match=f"of {length} bytes, allowed are 8 to 1000"):
        for part in _cut(_stream([b"12345678"]) + struct.pack(">i", length) + b"xxxx", [piece]):
            for frames in _receive(reader, part):
                found += (bytes(each) for each in frames)
    assert found == [b"12345678"]


def test_a_frame_for_which_there_is_no_memory_is_refused() -> None:
    memory = ReceiveMemory(100_000)
    reader, other = FrameReader(memory, 1 << 20), FrameReader(memory, 1 << 20)
    list(*_receive(reader, struct.pack(">i", 500_000)))
    with pytest.raises(ReceiveMemoryError):
        list(*_receive(other, struct.pack(">i", 500_000)))
    other.close()
    with pytest.raises(ReceiveMemoryError):
        for frames in _receive(reader, bytes(70_000)):
            list(frames)
    reader.close()
    assert memory.buffers_bytes == 0


def test_a_stream_that_ends_within_a_frame_is_known() -> None:
    for beginning in (b"\0", b"\0\0\0\3", b"\0\0\0\3ab"):
        reader = FrameReader(ReceiveMemory(), 1000)
        assert _feed(reader, beginning, [100]) == []
        assert reader.is_within_frame


def test_nothing_is_kept_of_a_stream_that_is_closed_while_its_frames_are_taken() -> None:
    memory = ReceiveMemory()
    reader = FrameReader(memory, 1 << 20)
    (frames,) = _receive(reader, _stream([b"first", b"second"]) + struct.pack(">i", 70_000))
    assert bytes(next(frames)) == b"first"
    reader.close()
    frames.close()
    assert not reader.is_holding
    assert memory.buffers_bytes == 0


def test_frames_that_are_held_do_not_take_up_the_shared_memory() -> None:
    memory = ReceiveMemory()
    reader = FrameReader(memory, 1 << 20)
    (frames,) = _receive(reader, _stream([b"first", b"second"]))
    next(frames)
    frames.close()
    assert reader.is_holding
    assert len(memory.arena.room(CHUNK_BYTES)) == CHUNK_BYTES
    assert [bytes(each) for each in reader.held()] == [b"first", b"second"]
