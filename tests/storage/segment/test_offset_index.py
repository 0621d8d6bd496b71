from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.log_making import FILES
from tidelog.storage.segment.index_file import SPILL_BYTES
from tidelog.storage.segment.offset_index import OffsetIndex

Entries = list[tuple[int, int]]


@st.composite
def ascending_entries(draw: st.DrawFn) -> Entries:
    """(offset, position) pairs, enough of them to be in memory, in the file, or in both."""
    count = draw(st.sampled_from([0, 1, 3, SPILL_BYTES // 8 - 1, SPILL_BYTES // 8, 700]))
    step = draw(st.integers(1, 9))
    return [(100 + i * step, 4096 * (i + 1)) for i in range(count)]


def fill(path: Path, entries: Entries) -> OffsetIndex:
    index = OffsetIndex(FILES, path, 100)
    index.reset()
    for entry in entries:
        index.append(*entry)
    return index


def floor(entries: Entries, column: int, target: int) -> tuple[int, int]:
    below = [entry for entry in entries if entry[column] <= target]
    return below[-1] if below else (100, 0)


@given(entries=ascending_entries(), data=st.data())
def test_lookups_find_the_last_entry_at_or_below(
    entries: Entries, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = fill(path, entries)
    top = entries[-1] if entries else (100, 0)
    for _ in range(2):
        assert index.count == len(entries)
        for _ in range(20):
            offset = data.draw(st.integers(100, top[0] + 3))
            assert index.lookup(offset) == floor(entries, 0, offset)
            position = data.draw(st.integers(0, top[1] + 3))
            assert index.lookup_position(position) == floor(entries, 1, position)
        index.write_out()
        index = OffsetIndex(FILES, path, 100)


@given(entries=ascending_entries(), data=st.data())
def test_truncation_keeps_what_is_below_and_appends_go_on(
    entries: Entries, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = fill(path, entries)
    if data.draw(st.booleans()):
        index.write_out()
    offset = data.draw(st.integers(100, entries[-1][0] + 2 if entries else 100))
    index.lookup(offset)
    index.truncate_to(offset)
    kept = [entry for entry in entries if entry[0] < offset]
    index.append(10_000, 1 << 30)
    index.write_out()
    reopened = OffsetIndex(FILES, path, 100)
    expected = [*kept, (10_000, 1 << 30)]
    assert [reopened.entry(slot) for slot in range(reopened.count)] == expected


def test_the_file_has_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    index = OffsetIndex(FILES, path, 100)
    index.append(101, 4200)
    index.append(166, 8500)
    index.write_out()
    assert path.read_bytes() == bytes.fromhex("00000001 00001068 00000042 00002134")


def test_the_newest_entries_are_found_before_and_after_they_are_written(tmp_path: Path) -> None:
    index = OffsetIndex(FILES, tmp_path / "x.index", 0)
    for i in range(1, 2000):
        index.append(i * 10, i * 100)
        assert index.lookup(i * 10 + 5) == (i * 10, i * 100)
    assert index.lookup(15) == (10, 100)
    assert index.lookup(9) == (0, 0)


def test_disorder_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(struct.pack(">IIII", 5, 100, 9, 200))
    assert OffsetIndex(FILES, path, 0).is_ascending()
    path.write_bytes(struct.pack(">IIII", 5, 100, 5, 200))
    assert not OffsetIndex(FILES, path, 0).is_ascending()
    path.write_bytes(struct.pack(">IIIIII", 5, 100, 9, 200, 0, 0))
    assert not OffsetIndex(FILES, path, 0).is_ascending()
