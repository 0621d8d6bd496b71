"""Damaged files: opening them recovers or refuses, and raises nothing but Tidelog's errors.

Each case damages one file of a small data directory. As nothing else is damaged, a store that
opens has every record, for the journal and the segments both hold what is not checkpointed.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.cluster.metadata.test_metadata_log import create_topics, opened
from tests.fuzz.damage import damage
from tests.storage.log_making import NOW_MS, make_batch, read_all
from tidelog.cluster.metadata.metadata_loading import DIRECTORY_NAME
from tidelog.errors import TidelogError
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.append_result import Origin
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions
from tidelog.testing.inline_world import InlineWorld

CASES = 60
CHECKPOINT_AT = 12

OPTIONS = StoreOptions(
    journal_file_bytes=32 << 10,
    journal_first_file_bytes=16 << 10,
    journal_spares_max=1,
    direct_sync_bytes=6000,
)
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200, durability="fsync")
TOPICS = ("plain", "transactional")

Values = dict[TopicPartition, list[bytes]]


def open_store(root: Path) -> LogStore:
    return LogStore.open(
        [root],
        OPTIONS,
        world=InlineWorld(now_ms=NOW_MS),
        post=lambda call: call(),
        config_for=lambda _: CONFIG,
    )


def append(log: Log, number: int) -> None:
    """One batch, and now and then the end of a transaction."""
    value = b"%d " % number + bytes(number % 5 * 100)
    if log.topic_partition.topic == "plain":
        log.append_as_leader(make_batch(2, value=value), 0, NOW_MS)
        return
    producer_id, sequence = number % 2, number // 2
    batch = make_batch(
        value=value, producer_id=producer_id, epoch=0, sequence=sequence, is_transactional=True
    )
    log.append_as_leader(batch, 0, NOW_MS)
    if number % 6 > 3:
        marker = encode_end_marker(
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=number % 4 == 0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        )
        log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=Origin.COORDINATOR)


def values_of(store: LogStore) -> Values:
    return {
        topic_partition: [record.value or b"" for record in read_all(log)]
        for topic_partition, log in store.logs.items()
    }


def make_data(root: Path, *, clean: bool) -> Values:
    store = open_store(root)
    for topic in TOPICS:
        store.create(TopicPartition(topic, 0), topic.encode().ljust(16), CONFIG)
    for number in range(30):
        for log in store.logs.values():
            append(log, number)
        if number % 7 < 5:
            store.commit()
        if number == CHECKPOINT_AT:
            store.checkpoint()
    store.commit()
    values = values_of(store)
    store.close(clean=clean)
    return values


def use_everything(store: LogStore) -> Values:
    """Reads of every kind, then appends and a clean end."""
    for log in store.logs.values():
        log.offset_for_timestamp(NOW_MS)
        log.max_timestamp_offset()
        log.aborted_transactions(0, log.log_end_offset)
    values = values_of(store)
    for log in store.logs.values():
        log.append_as_leader(make_batch(), 1, NOW_MS)
    store.commit()
    store.close()
    return values


def files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock")


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_a_damaged_file_is_recovered_or_refused(tmp_path: Path, clean: bool) -> None:
    source = tmp_path / "source"
    expected = make_data(source, clean=clean)
    names = [path.relative_to(source) for path in files_in(source)]
    rng = random.Random(f"files {clean}")
    outcomes = {"served": 0, "refused": 0}
    for case in range(CASES):
        root = copied(source, tmp_path / "damaged")
        name = names[case % len(names)]
        done = damage(root / name, rng)
        outcome = open_and_use(root, expected, is_trusted(name, clean=clean), f"{done} {name}")
        outcomes[outcome] += 1
    assert outcomes["served"] > CASES // 3, outcomes


def is_trusted(name: Path, *, clean: bool) -> bool:
    """Whether nobody looks into a file: batches below the recovery point are served as they are."""
    return name.suffix == ".log" and (clean or int(name.stem) < 2 * CHECKPOINT_AT)


def open_and_use(root: Path, expected: Values, may_differ: bool, case: str) -> str:
    """Whether a damaged store was served or refused."""
    try:
        store = open_store(root)
    except TidelogError as error:
        names_file(error, root, case)
        return "refused"
    try:
        found = use_everything(store)
    except TidelogError:
        assert may_differ, case
        return "refused"
    assert may_differ or found == expected, case
    # What was repaired and written meanwhile opens again.
    reopened = open_store(root)
    reopened.close()
    return "served"


def names_file(error: TidelogError, root: Path, case: str) -> None:
    assert f"{root}/" in str(error), f"{case}: {error}"


def test_damaged_metadata_is_recovered_or_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    metadata = opened(source)
    for number in range(8):
        create_topics(metadata, f"topic-{number}")
        if number in (2, 5):
            metadata.snapshot()
    expected = set(metadata.image.topics_by_name)
    metadata.log.release()
    names = [path.relative_to(source) for path in files_in(source)]
    rng = random.Random("metadata")
    for case in range(CASES):
        root = copied(source, tmp_path / "damaged")
        name = names[case % len(names)]
        done = damage(root / name, rng)
        # The end of the newest segment may have been torn; nobody can tell.
        certain = expected if name.suffix != ".log" else expected - {"topic-6", "topic-7"}
        check_metadata(root, certain, f"{done} {name}")


def check_metadata(root: Path, expected: set[str], case: str) -> None:
    try:
        metadata = opened(root)
    except TidelogError as error:
        names_file(error, root / DIRECTORY_NAME, case)
        return
    assert expected <= set(metadata.image.topics_by_name), case
    create_topics(metadata, "one-more")
    metadata.close()
    assert "one-more" in opened(root).image.topics_by_name, case


@pytest.mark.parametrize(
    "position", [7, 20, 65, 70], ids=["base offset", "header", "body", "more of the body"]
)
def test_damage_within_the_metadata_log_is_refused(tmp_path: Path, position: int) -> None:
    metadata = opened(tmp_path)
    size_bytes = metadata.log.active_segment.size_bytes
    for number in range(4):
        create_topics(metadata, f"topic-{number}")
    metadata.log.release()
    path = metadata.log.active_segment.path
    content = bytearray(path.read_bytes())
    content[size_bytes + position] ^= 0x04
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=f"{path}: it is damaged at byte {size_bytes}"):
        opened(tmp_path)
    path.write_bytes(content[:size_bytes])
    assert not opened(tmp_path).image.topics_by_name


@pytest.mark.parametrize("is_removed", [False, True], ids=["cut short", "removed"])
def test_a_metadata_segment_that_lacks_acknowledged_records_is_refused(
    tmp_path: Path, is_removed: bool
) -> None:
    """Every batch that is left is whole, and only the offsets tell that some are missing."""
    metadata = opened(tmp_path)
    paths, sizes_bytes = [], []
    for number in range(3):
        create_topics(metadata, f"topic-{number}")
        segment = metadata.log.active_segment
        paths.append(segment.path)
        sizes_bytes.append(segment.size_bytes)
        create_topics(metadata, f"other-topic-{number}")
        metadata.log.roll(now_ms=1_700_000_000_000)
    metadata.log.release()
    if is_removed:
        paths[1].unlink()
        place = f"{paths[0]}: it is damaged at byte {paths[0].stat().st_size}"
    else:
        os.truncate(paths[1], sizes_bytes[1])
        place = f"{paths[1]}: it is damaged at byte {sizes_bytes[1]}"
    with pytest.raises(CorruptFileError, match=place):
        opened(tmp_path)
    os.truncate(paths[0], sizes_bytes[0])
    for path in paths[1:]:
        path.unlink(missing_ok=True)
    assert set(opened(tmp_path).image.topics_by_name) == {"topic-0"}
