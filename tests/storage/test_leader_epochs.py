from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.log_making import FILES
from tidelog.storage.files import CorruptFileError
from tidelog.storage.leader_epochs import FILE_NAME, EpochEntry, LeaderEpochCache
from tidelog.testing.faults import FaultyFiles


def make_cache(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(FILES, directory, [])
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def test_the_file_has_kafkas_text(tmp_path: Path) -> None:
    make_cache(tmp_path, (0, 0), (3, 250))
    assert (tmp_path / FILE_NAME).read_bytes() == b"0\n2\n0 0\n3 250\n"


def test_entries_are_read_again(tmp_path: Path) -> None:
    make_cache(tmp_path, (0, 0), (3, 250))
    assert LeaderEpochCache.load(FILES, tmp_path).entries == [(0, 0), (3, 250)]
    assert LeaderEpochCache.load(FILES, tmp_path).latest_epoch == 3


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    cache = LeaderEpochCache.load(FILES, tmp_path)
    assert cache.entries == []
    assert cache.latest_epoch == -1


@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"0\n2\n3 5\n2 9\n", b"\xff\x00"]
)
def test_damage_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CorruptFileError, match=FILE_NAME):
        LeaderEpochCache.load(FILES, tmp_path)


def test_end_offsets_answer_as_kafka_does(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, (2, 10), (4, 30), (5, 40))
    assert cache.end_offset_for(-1, 60) == (-1, -1)
    assert cache.end_offset_for(1, 60) == (1, 10)
    assert cache.end_offset_for(2, 60) == (2, 30)
    assert cache.end_offset_for(3, 60) == (2, 30)
    assert cache.end_offset_for(4, 60) == (4, 40)
    assert cache.end_offset_for(5, 60) == (5, 60)
    assert cache.end_offset_for(6, 60) == (-1, -1)
    assert make_cache(tmp_path).end_offset_for(0, 60) == (-1, -1)


def test_an_epoch_that_contradicts_older_entries_replaces_them(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, (1, 0), (2, 10), (3, 20))
    cache.assign(4, 10)
    assert cache.entries == [(1, 0), (4, 10)]
    cache.assign(4, 15)
    assert cache.entries == [(1, 0), (4, 10)]


@given(
    starts=st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=6).map(sorted),
    start=st.integers(0, 70),
    end=st.integers(0, 70),
)
def test_truncation_never_changes_the_epoch_of_what_stays(
    starts: list[int], start: int, end: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = make_cache(tmp_path_factory.mktemp("epochs"), *enumerate(starts))
    before = {offset: cache.epoch_for_offset(offset) for offset in range(start, end)}
    cache.truncate_to(end)
    cache.advance_start(start)
    assert {offset: cache.epoch_for_offset(offset) for offset in range(start, end)} == before
    assert all(entry.start_offset >= start or entry is cache.entries[0] for entry in cache.entries)
    assert all(isinstance(entry, EpochEntry) for entry in cache.entries)


def test_an_epoch_that_finds_no_room_is_not_assigned(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    cache = LeaderEpochCache(files, tmp_path, [])
    cache.assign(1, 0)
    files.space_bytes = files.used_bytes
    with pytest.raises(OSError, match="No space left"):
        cache.assign(2, 10)
    assert (cache.entries, cache.latest_epoch) == ([(1, 0)], 1)
    files.heal()
    cache.assign(2, 10)
    assert LeaderEpochCache.load(files, tmp_path).entries == [(1, 0), (2, 10)]


def test_epochs_are_forgotten_when_the_disk_is_full(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    cache = LeaderEpochCache(files, tmp_path, [])
    cache.assign(1, 0)
    cache.assign(2, 10)
    files.space_bytes = files.used_bytes
    cache.advance_start(15)
    assert cache.entries == [(2, 15)]
    files.heal()
    cache.assign(3, 20)
    assert LeaderEpochCache.load(files, tmp_path).entries == [(2, 15), (3, 20)]
