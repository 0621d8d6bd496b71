"""Receive memory: never written to while somebody looks at it, used again afterwards."""

from tidelog.server.network.receive_buffer import Chunk, ReceiveArena, SpareChunks


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
        room = arena.room()
        room[:5000] = bytes([number]) * 5000
        kept.append(room[100:4000])
        del room
        arena.settle(5000)
    for number, view in enumerate(kept):
        assert bytes(view) == bytes([number]) * 3900


def test_the_same_memory_is_used_while_nobody_keeps_a_view() -> None:
    arena = ReceiveArena()
    first = arena.room().obj
    for _ in range(100):
        room = arena.room()
        room[:1000] = bytes(1000)
        assert room.obj is first
        assert len(room) == len(first)  # type: ignore[arg-type]
        del room
        arena.settle(1000)


def test_a_chunk_given_back_is_taken_when_its_views_are_gone() -> None:
    spare = SpareChunks()
    chunk = Chunk(1000)
    view = chunk.view[:10]
    spare.give_back(chunk)
    assert spare.take(1000, size_bytes_max=4000) is not chunk
    del view
    assert spare.take(1000, size_bytes_max=4000) is chunk


def test_spare_chunks_are_limited() -> None:
    spare = SpareChunks(chunks_max=2, bytes_max=1500)
    first, second = Chunk(1000), Chunk(1000)
    spare.give_back(first)
    spare.give_back(second)
    assert spare.take(1000, size_bytes_max=1000) is first
    assert spare.take(1000, size_bytes_max=1000) is not second
