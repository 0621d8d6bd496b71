import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.compaction_history import History, ignore_bytes
from tidelog.protocol.compression import Compression
from tidelog.storage.compaction.batch_filter import LastRecord
from tidelog.storage.compaction.compaction import (
    CompactionTask,
    SourceSegment,
    build_key_offsets,
    compact,
    group_segments,
)
from tidelog.storage.compaction.key_offsets import KeyOffsets
from tidelog.storage.files import CorruptFileError
from tidelog.world.operating_system.files import OsFiles


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def values(history: History) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for _, records in history.batches()
        for record in records
    ]


def test_only_the_latest_value_of_a_key_stays_and_offsets_do_not_move(history: History) -> None:
    history.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    history.write((b"c", b"1"), (b"a", b"3"))
    history.roll()
    history.write((b"a", b"4"))

    history.compact()

    assert values(history) == [
        (1, b"b", b"1"),
        (3, b"c", b"1"),
        (4, b"a", b"3"),
        (5, b"a", b"4"),
    ]
    first, _ = history.batches()[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_keeps_its_compression_and_timestamps(
    history: History, compression: Compression
) -> None:
    history.write((b"a", b"1" * 100), (b"b", b"2" * 100), (b"a", b"3"), compression=compression)
    history.roll()

    history.compact()

    [(header, records)] = history.batches()
    assert header.compression is compression
    assert [(r.offset, r.timestamp, r.value) for r in records] == [
        (1, 1001, b"2" * 100),
        (2, 1002, b"3"),
    ]
    assert header.max_timestamp == 1002


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(history: History) -> None:
    history.write((b"a", b"1"), (b"b", b"1"))
    history.roll()
    before = history.path(0).read_bytes()

    [group] = history.compact()

    assert not group.changed
    assert history.path(0).read_bytes() == before


def test_a_tombstone_stays_for_its_retention_counted_from_the_first_pass(history: History) -> None:
    history.write((b"a", b"1"), (b"b", b"1"))
    history.write((b"a", None))
    history.write((b"z", b"1"))
    history.roll()

    history.compact(now_ms=10_000, delete_retention_ms=100)
    assert (2, b"a", None) in values(history)
    horizons = {header.base_offset: header.delete_horizon_ms for header, _ in history.batches()}
    assert horizons == {0: None, 2: 10_100, 3: None}
    [tombstone] = [record for _, records in history.batches() for record in records][1:2]
    assert tombstone.timestamp == 1000  # the horizon replaces the base, not the record's time

    history.compact(now_ms=10_099, delete_retention_ms=100)
    assert (2, b"a", None) in values(history)
    history.compact(now_ms=10_100, delete_retention_ms=100)
    assert values(history) == [(1, b"b", b"1"), (3, b"z", b"1")]


def test_records_without_a_key_go(history: History) -> None:
    history.write((None, b"1"), (b"a", b"1"))
    history.roll()
    history.compact()
    assert values(history) == [(1, b"a", b"1")]


def test_aborted_records_go_and_do_not_hide_committed_ones(history: History) -> None:
    history.write((b"a", b"old"))
    history.write((b"a", b"never"), producer_id=7, transactional=True)
    history.end_transaction(7, commit=False)
    history.write((b"z", b"1"))
    history.roll()
    history.last_records.clear()

    history.compact()

    assert values(history)[0] == (0, b"a", b"old")
    assert b"never" not in [value for _, _, value in values(history)]


def test_a_marker_outlives_the_batches_of_its_transaction(history: History) -> None:
    """First the data goes; the marker waits until no batch is left, then its retention."""
    history.write((b"a", b"1"), producer_id=7, transactional=True)
    history.end_transaction(7, commit=True)
    history.write((b"a", b"2"))
    history.write((b"z", b"1"))
    history.roll()
    history.last_records.clear()

    def has_marker() -> bool:
        return any(header.is_control for header, _ in history.batches())

    history.compact(now_ms=1000)
    assert [record.value for record in history.committed()] == [b"2", b"1"]
    assert has_marker()
    history.compact(now_ms=2000)  # gives it a horizon
    assert has_marker()
    history.compact(now_ms=2099)
    assert has_marker()
    history.compact(now_ms=2100)
    assert not has_marker()


def test_nothing_is_cleaned_at_or_after_an_open_transaction(history: History) -> None:
    history.write((b"a", b"1"))
    history.roll()
    history.write((b"b", b"1"), producer_id=7, transactional=True)
    history.roll()
    history.write((b"a", b"2"))
    history.roll()

    history.compact()

    assert len(values(history)) == 3
    assert history.first_dirty_offset == 1


def test_the_last_batch_of_a_producer_stays_as_an_empty_batch(history: History) -> None:
    history.write((b"a", b"1"), (b"b", b"1"), producer_id=7)
    history.write((b"a", b"2"), producer_id=7)
    history.write((b"a", b"3"), (b"b", b"3"))
    history.roll()

    history.compact()

    [(empty, records), _] = history.batches()
    assert records == []
    assert (empty.producer_id, empty.last_sequence, empty.last_offset) == (7, 2, 2)


def test_the_marker_that_holds_a_fenced_epoch_stays_empty(history: History) -> None:
    history.end_transaction(7, commit=False)
    history.write((b"a", b"1"))
    history.roll()
    history.last_records[7] = LastRecord(None, 0)

    for now_ms in (1000, 2000, 3000):
        history.compact(now_ms=now_ms)

    [(marker, records), _] = history.batches()
    assert marker.is_control
    assert records == []
    assert marker.producer_id == 7


def test_small_neighbours_become_one_segment(history: History) -> None:
    for number in range(6):
        history.write((b"k%d" % number, b"x" * 100))
        history.roll()
    size = history.path(0).stat().st_size

    groups = history.compact(segment_bytes=3 * size)

    assert [group.old_base_offsets for group in groups] == [(0, 1, 2), (3, 4, 5)]
    assert history.bases == [0, 3, 6]
    assert len(values(history)) == 6


def test_segments_whose_relative_offsets_would_overflow_are_not_merged() -> None:
    far = 1 << 31
    segments = [SourceSegment("", base, 10) for base in (0, 5, far)]
    assert group_segments(segments, 1000, far + 1) == [segments[:2], segments[2:]]


def test_a_group_reaches_as_far_as_the_segments_it_replaces(history: History) -> None:
    """Recovery takes the range of a `.swap` from its own batches."""
    history.write((b"a", b"1"))
    history.roll()
    history.write((b"a", b"2"))
    history.roll()
    history.write((b"a", b"3"))
    history.roll()

    history.compact(segment_bytes=history.path(0).stat().st_size * 2)

    headers = [header for header, _ in history.batches()]
    assert [(header.base_offset, header.record_count) for header in headers] == [(1, 0), (2, 1)]


def test_a_full_map_ends_the_pass_where_it_got_to(history: History) -> None:
    for number in range(10):
        history.write((b"k%d" % number, b"1"))
    for number in range(10):
        history.write((b"k%d" % number, b"2"))
    history.roll()
    four_keys = 4 * 192

    history.compact(dedupe_buffer_bytes=four_keys)
    assert history.first_dirty_offset == 4
    for _ in range(10):
        history.compact(dedupe_buffer_bytes=four_keys)

    assert history.first_dirty_offset == 20
    assert {key: value for _, key, value in values(history)} == {
        b"k%d" % number: b"2" for number in range(10)
    }
    assert len(values(history)) == 10


def test_the_map_of_keys_stays_within_its_memory() -> None:
    memory_bytes = 4 << 20
    keys = KeyOffsets(memory_bytes)
    tracemalloc.start()
    try:
        offset = 0
        while keys.put(b"a key of some length %d" % offset, 1 << 40 | offset):
            offset += 1
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offset == keys.capacity
    assert peak_bytes <= memory_bytes


@pytest.mark.parametrize("position", [16, 30, 65, 71])
def test_a_flipped_bit_ends_the_pass_and_leaves_no_files(history: History, position: int) -> None:
    history.write((b"a", b"1"))
    history.write((b"a", b"2"))
    history.roll()
    content = bytearray(history.path(0).read_bytes())
    content[position] ^= 1
    history.path(0).write_bytes(content)

    with pytest.raises(CorruptFileError, match=history.path(0).name):
        history.compact()
    assert not list(history.directory.glob("*.cleaned"))


def test_half_a_batch_at_the_end_is_corrupt(history: History) -> None:
    history.write((b"a", b"1"))
    history.roll()
    history.path(0).write_bytes(history.path(0).read_bytes()[:-1])
    with pytest.raises(CorruptFileError):
        history.compact()


def test_batches_larger_than_a_read_are_read_whole(history: History) -> None:
    history.write((b"a", b"x" * 3_000_000))
    history.write((b"a", b"y" * 3_000_000))
    history.roll()
    history.compact()
    assert values(history) == [(1, b"a", b"y" * 3_000_000)]


def test_the_map_starts_at_the_dirty_part(history: History) -> None:
    history.write((b"a", b"1"), (b"b", b"1"))
    history.write((b"c", b"1"))
    history.roll()
    history.first_dirty_offset = 1
    task = history.task(now_ms=0)
    keys = build_key_offsets(task, OsFiles(), ignore_bytes)
    assert [keys.get(key) for key in (b"a", b"b", b"c")] == [-1, 1, 2]
    assert keys.latest_offset == 2


def test_stopping_a_pass_leaves_no_files(history: History) -> None:
    history.write((b"a", b"1"))
    history.write((b"a", b"2"))
    history.roll()
    calls = 0

    def stop_in_the_second_walk(_size_bytes: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise InterruptedError

    task: CompactionTask = history.task(now_ms=0)
    with pytest.raises(InterruptedError):
        list(compact(task, OsFiles(), stop_in_the_second_walk))
    assert not list(history.directory.glob("*.cleaned"))


KEYS = st.sampled_from([b"a", b"b", b"c", b"a key longer than sixteen bytes"])
RECORDS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), RECORDS, st.sampled_from([-1, -1, 1, 2])),
        st.tuples(st.just("transact"), RECORDS, st.sampled_from([11, 12])),
        st.tuples(st.just("end"), st.booleans(), st.sampled_from([11, 12])),
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact"), st.sampled_from([192, 600, 100_000]), st.integers(0, 200)),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from(list(Compression)), st.sampled_from([1, 300, 100_000]))
def test_random_histories_read_the_same_before_and_after(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[object, ...]],
    compression: Compression,
    segment_bytes: int,
) -> None:
    """Against a dictionary: what a reader from the beginning ends up with never changes, and
    nothing that was not written appears."""
    history = History(tmp_path_factory.mktemp("history"))
    written: dict[int, tuple[bytes | None, bytes | None]] = {}
    now_ms = 1000
    for step in [*steps, ("roll",), ("compact", 100_000, 0)]:
        match step:
            case ("write" | "transact" as kind, list() as records, int() as producer_id):
                base = history.write(
                    *records,
                    compression=compression,
                    producer_id=producer_id,
                    transactional=kind == "transact",
                )
                written.update({base + i: record for i, record in enumerate(records)})
            case ("end", bool() as commit, int() as producer_id):
                if producer_id in history.open_transactions:
                    history.end_transaction(producer_id, commit=commit)
            case ("roll",):
                history.roll()
            case ("compact", int() as memory_bytes, int() as waited_ms):
                now_ms += waited_ms
                before = history.committed()
                history.compact(
                    now_ms=now_ms, dedupe_buffer_bytes=memory_bytes, segment_bytes=segment_bytes
                )
                check_pass(history, before, written)


def check_pass(
    history: History,
    before: list,  # type: ignore[type-arg]
    written: dict[int, tuple[bytes | None, bytes | None]],
) -> None:
    after = history.committed()
    offsets = [record.offset for record in after]
    assert offsets == sorted(set(offsets))
    assert all(written[record.offset] == (record.key, record.value) for record in after)
    # The same table at the end, where a deleted key and an absent one are the same.
    assert table(after) == table(before)
    # Everything past the cleaned part is untouched.
    end = history.first_dirty_offset
    assert [r.offset for r in before if r.offset >= end] == [o for o in offsets if o >= end]
    # One value for each key within it.
    cleaned_keys = [record.key for record in after if record.offset < end]
    assert len(cleaned_keys) == len(set(cleaned_keys))
    # The place of every producer in its sequence survives.
    last = {header.producer_id: header for header, _ in history.batches() if not header.is_control}
    for producer_id, sequence in history.sequences.items():
        assert last[producer_id].last_sequence == sequence - 1


def table(records: list) -> dict[bytes, bytes]:  # type: ignore[type-arg]
    latest = {record.key: record.value for record in records}
    return {key: value for key, value in latest.items() if value is not None}
