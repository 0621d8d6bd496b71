"""Group commit on the journal's thread, and what the journal's files hold after a crash."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.store_cases import (
    ORDERS,
    SMALL,
    TOPIC_ID,
    Loop,
    append,
    batch_of,
    open_store,
    values_of,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.files import CorruptFileError
from tidelog.storage.journal.format import FrameKind, journal_file_name
from tidelog.storage.journal.reader import read_journal
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.testing.faults import FaultyFiles
from tidelog.world.operating_system import OperatingSystem
from tidelog.world.operating_system.files import OsFiles

FILES = OsFiles()


class CountingFiles(OsFiles):
    """The operating system's files, with a count of syncs of journal files."""

    def __init__(self) -> None:
        self.journal_syncs = 0
        self.data_syncs = 0
        self._journal_fds: set[int] = set()
        real_open, real_sync = OsFiles.open, OsFiles.fdatasync

        def open_file(path: str | Path, flags: int, mode: int = 0o644, /) -> int:
            fd = real_open(path, flags, mode)
            self._journal_fds.discard(fd)
            if "/journal/" in str(path):
                self._journal_fds.add(fd)
            return fd

        def fdatasync(fd: int, /) -> None:
            if fd in self._journal_fds:
                self.journal_syncs += 1
            else:
                self.data_syncs += 1
            real_sync(fd)

        self.open = open_file  # type: ignore[assignment]
        self.fdatasync = fdatasync  # type: ignore[assignment]


def frames(directory: Path, kind: FrameKind = FrameKind.BATCHES) -> list[tuple[str, int, int]]:
    return [
        (str(frame.topic_partition), frame.offset, frame.next_offset)
        for frame in read_journal(FILES, directory).frames
        if frame.kind is kind
    ]


def test_nothing_is_durable_before_the_end_of_the_turn(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    assert (log.log_end_offset, log.durable_offset) == (2, 0)
    store.commit()
    assert log.durable_offset == 2
    assert frames(tmp_path) == [("orders-0", 0, 2)]
    store.close()


def test_one_sync_covers_all_partitions_of_a_turn(tmp_path: Path) -> None:
    files = CountingFiles()
    store = open_store(tmp_path, files=files)
    logs = [store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()) for n in range(20)]
    files.journal_syncs = files.data_syncs = 0
    for log in logs:
        append(log, b"a")
        append(log, b"b")
    store.commit()
    assert [log.durable_offset for log in logs] == [2] * 20
    assert (files.journal_syncs, files.data_syncs) == (1, 0)
    store.close()


def test_a_big_group_syncs_its_segment_instead_of_writing_it_twice(tmp_path: Path) -> None:
    files = CountingFiles()
    store = open_store(tmp_path, files=files, options=replace(SMALL, direct_sync_bytes=8000))
    big = store.create(TopicPartition("big", 0), TOPIC_ID, LogConfig())
    small = store.create(TopicPartition("small", 0), TOPIC_ID, LogConfig())
    append(small, b"s")
    append(big, bytes(9000))
    store.commit()
    assert (big.durable_offset, small.durable_offset) == (1, 1)
    assert frames(tmp_path) == [("small-0", 0, 1)]
    append(big, b"little")
    append(small, b"t")
    store.commit()
    assert frames(tmp_path) == [("small-0", 0, 1), ("big-0", 1, 2), ("small-0", 1, 2)]
    store.close(clean=False)
    store = open_store(tmp_path)
    assert values_of(store.logs[big.topic_partition]) == [bytes(9000), b"little"]
    store.close()


def test_the_thread_makes_turns_durable_and_reports_on_the_loop(tmp_path: Path) -> None:
    loop = Loop()
    options = SMALL
    store = LogStore.open([tmp_path], options, world=OperatingSystem(), post=loop.post)
    logs = [store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()) for n in range(3)]
    reported: list[int] = []
    logs[0].on_durable = lambda log: reported.append(log.durable_offset)
    for turn in range(200):
        for log in logs:
            append(log, b"%d" % turn)
        store.commit()
    loop.run_until(lambda: all(log.durable_offset == 200 for log in logs))
    assert reported == sorted(set(reported))
    assert reported[-1] == 200
    store.close()
    store = open_store(tmp_path)
    for log in store.logs.values():
        assert values_of(log) == [b"%d" % turn for turn in range(200)]
    store.close()


def test_journal_files_roll_and_are_used_again(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=replace(SMALL, checkpoint_journal_bytes=150 << 10))
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    for n in range(500):
        append(log, b"%d" % n + bytes(2000))
        store.commit()
        names = [path.name for path in (tmp_path / "journal").iterdir()]
        assert len(names) <= 8, names
    assert log.durable_offset == 500
    store.close(clean=False)
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"%d" % n + bytes(2000) for n in range(500)]
    store.close()


def test_an_append_larger_than_a_journal_file_is_synced_directly(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig(max_message_bytes=1 << 20))
    append(log, bytes(100 << 10))
    store.commit()
    assert log.durable_offset == 1
    assert frames(tmp_path) == []
    store.close()


def test_an_append_that_was_truncated_meanwhile_is_not_reported(tmp_path: Path) -> None:
    loop = Loop()
    store = LogStore.open([tmp_path], SMALL, world=OperatingSystem(), post=loop.post)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    append(log, b"b", b"c")
    durable: list[int] = []
    log.on_durable = lambda log: durable.append(log.durable_offset)
    log.truncate_to(1)
    loop.run_until(lambda: not log.is_truncating)
    append(log, b"d")
    store.commit()
    loop.run_until(lambda: log.durable_offset == 2)
    assert durable == [1, 2]
    store.close(clean=False)
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"a", b"d"]
    store.close()


def test_waiting_bytes_are_limited(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=replace(SMALL, journal_waiting_bytes_max=5000))
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    assert not store.congested
    append(log, bytes(6000))
    assert store.congested
    store.commit()
    assert not store.congested
    store.close()


def damaged_journal(directory: Path, groups: int) -> Path:
    """A store that crashed after so many groups of one append each; returns the journal file."""
    store = open_store(directory)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    for n in range(groups):
        append(log, b"%d" % n)
        store.commit()
    store.close(clean=False)
    (path,) = (directory / "journal").glob("*.journal")
    return path


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def position_of(directory: Path, path: Path, slot: int) -> int:
    frame = [f for f in read_journal(FILES, directory).frames if f.kind is FrameKind.BATCHES][slot]
    return frame.lsn - min(f.lsn for f in read_journal(FILES, directory).frames) + 4096


def test_a_torn_last_group_is_the_end_of_the_journal(tmp_path: Path) -> None:
    path = damaged_journal(tmp_path, 3)
    flip(path, position_of(tmp_path, path, 2) + 20)
    assert frames(tmp_path) == [("orders-0", 0, 1), ("orders-0", 1, 2)]


def test_damage_before_a_later_group_is_refused_and_named(tmp_path: Path) -> None:
    path = damaged_journal(tmp_path, 3)
    flip(path, position_of(tmp_path, path, 1) + 20)
    with pytest.raises(CorruptFileError, match=r"damaged at byte \d+.*acknowledged") as caught:
        open_store(tmp_path)
    assert caught.value.path == path
    assert "move the directory" in caught.value.problem


def test_damage_before_the_checkpoint_does_not_matter(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    store.checkpoint()
    append(log, b"b")
    store.commit()
    store.close(clean=False)
    (path,) = (tmp_path / "journal").glob("*.journal")
    flip(path, 4096 + 20)
    flip(path, 4096 + 100)
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"a", b"b"]
    store.close()


def test_a_damaged_file_header_is_made_up_for_by_the_frames(tmp_path: Path) -> None:
    path = damaged_journal(tmp_path, 3)
    flip(path, 12)
    assert len(frames(tmp_path)) == 3


def test_a_missing_journal_file_is_refused_and_named(tmp_path: Path) -> None:
    path = damaged_journal(tmp_path, 3)
    path.unlink()
    with pytest.raises(CorruptFileError, match="is missing") as caught:
        open_store(tmp_path)
    assert caught.value.path.name == journal_file_name(1)


def test_a_missing_journal_checkpoint_loses_nothing(tmp_path: Path) -> None:
    damaged_journal(tmp_path, 3)
    (tmp_path / "journal-checkpoint").unlink()
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"0", b"1", b"2"]
    store.close()


def test_a_full_disk_lets_the_journal_fall_back_on_direct_syncs(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    files.space_bytes = files.used_bytes + (40 << 10)  # no room for another journal file
    for n in range(30):
        append(log, b"%d" % n + bytes(1000))
        store.commit()
    assert log.durable_offset == 30
    files.heal()
    for n in range(30, 60):
        append(log, b"%d" % n + bytes(1000))
        store.commit()
    assert log.durable_offset == 60
    store.close(clean=False)
    files = files.power_cut(tmp_path.parent / "after", seed=1)
    store = open_store(files.root, files=files)
    assert [value.rstrip(b"\0") for value in values_of(store.logs[ORDERS])] == [
        b"%d" % n for n in range(60)
    ]
    store.close()


def test_a_failed_sync_acknowledges_nothing_ever_after(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.fail(tmp_path / "journal", only="sync")
    append(log, b"b")
    store.commit()
    assert log.durable_offset == 1
    files.heal()  # the disk may look sound again; what it dropped is gone all the same
    log.storage_error = None
    log.append_as_leader(batch_of(b"c"), 0, 1000)
    store.commit()
    assert log.durable_offset == 1
    assert [state.online for state in store.directories] == [False]
    assert f"[Errno {errno.EIO}]" in (store.directories[0].error or "")
    store.close()


def test_no_direct_sync_counts_after_a_checkpoint_failed(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files, options=replace(SMALL, direct_sync_bytes=1))
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    append(log, b"b")  # waits while the checkpoint fails; its data may be gone with the failure
    files.fail(tmp_path / "orders-0", only="sync")
    store.checkpoint()
    files.heal()
    store.commit()
    assert log.durable_offset == 1
    assert not store.directories[0].online
    store.close()


def test_a_bug_on_the_journals_thread_is_told_to_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    crashes: list[tuple[str, BaseException]] = []
    store = LogStore.open(
        [tmp_path],
        SMALL,
        world=OperatingSystem(),
        post=loop.post,
        on_crash=lambda thread, error: crashes.append((thread, error)),
    )
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    loop.run_until(lambda: log.durable_offset == 1)

    def broken(*arguments: object) -> None:
        raise TypeError("injected bug")

    monkeypatch.setattr("tidelog.storage.journal.writer.JournalWriter._choose_direct", broken)
    append(log, b"b")
    store.commit()
    loop.run_until(lambda: log.storage_error is not None)
    assert log.durable_offset == 1
    assert not store.directories[0].online
    ((thread, error),) = crashes
    assert (thread.split()[0], str(error)) == ("tidelog-journal", "injected bug")
    passed: list[int] = []
    failures: list[OSError | None] = []
    journal = store._serving[0].journal
    journal.fence(passed.append)
    journal.settle_checkpoint(0, failures.append)
    loop.run_until(lambda: bool(passed and failures))
    assert passed == [-1]
    assert "injected bug" in str(failures[0])
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
