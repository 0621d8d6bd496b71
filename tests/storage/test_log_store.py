"""The store: identity and lock, placement, deletion, clean shutdown, failing and full disks."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.store_cases import (
    ORDERS,
    SMALL,
    TOPIC_ID,
    Loop,
    append,
    open_store,
    values_of,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.directories.log_directory import DirectoryState, LogDirectoryError
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.files import StrPath
from tidelog.world.operating_system import OperatingSystem

PAGE_CACHE = LogConfig(durability="page-cache")
NEW_ID = bytes(range(16, 32))


def storage_error(call: object, *arguments: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value


# Identity


def test_a_new_directory_gets_kafkas_meta_properties(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=replace(SMALL, node_id=7))
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", f"cluster.id={store.cluster_id}", "node.id=7"]
    assert lines[3].startswith("directory.id=")
    directory_id = store.directories[0].directory_id
    store.close()
    again = open_store(tmp_path, options=replace(SMALL, node_id=7))
    assert (again.cluster_id, again.directories[0].directory_id) == (store.cluster_id, directory_id)
    again.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(LogDirectoryError, match="in use by another node"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (replace(SMALL, node_id=2), "belongs to node 1, not to node 2"),
        (replace(SMALL, cluster_id="another"), "belongs to cluster .* not to another"),
    ],
)
def test_a_directory_of_somebody_else_is_refused(
    tmp_path: Path, options: object, message: str
) -> None:
    open_store(tmp_path).close()
    with pytest.raises(LogDirectoryError, match=message):
        open_store(tmp_path, options=options)  # type: ignore[arg-type]
    open_store(tmp_path).close()


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    open_store(first).close()
    second.mkdir()
    (second / "meta.properties").write_bytes((first / "meta.properties").read_bytes())
    with pytest.raises(LogDirectoryError, match=r"same directory\.id"):
        open_store(first, second)


def test_damaged_meta_properties_are_refused_with_what_to_do(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=x\n")
    with pytest.raises(CorruptFileError, match=r"meta\.properties.*Write the right values"):
        open_store(tmp_path)


# Logs


def test_partitions_are_spread_over_directories_and_found_again(tmp_path: Path) -> None:
    directories = [tmp_path / "1", tmp_path / "2", tmp_path / "3"]
    store = open_store(*directories)
    for n in range(9):
        log = store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig())
        append(log, b"%d" % n)
    store.commit()
    counts = [len(list(directory.glob("orders-*"))) for directory in directories]
    assert counts == [3, 3, 3]
    store.close()
    store = open_store(*directories)
    for n in range(9):
        assert values_of(store.logs[TopicPartition("orders", n)]) == [b"%d" % n]
    store.close()


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in ("1", "2"):
        store = open_store(tmp_path / name, options=replace(SMALL, cluster_id="c"))
        store.create(ORDERS, TOPIC_ID, LogConfig())
        store.close()
    with pytest.raises(LogDirectoryError, match="orders-0 is in two log directories"):
        open_store(tmp_path / "1", tmp_path / "2")


def test_a_deleted_partition_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store.create(ORDERS, TOPIC_ID, LogConfig()), b"old")
    store.delete(ORDERS)
    assert store.get(ORDERS) is None
    log = store.create(ORDERS, bytes(16 * [9]), LogConfig())
    append(log, b"new")
    store.commit()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("orders")] == ["orders-0"]
    store.close(clean=False)
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"new"]
    assert store.logs[ORDERS].topic_id == bytes(16 * [9])
    store.close()


def test_frames_of_a_deleted_partition_do_not_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store.create(ORDERS, TOPIC_ID, LogConfig()), b"a")
    store.commit()
    store.delete(ORDERS)
    store.commit()
    store.close(clean=False)
    store = open_store(tmp_path)
    assert store.logs == {}
    assert not list(tmp_path.glob("orders*"))
    store.close()


@pytest.mark.parametrize("has_successor", [False, True])
@pytest.mark.parametrize(
    "identity",
    [None, bytes(43), b"version: 0\ntopic_i"],
    ids=["missing", "zeros", "half"],
)
def test_a_deleted_log_without_its_identity_does_not_come_back(
    tmp_path: Path, identity: bytes | None, has_successor: bool
) -> None:
    """A power cut took back the rename to a deleted directory, and left of the partition.metadata
    what was not synced: the records would have become those of the next topic of this name."""
    store = open_store(tmp_path / "data")
    append(store.create(ORDERS, TOPIC_ID, LogConfig()), b"old", b"old too")
    store.commit()
    shutil.copytree(tmp_path / "data" / "orders-0", tmp_path / "before")
    store.delete(ORDERS)
    if has_successor:
        append(store.create(ORDERS, bytes(16 * [9]), LogConfig()), b"new")
    store.commit()
    store.close(clean=False)
    shutil.rmtree(tmp_path / "data" / "orders-0", ignore_errors=True)
    (tmp_path / "before").rename(tmp_path / "data" / "orders-0")
    metadata = tmp_path / "data" / "orders-0" / "partition.metadata"
    metadata.unlink()
    if identity is not None:
        metadata.write_bytes(identity)
    store = open_store(tmp_path / "data")
    if has_successor:
        assert values_of(store.logs[ORDERS]) == [b"new"]
        assert store.logs[ORDERS].topic_id == bytes(16 * [9])
    else:
        assert store.logs == {}
    store.close()


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    longest = TopicPartition("x" * 249, 12345)
    store = open_store(tmp_path)
    append(store.create(longest, TOPIC_ID, LogConfig()), b"a")
    store.commit()
    store.delete(longest)
    store.commit()
    assert not list(tmp_path.glob("xxx*"))
    store.close()


def test_strangers_in_the_directory_are_left_alone_and_reported(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "orders-0.abc-future").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    store = open_store(tmp_path)
    assert sorted(path.name for path in store.strays) == ["notes.txt", "orders-0.abc-future"]
    store.close()
    assert (tmp_path / "notes.txt").read_text() == "hello"
    assert (tmp_path / "orders-0.abc-future").is_dir()


# Shutdown and checkpoints


def test_a_clean_close_leaves_nothing_to_recover(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    store.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    progress: list[object] = []
    store = LogStore.open(
        [tmp_path],
        SMALL,
        world=InlineWorld(now_ms=1000),
        post=lambda call: call(),
        progress=progress.append,
    )
    assert progress == []
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert values_of(store.logs[ORDERS]) == [b"a", b"b"]
    store.close()


def test_a_crash_is_recovered_with_progress(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for n in range(5):
        append(store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()), b"a")
    store.commit()
    store.close(clean=False)
    progress: list[tuple[int, int]] = []
    store = LogStore.open(
        [tmp_path],
        SMALL,
        world=InlineWorld(now_ms=1000),
        post=lambda call: call(),
        progress=lambda state: progress.append((state.recovered, state.total)),
    )
    assert progress == [(n + 1, 5) for n in range(5)]
    assert all(values_of(log) == [b"a"] for log in store.logs.values())
    store.close()


def test_a_checkpoint_moves_recovery_points_and_keeps_log_starts(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    append(log, b"c")
    store.commit()
    log.advance_log_start(2)
    assert log.local.recovery_point == 0
    store.checkpoint()
    assert log.local.recovery_point == 3
    append(log, b"d")
    store.commit()
    store.close(clean=False)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    store = open_store(tmp_path)
    assert store.logs[ORDERS].log_start_offset == 2
    assert values_of(store.logs[ORDERS])[-2:] == [b"c", b"d"]
    store.close()


def test_a_crash_does_not_move_high_watermarks_to_where_logs_end(tmp_path: Path) -> None:
    """What is durable here need not be on other replicas."""
    store = open_store(tmp_path)
    store.high_watermark_of = lambda log: 1
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    append(log, b"b")
    store.commit()
    store.checkpoint()
    append(log, b"c")
    store.commit()
    store.close(clean=False)
    for _ in range(2):  # the start after a crash writes a checkpoint too
        store = open_store(tmp_path)
        assert store.logs[ORDERS].durable_offset == 3
        assert store.checkpointed_high_watermarks[ORDERS] == 1
        assert store.high_watermark_of(store.logs[ORDERS]) == 1
        store.close(clean=False)


def test_checkpoints_come_by_time(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    store.maintain(2000)
    assert log.local.recovery_point == 0
    store.maintain(62_000)
    assert log.local.recovery_point == 1
    store.close()


def test_a_checkpoint_on_its_thread_goes_beside_appends(tmp_path: Path) -> None:
    loop = Loop()
    options = replace(SMALL, checkpoint_journal_bytes=20 << 10)
    store = LogStore.open([tmp_path], options, world=OperatingSystem(), post=loop.post)
    logs = [store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()) for n in range(40)]
    for turn in range(50):
        for log in logs:
            append(log, b"%d" % turn)
        store.commit()
    loop.run_until(lambda: all(log.durable_offset == 50 for log in logs))
    loop.run_until(lambda: all(log.local.recovery_point > 0 for log in logs))
    store.close(clean=False)
    store = open_store(tmp_path)
    assert all(
        values_of(log) == [b"%d" % turn for turn in range(50)] for log in store.logs.values()
    )
    store.close()


# Durability per topic


def test_page_cache_topics_are_acknowledged_at_once_and_not_journaled(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, PAGE_CACHE)
    append(log, b"a")
    assert log.durable_offset == 1
    store.close()


def test_durability_fsync_takes_hold_with_a_flush(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    store = open_store(files.root, files=files)
    log = store.create(ORDERS, TOPIC_ID, PAGE_CACHE)
    append(log, b"a")
    store.set_config(ORDERS, LogConfig())
    append(log, b"b")
    assert log.durable_offset == 1
    store.commit()
    assert log.durable_offset == 2
    for seed in range(8):
        after = files.power_cut(tmp_path / "after", seed)
        recovered = open_store(after.root, files=after)
        assert values_of(recovered.logs[ORDERS]) == [b"a", b"b"]
        recovered.close()


def test_durability_page_cache_takes_hold_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.set_config(ORDERS, PAGE_CACHE)
    assert log.durable_offset == 1
    append(log, b"b")
    assert log.durable_offset == 2
    store.close()


# Failing and full disks


def test_a_failed_disk_takes_only_its_partitions_along(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    failures: list[tuple[DirectoryState, list[TopicPartition]]] = []
    store.on_directory_failure = lambda state, logs: failures.append((state, logs))
    logs = [store.create(TopicPartition("orders", n), TOPIC_ID, LogConfig()) for n in range(2)]
    for log in logs:
        append(log, b"a")
    store.commit()
    broken, sound = logs
    files.fail(broken.directory.parent)
    storage_error(append, broken, b"b")
    append(sound, b"b")
    store.commit()
    assert sound.durable_offset == 2
    ((state, partitions),) = failures
    assert (state.path, state.online, partitions) == (
        broken.directory.parent,
        False,
        [broken.topic_partition],
    )
    assert [state.online for state in store.directories] == [
        path != broken.directory.parent for path in (tmp_path / "1", tmp_path / "2")
    ]
    new = store.create(TopicPartition("new", 0), TOPIC_ID, LogConfig())
    assert new.directory.parent == sound.directory.parent
    files.heal()
    store.close()
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    assert values_of(store.logs[broken.topic_partition]) == [b"a"]
    assert values_of(store.logs[sound.topic_partition]) == [b"a", b"b"]
    store.close()


def test_a_failed_sync_of_a_checkpoint_takes_the_directory_offline(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.fail(tmp_path / "orders-0", only="sync")
    store.checkpoint()
    assert not store.directories[0].online
    assert log.local.recovery_point == 0
    assert str(errno.EIO) in str(storage_error(append, log, b"b"))
    files.heal()
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_deletion_is_under_way_until_no_crash_can_undo_it(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    other = store.create(TopicPartition("other", 0), TOPIC_ID, LogConfig())
    store.commit()
    assert not store.is_deleting
    store.delete(ORDERS)
    assert store.is_deleting
    store.commit()
    assert not store.is_deleting
    assert not log.directory.exists()
    files.fail(other.directory, error=errno.ENOSPC)  # that its folder gets another name
    store.delete(other.topic_partition)
    store.commit()
    assert store.is_deleting
    store.close(clean=False)


def test_a_sync_that_fails_at_the_very_end_leaves_no_clean_directory(tmp_path: Path) -> None:
    """The error comes from a job in the background, and the loop that would hear of it is over."""
    files = FaultyFiles(tmp_path)
    world = InlineWorld(files, now_ms=1000)
    posted: list[Callable[[], None]] = []
    store = LogStore.open([tmp_path], SMALL, world=world, post=posted.append)
    files.fail(tmp_path / "orders-0", only="sync")
    store.create(ORDERS, TOPIC_ID, LogConfig())
    assert store.directories[0].online
    files.heal()
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_disk_that_fails_at_the_start_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    store.close()
    files.fail(tmp_path / "2")
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    assert [state.online for state in store.directories] == [True, False]
    append(store.create(ORDERS, TOPIC_ID, LogConfig()), b"a")
    store.close()
    files.fail(tmp_path / "1")
    with pytest.raises(LogDirectoryError, match="no log directory can be used"):
        open_store(tmp_path / "1", tmp_path / "2", files=files)


def test_a_full_disk_answers_an_error_and_heals(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    store = open_store(files.root, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.space_bytes = files.used_bytes + 100
    error = storage_error(append, log, bytes(1000))
    assert os.strerror(errno.ENOSPC) in str(error)
    assert (log.log_end_offset, log.durable_offset) == (1, 1)
    assert store.directories[0].online
    store.checkpoint()  # finds no room either, and says so without harm
    assert store.directories[0].online
    files.heal()
    append(log, b"b")
    store.commit()
    store.checkpoint()
    assert (log.durable_offset, log.local.recovery_point) == (2, 2)
    files = files.power_cut(tmp_path / "after", seed=3)
    store = open_store(files.root, files=files)
    assert values_of(store.logs[ORDERS]) == [b"a", b"b"]
    store.close()


def test_a_directory_is_full_from_a_refused_append_on_until_there_is_room(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    told: list[list[bytes]] = []
    store.on_full_directories = told.append
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    directory_id = store.directory_id_of(log)
    files.space_bytes = files.used_bytes
    for _ in range(2):
        storage_error(append, log, bytes(1000))
    store.maintain(2000)
    assert told == [[directory_id]]
    files.space_bytes = files.used_bytes + 5000  # not enough to come and go with each append
    store.maintain(3000)
    assert told == [[directory_id]]
    files.heal()
    store.maintain(4000)
    assert told == [[directory_id], []]
    assert append(log, b"a") == 1
    assert not list(log.directory.parent.glob("*.tmp"))
    store.close()


def test_the_start_of_a_log_moves_when_the_disk_is_full(tmp_path: Path) -> None:
    """To delete records is how an operator gets room."""
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    store.commit()
    files.space_bytes = files.used_bytes
    log.advance_log_start(1)
    assert (log.log_start_offset, log.leader_epochs.entries) == (1, [(0, 1)])
    files.heal()
    store.close()
    store = open_store(tmp_path, files=files)
    log = store.logs[ORDERS]
    assert (log.log_start_offset, log.leader_epochs.entries) == (1, [(0, 1)])
    store.close()


def has_no_room(files: FaultyFiles) -> None:
    """For bytes neither, nor for names."""
    files.space_bytes = files.used_bytes
    files.has_room_for_names = False


def test_a_log_is_deleted_from_a_full_disk_and_its_name_is_free_again(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, bytes(10_000))
    store.commit()
    has_no_room(files)
    store.delete(ORDERS)
    # The mark that says so is not on disk yet, so the folder is still there.
    assert "being removed" in str(storage_error(store.create, ORDERS, NEW_ID, LogConfig()))
    store.commit()
    assert not store.is_deleting
    assert not log.directory.exists()
    files.heal()
    assert append(store.create(ORDERS, NEW_ID, LogConfig()), b"new") == 1
    store.commit()
    store.close()
    store = open_store(tmp_path, files=files)
    assert values_of(store.logs[ORDERS]) == [b"new"]
    store.close()


def test_a_log_that_cannot_be_removed_at_once_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.fail(log.directory, error=errno.ENOSPC)
    store.delete(ORDERS)
    store.commit()
    store.checkpoint()  # would let the journal forget that the log is deleted
    store.maintain(2000)
    assert store.is_deleting
    assert log.directory.exists()
    after = files.power_cut(tmp_path.with_name(f"{tmp_path.name}-after"), seed=1)
    recovered = open_store(after.root, files=after)
    assert recovered.logs == {}
    recovered.close()
    files.cut_after = None
    files.heal()
    store.maintain(3000)
    assert not store.is_deleting
    assert not log.directory.exists()
    store.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


class WithoutRoomForDeleted(FaultyFiles):
    """A directory that has no room for the names of deleted logs."""

    is_full = False

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        if self.is_full and str(target).endswith("-delete"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        super().rename(source, target)


def test_a_log_that_is_still_being_removed_at_the_end_does_not_come_back(tmp_path: Path) -> None:
    files = WithoutRoomForDeleted(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.fail(log.directory, error=errno.ENOSPC)
    store.delete(ORDERS)
    store.commit()
    files.heal()
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    files.is_full = True  # at the start, too
    recovered = open_store(tmp_path, files=files)
    assert recovered.logs == {}
    assert not log.directory.exists()
    recovered.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_a_log_is_deleted_from_a_full_disk(tmp_path: Path, seed: int) -> None:
    """It is there with all of its records, or gone."""
    step = outcomes = 0
    while True:
        files = FaultyFiles(tmp_path / f"{step}")
        store = open_store(files.root, files=files)
        append(store.create(TopicPartition("kept", 0), TOPIC_ID, LogConfig()), b"kept")
        log = store.create(ORDERS, TOPIC_ID, LogConfig(segment_bytes=200))
        for number in range(4):
            append(log, bytes([number] * 100))
        store.commit()
        store.checkpoint()
        append(log, b"last")
        store.commit()
        has_no_room(files)
        files.cut_after = files.operations + step
        is_over = True
        try:
            store.delete(ORDERS)
            store.commit()
            assert not store.is_deleting
        except PowerCut:
            is_over = False
        after = files.power_cut(tmp_path / f"{step}-after", seed)
        store = open_store(after.root, files=after)
        assert values_of(store.logs[TopicPartition("kept", 0)]) == [b"kept"]
        if ORDERS in store.logs:
            assert values_of(store.logs[ORDERS]) == [
                *(bytes([number] * 100) for number in range(4)),
                b"last",
            ]
            outcomes |= 1
        else:
            outcomes |= 2
        store.close()
        if is_over:
            break
        step += 1
    assert step > 6
    assert outcomes == 3


def test_the_start_of_an_offline_log_does_not_move(tmp_path: Path) -> None:
    """DeleteRecords was acknowledged, and the disk could not be told of it."""
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a", b"b")
    store.commit()
    log.storage_error = "the disk is gone"
    storage_error(log.advance_log_start, 1)
    assert log.log_start_offset == 0
    store.close(clean=False)


def test_partitions_may_be_deleted_while_checkpoints_run(tmp_path: Path) -> None:
    loop = Loop()
    store = LogStore.open([tmp_path], SMALL, world=OperatingSystem(), post=loop.post)
    for round_number in range(15):
        logs = [
            store.create(TopicPartition("orders", n), bytes([round_number + 1] * 16), config)
            for n, config in enumerate([LogConfig(), LogConfig(segment_bytes=200)] * 4)
        ]
        for log in logs:
            append(log, bytes(100))
            append(log, bytes(100))
        store.commit()
        store.checkpoint()
        for log in logs:
            store.delete(log.topic_partition)
        store.commit()
    assert store.directories[0].online
    loop.run_until(lambda: not list(tmp_path.glob("orders*")))
    assert store.directories[0].online
    store.close()
    store = open_store(tmp_path)
    assert store.logs == {}
    store.close()


# Emptying a log on a disk that refuses


def emptied_with_failure(
    files: FaultyFiles, store: LogStore, failing: str, error: int, *, offset: int = 100
) -> Log:
    """A log of one record that was to start over, with calls on some of its files failing."""
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    store.commit()
    files.fail(log.directory / failing, error=error)
    with pytest.raises(OSError):
        log.truncate_fully_and_start_at(offset)
    assert [segment.base_offset for segment in log.segments] == [offset]
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (offset,) * 3
    return log


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_log_that_starts_over_without_room_for_its_segment_goes_on_when_there_is(
    tmp_path: Path, crash: bool, heals: bool, checkpoints: bool
) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = emptied_with_failure(files, store, f"{100:020d}", errno.ENOSPC)
    assert store.directories[0].online
    storage_error(append, log, b"too early")
    assert values_of(log) == []
    if checkpoints:
        store.checkpoint()
    if heals:
        files.heal()
        assert append(log, b"b") == 101
        store.commit()
        assert (log.durable_offset, values_of(log)) == (101, [b"b"])
    store.close(clean=not crash)
    files.heal()
    store = open_store(tmp_path, files=files)
    log = store.logs[ORDERS]
    assert log.log_start_offset == 100
    assert values_of(log) == ([b"b"] if heals else [])
    assert append(log, b"c") == (102 if heals else 101)
    store.close()


def test_a_log_that_starts_over_at_the_same_place_may_be_refused_room_too(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    log = store.create(ORDERS, TOPIC_ID, config)
    append(log, b"a")
    store.commit()
    files.space_bytes = files.used_bytes + 4096
    with pytest.raises(OSError, match="No space"):
        log.truncate_to(0)
    assert append(log, b"b") == 1
    store.commit()
    store.close(clean=False)
    store = open_store(tmp_path)
    assert values_of(store.logs[ORDERS]) == [b"b"]
    store.close()


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (f"{100:020d}", errno.EIO),  # the new segment
        (f"{0:020d}", errno.EIO),  # the old one
        (f"{0:020d}", errno.ENOSPC),  # files that stay would come back
    ],
)
def test_a_log_that_cannot_start_over_takes_its_directory_offline(
    tmp_path: Path, failing: str, error: int
) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    log = emptied_with_failure(files, store, failing, error)
    offline = [state.path for state in store.directories if not state.online]
    assert offline == [log.directory.parent]
    storage_error(append, log, b"b")
    files.heal()
    store.close()
    store = open_store(tmp_path / "1", tmp_path / "2", files=files)
    log = store.logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, b"b") == 101
    store.close()


def test_a_truncation_that_does_not_begin_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path / "disk")
    store = open_store(files.root, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    for value in (b"a", b"b", b"c"):
        append(log, value)
    store.commit()
    store.checkpoint()
    log.release()
    files.fail(log.segments[0].path, error=errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        log.truncate_fully_and_start_at(1)
    files.heal()
    append(log, b"d")
    store.commit()
    for seed in range(8):
        after = files.power_cut(tmp_path / "after", seed)
        recovered = open_store(after.root, files=after)
        assert values_of(recovered.logs[ORDERS]) == [b"a", b"b", b"c", b"d"]
        recovered.close()
