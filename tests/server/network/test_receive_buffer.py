"""Receive memory: never written to while somebody looks at it, used again afterwards."""

import pytest

from tidelog.server.network.receive_buffer import (
    CHUNK_BYTES,
    Chunk,
    ReceiveArena,
    ReceiveMemory,
    ReceiveMemoryError,
    SpareChunks,
)


def test_a_chunk_is_free_when_no_view_of_it_is_left() -> None:
    chunk = Chunk(100)
    assert chunk.is_free()
    kept = chunk.view[10:20]
    assert not chunk.is_free()
    part_of_kept = kept[2:4]
    del kept
    assert not chunk.is_free()
    del part_of_kept
    assert chunk.is_free()
    assert len(chunk.view) == 100


def test_bytes_that_are_looked_at_stay_as_they_are() -> None:
    arena = ReceiveArena(256 * 1024)
    kept: list[memoryview] = []
    for number in range(200):
        arena.room(100_000)[:5000] = bytes([number]) * 5000
        kept.append(arena.take(5000)[100:4000])
    for number, view in enumerate(kept):
        assert bytes(view) == bytes([number]) * 3900


def test_the_same_memory_is_used_while_nobody_keeps_a_view() -> None:
    arena = ReceiveArena()
    first = arena.room(1).obj
    for _ in range(100):
        assert len(arena.room(CHUNK_BYTES)) == CHUNK_BYTES
        assert arena.take(1000).obj is first


def test_what_was_received_by_one_is_not_lost_when_another_looks_for_room() -> None:
    arena = ReceiveArena()
    arena.room(100)[:5] = b"first"
    taken = arena.take(5)
    arena.room(100)[:6] = b"second"
    assert bytes(taken) == b"first"
    assert bytes(arena.take(6)) == b"second"


def test_room_that_was_not_used_is_given_again() -> None:
    arena = ReceiveArena()
    kept = [arena.room(100) for _ in range(3)]
    kept[0][:1] = b"x"
    assert all(bytes(each[:1]) == b"x" for each in kept)


def test_a_chunk_given_back_is_taken_when_its_views_are_gone() -> None:
    spare = SpareChunks()
    chunk = Chunk(20_000)
    view = chunk.view[:10]
    spare.give_back(chunk)
    assert spare.take(20_000, size_bytes_max=80_000) is not chunk
    del view
    assert spare.take(20_000, size_bytes_max=80_000) is chunk


def test_spare_chunks_are_limited() -> None:
    spare = SpareChunks(chunks_max=2, bytes_max=30_000)
    first, second = Chunk(20_000), Chunk(20_000)
    spare.give_back(first)
    spare.give_back(second)
    assert spare.take(20_000, size_bytes_max=20_000) is first
    assert spare.take(20_000, size_bytes_max=20_000) is not second


def test_small_chunks_do_not_take_the_places_of_large_ones() -> None:
    spare = SpareChunks(chunks_max=2)
    large = Chunk(100_000)
    for _ in range(10):
        spare.give_back(Chunk(4))
    spare.give_back(large)
    assert spare.take(100_000, size_bytes_max=100_000) is large


def test_buffers_of_frames_under_way_are_limited_together() -> None:
    memory = ReceiveMemory(1000)
    memory.take_buffer(400, 0)
    memory.take_buffer(500, 0)
    with pytest.raises(ReceiveMemoryError, match="1100"):
        memory.take_buffer(200, 0)
    with pytest.raises(ReceiveMemoryError):
        memory.take_buffer(501, 400)
    memory.take_buffer(500, 400)
    memory.release(500)
    memory.take_buffer(500, 0)
    assert memory.buffers_bytes == 1000
