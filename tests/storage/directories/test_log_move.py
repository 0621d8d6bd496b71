"""Moving a log to another directory: what is there stays there, whatever happens meanwhile."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.log_making import make_batch
from tests.storage.store_cases import ORDERS, TOPIC_ID, append, open_store, values_of
from tests.test_byte_throttle import Clock
from tidelog.byte_throttle import UNLIMITED
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.world.files import StrPath

SEGMENTED = LogConfig(segment_bytes=400)


def other_directory(store: LogStore) -> Path:
    here = store.logs[ORDERS].directory.parent
    return next(state.path for state in store.directories if state.path != here)


def settle(store: LogStore) -> None:
    """What a node's loop does in the seconds after."""
    for second in range(4):
        store.commit()
        store.maintain(2000 + 1000 * second)


def folders(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.glob("*/*") if "orders" in path.name
    )


def test_a_log_is_in_the_other_directory_and_only_there(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    values = [b"%d" % n * 30 for n in range(20)]
    for value in values:
        append(log, value)
    store.commit()
    log.advance_log_start(3)
    moved: list[Log] = []
    store.on_moved = moved.append
    target = other_directory(store)
    store.move(ORDERS, target)
    settle(store)
    (new,) = moved
    assert store.logs[ORDERS] is new
    assert not store.moves
    assert (new.log_start_offset, new.durable_offset) == (3, 20)
    assert values_of(new) == values[3:]
    assert folders(tmp_path) == [f"{target.name}/orders-0"]
    append(new, b"more")
    store.commit()
    store.close(clean=False)
    store = open_store(tmp_path / "1", tmp_path / "2")
    assert values_of(store.logs[ORDERS]) == [*values[3:], b"more"]
    assert store.logs[ORDERS].log_start_offset == 3
    store.close()


def test_a_log_moves_there_and_back_and_there_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    values = []
    for turn in range(5):
        values.append(b"turn-%d" % turn)
        append(store.logs[ORDERS], values[-1])
        store.commit()
        store.move(ORDERS, other_directory(store))
        append(store.logs[ORDERS], b"and-%d" % turn)
        values.append(b"and-%d" % turn)
        settle(store)
        assert values_of(store.logs[ORDERS]) == values
        store.close(clean=turn % 2 == 0)
        store = open_store(tmp_path / "1", tmp_path / "2")
        assert values_of(store.logs[ORDERS]) == values
    assert log.directory.parent != store.logs[ORDERS].directory.parent
    store.close()


def test_an_empty_log_and_one_that_retention_emptied_move(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    log = store.create(ORDERS, TOPIC_ID, replace(SEGMENTED, retention_ms=1))
    store.move(ORDERS, other_directory(store))
    settle(store)
    log = store.logs[ORDERS]
    append(log, b"old")
    store.commit()
    log.delete_old_segments(10_000_000, 1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    store.move(ORDERS, other_directory(store))
    settle(store)
    assert store.logs[ORDERS] is not log
    assert append(store.logs[ORDERS], b"new") == 2
    store.close()


def of_producer(sequence: int) -> memoryview:
    return make_batch(timestamp=1000, producer_id=7, epoch=0, sequence=sequence)


def test_producers_are_known_after_the_move(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    for sequence in range(3):
        log.append_as_leader(of_producer(sequence), 0, 1000)
    store.commit()
    log.advance_log_start(3)
    log.roll(1000)
    log.delete_old_segments(2000, 3)
    assert not log.size_bytes
    store.move(ORDERS, other_directory(store))
    settle(store)
    new = store.logs[ORDERS]
    assert new is not log
    again = new.append_as_leader(of_producer(2), 0, 1000)
    assert again.duplicate
    store.close()


def test_a_move_can_be_taken_back(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    append(log, b"a")
    here = log.directory.parent
    store.move(ORDERS, other_directory(store))
    assert ORDERS in store.moves
    store.move(ORDERS, here)
    settle(store)
    assert store.logs[ORDERS] is log
    assert folders(tmp_path) == [f"{here.name}/orders-0"]
    store.close()


def throttled_move(store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Begins to move a log of 30 batches, a batch at a time, with 1,000 bytes a second."""
    monkeypatch.setattr("tidelog.storage.directories.log_move._PIECE_BYTES", 1)
    store.move_throttle = clock.throttle(1_000)
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    for _ in range(30):
        append(log, bytes(250))
    store.commit()
    store.move(ORDERS, other_directory(store))
    settle(store)
    return log


def test_a_move_takes_as_long_as_its_throttle_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    clock = Clock()
    log = throttled_move(store, clock, monkeypatch)
    ended_ms: list[int] = []
    store.on_moved = lambda moved: ended_ms.append(clock.now_ms)
    while not ended_ms:
        assert clock.now_ms < 30_000
        clock.run(100)
        settle(store)
    assert log.size_bytes - 2_000 <= ended_ms[0] <= log.size_bytes + 500
    assert len(values_of(store.logs[ORDERS])) == 30
    store.close()


def test_a_move_goes_on_at_once_when_its_throttle_is_lifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    clock = Clock()
    throttled_move(store, clock, monkeypatch)
    clock.run(500)
    assert store.moves
    assert store.move_throttle is not None
    store.move_throttle.set_limit(UNLIMITED)
    clock.run(1)
    settle(store)
    assert not store.moves
    store.close()


def test_a_move_that_is_taken_back_while_it_is_throttled_stays_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    clock = Clock()
    log = throttled_move(store, clock, monkeypatch)
    store.cancel_move(ORDERS, "the test says so")
    clock.run(60_000)
    assert store.logs[ORDERS] is log
    assert folders(tmp_path) == [f"{log.directory.parent.name}/orders-0"]
    store.close()


def test_a_move_nowhere_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    store.create(ORDERS, TOPIC_ID, SEGMENTED)
    with pytest.raises(ApiError) as caught:
        store.move(ORDERS, tmp_path / "3")
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    store.close()


def test_a_deleted_log_does_not_come_back_by_its_copy(tmp_path: Path) -> None:
    store = open_store(tmp_path / "1", tmp_path / "2")
    append(store.create(ORDERS, TOPIC_ID, SEGMENTED), b"a")
    store.move(ORDERS, other_directory(store))
    store.delete(ORDERS)
    settle(store)
    store.close()
    assert folders(tmp_path) == []


def test_a_destination_that_is_full_leaves_the_log_where_it_is(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    append(log, b"a")
    store.commit()
    target = other_directory(store)
    store.move(ORDERS, target)
    files.fail(target / "orders-0-moved", error=errno.ENOSPC)
    settle(store)
    assert store.logs[ORDERS] is log
    assert not store.moves
    append(log, b"b")
    store.commit()
    assert (log.durable_offset, values_of(log)) == (2, [b"a", b"b"])
    files.heal()
    store.close()
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    assert values_of(store.logs[ORDERS]) == [b"a", b"b"]
    store.close()


def test_a_destination_without_room_for_the_name_leaves_the_log_where_it_is(
    tmp_path: Path,
) -> None:
    files = WithoutRoomForTheName(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    append(log, b"a")
    store.commit()
    files.refused = other_directory(store) / "orders-0"
    store.move(ORDERS, files.refused.parent)
    settle(store)
    assert files.refusals == 1
    assert store.logs[ORDERS] is log
    assert all(state.online for state in store.directories)
    append(log, b"b")
    store.commit()
    files.refused = None
    store.move(ORDERS, other_directory(store))
    settle(store)
    assert values_of(store.logs[ORDERS]) == [b"a", b"b"]
    assert store.logs[ORDERS] is not log
    store.close()


class WithoutRoomForTheName(FaultyFiles):
    """A directory that has no room for one name."""

    refused: Path | None = None
    refusals = 0

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        if target == self.refused:
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        super().rename(source, target)


def test_an_origin_that_breaks_does_not_take_the_destination_along(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    log = store.create(ORDERS, TOPIC_ID, SEGMENTED)
    append(log, b"a")
    store.commit()
    files.fail(log.segments[0].path)
    store.move(ORDERS, other_directory(store))
    settle(store)
    assert not store.moves
    assert [state.online for state in store.directories] == [
        state.path != log.directory.parent for state in store.directories
    ]
    files.heal()
    store.close()
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    assert values_of(store.logs[ORDERS]) == [b"a"]
    store.close()


def run_until_cut(files: FaultyFiles, cut_after: int | None) -> tuple[list[bytes], list[bytes]]:
    """Appends and moves until the power goes; returns what was acknowledged and what was sent."""
    for name in ("1", "2"):
        files.mkdir(files.root / name)
    files.sync_directory(files.root)
    files.cut_after = cut_after
    acknowledged: list[bytes] = []
    sent: list[bytes] = []

    def write(store: LogStore, value: bytes) -> None:
        sent.append(value)
        append(store.logs[ORDERS], value)
        store.commit()
        if store.logs[ORDERS].durable_offset == len(sent):
            acknowledged[:] = sent

    try:
        store = open_store(files.root / "1", files.root / "2", files=files)
        store.create(ORDERS, TOPIC_ID, SEGMENTED)
        for turn in range(2):
            for n in range(3):
                write(store, b"%d-%d" % (turn, n) * 20)
            store.move(ORDERS, other_directory(store))
            write(store, b"between")
            settle(store)
            write(store, b"after")
        store.checkpoint()
        write(store, b"last")
        store.close()
    except PowerCut:
        pass
    return acknowledged, sent


def test_a_power_cut_at_any_operation_leaves_one_log_with_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    whole = FaultyFiles(tmp_path / "whole")
    acknowledged, sent = run_until_cut(whole, None)
    assert acknowledged == sent
    moves = 0
    for cut_after in range(20, whole.operations):
        files = FaultyFiles(tmp_path / "disk" / str(cut_after))
        acknowledged, sent = run_until_cut(files, cut_after)
        after = files.power_cut(tmp_path / "after", cut_after)
        store = open_store(after.root / "1", after.root / "2", files=after)
        found = values_of(store.logs[ORDERS]) if ORDERS in store.logs else []
        assert found[: len(acknowledged)] == acknowledged, cut_after
        assert found == sent[: len(found)], cut_after
        if ORDERS in store.logs:
            moves += store.logs[ORDERS].directory.parent != after.root / "1"
            settle(store)
            left = [name for name in folders(after.root) if not name.endswith(".tmp")]
            assert left in (["1/orders-0"], ["2/orders-0"]), cut_after
        store.close()
    assert moves > 20
