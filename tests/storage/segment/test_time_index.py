from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.log_making import FILES
from tidelog.storage.segment.time_index import TimeIndex


@given(
    steps=st.lists(st.tuples(st.integers(-3, 5), st.integers(1, 50)), max_size=900),
    data=st.data(),
)
def test_lookups_find_the_last_timestamp_at_or_below(
    steps: list[tuple[int, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = TimeIndex(FILES, tmp_path_factory.mktemp("time") / "x.timeindex", 10)
    kept: list[tuple[int, int]] = []
    timestamp, offset = 1000, 10
    for forward_ms, records in steps:
        timestamp += forward_ms
        offset += records
        index.maybe_append(timestamp, offset)
        if not kept or timestamp > kept[-1][0]:
            kept.append((timestamp, offset))
    assert [index.entry(slot) for slot in range(index.count)] == kept
    assert index.is_ascending()
    for _ in range(20):
        target = data.draw(st.integers(900, timestamp + 10))
        below = [entry for entry in kept if entry[0] <= target]
        assert index.lookup(target) == (below[-1] if below else (-1, 10))
    cut = data.draw(st.integers(10, offset + 1))
    index.truncate_to(cut)
    kept = [entry for entry in kept if entry[1] < cut]
    assert [index.entry(slot) for slot in range(index.count)] == kept
    assert index.last == (kept[-1] if kept else (-1, 10))


def test_the_file_has_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000007.timeindex"
    index = TimeIndex(FILES, path, 7)
    index.maybe_append(1_700_000_000_000, 9)
    index.maybe_append(1_700_000_000_000, 11)
    index.maybe_append(1_700_000_000_001, 12)
    index.write_out()
    assert path.read_bytes() == bytes.fromhex("0000018bcfe56800 00000002 0000018bcfe56801 00000005")


def test_disorder_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    path.write_bytes(bytes.fromhex("0000000000000005 00000002 0000000000000004 00000005"))
    assert not TimeIndex(FILES, path, 0).is_ascending()
