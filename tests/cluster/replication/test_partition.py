from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.partition import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Partition,
)
from tidelog.cluster.replication.partition_registry import PartitionRegistry
from tidelog.cluster.replication.waiting import Waiting
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.append_result import AppendResult, Origin
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.operating_system.files import OsFiles

NOW = 1_700_000_000_000
TOPIC_ID = b"T" * 16


class ManualSink:
    """Makes appends durable when the test says so."""

    def submit(
        self, log: Log, batches: memoryview, base_offset: int, next_offset: int, leader_epoch: int
    ) -> None:
        pass

    def note_truncation(
        self, log: Log, offset: int, noted: Callable[[ApiError | None], None]
    ) -> None:
        noted(None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log that syncs: nothing is durable until `mark_durable`."""
    log = open_log(
        tmp_path / "orders-0",
        TopicPartition("orders", 0),
        LogConfig(),
        world=InlineWorld(now_ms=NOW),
        topic_id=TOPIC_ID,
        sink=ManualSink(),
    )
    yield log
    log.close()


def nobody_waits() -> Waiting:
    return Waiting(lambda: 0.0, lambda seconds, callback: None, lambda: None)


@pytest.fixture
def partition(log: Log) -> Partition:
    """Led by this node, 1, alone."""
    partition = Partition("orders", 0, TOPIC_ID, 1, log, nobody_waits())
    partition.lead(state(), NOW)
    return partition


def state(
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
) -> PartitionImage:
    return PartitionImage(0, leader, leader_epoch, partition_epoch, replicas, isr or replicas)


def batch(
    *timestamps: int, producer_id: int = -1, sequence: int = -1, transactional: bool = False
) -> memoryview:
    records = [
        Record(index, timestamp, b"key", b"value") for index, timestamp in enumerate(timestamps)
    ]
    return memoryview(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def append(partition: Partition, *timestamps: int) -> AppendResult:
    return partition.append_as_leader(batch(*(timestamps or (NOW,))), NOW)


def end_transaction(partition: Partition, producer_id: int, *, commit: bool) -> None:
    marker = encode_end_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=commit,
        coordinator_epoch=0,
        timestamp_ms=NOW,
    )
    partition.append_as_leader(memoryview(marker), NOW, origin=Origin.COORDINATOR)


def read_offsets(partition: Partition, offset: int = 0, *, read_committed: bool = False) -> range:
    """The offsets that a consumer gets."""
    found = partition.read(offset, 1 << 20, read_committed=read_committed).slice
    assert found is not None
    if found.file_slice is None:
        return range(offset, offset)
    headers = [each for _, each in iterate_headers(found.file_slice.read(OsFiles()))]
    return range(headers[0].base_offset, headers[-1].next_offset)


def code_of(caught: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return caught.value.code


def test_readers_see_what_is_durable(partition: Partition, log: Log) -> None:
    result = append(partition)
    append(partition)
    assert (partition.high_watermark, partition.log_end_offset) == (0, 2)
    assert read_offsets(partition) == range(0)
    log.mark_durable(result.next_offset)
    assert partition.high_watermark == 1
    assert read_offsets(partition) == range(1)
    log.mark_durable(2)
    assert read_offsets(partition) == range(2)


def test_in_the_page_cache_an_append_is_committed_at_once(partition: Partition, log: Log) -> None:
    log.config = LogConfig(durability="page-cache")
    append(partition)
    assert partition.high_watermark == 1


def test_only_the_leader_takes_writes_and_answers(partition: Partition) -> None:
    partition.follow(state(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2)))
    for act in (
        lambda: append(partition),
        lambda: partition.read(0, 100),
        lambda: partition.list_offset(LATEST_TIMESTAMP),
        lambda: partition.end_offset_for_epoch(0),
        lambda: partition.delete_records(0),
    ):
        with pytest.raises(ApiError) as caught:
            act()
        assert code_of(caught) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_image_of_an_older_epoch_is_ignored(partition: Partition) -> None:
    partition.lead(state(leader_epoch=3, partition_epoch=5), NOW)
    partition.follow(state(leader=2, leader_epoch=2, partition_epoch=4))
    assert partition.is_leader
    assert partition.leader_epoch == 3


def test_a_client_with_another_leader_epoch_is_fenced_or_ahead(partition: Partition) -> None:
    partition.lead(state(leader_epoch=2, partition_epoch=1), NOW)
    partition.check_leader_epoch(-1)
    partition.check_leader_epoch(2)
    for epoch, code in ((1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(ApiError) as caught:
            partition.read(0, 100, current_leader_epoch=epoch)
        assert code_of(caught) is code


def test_batches_carry_the_leader_epoch(partition: Partition, log: Log) -> None:
    append(partition)
    partition.lead(state(leader_epoch=4, partition_epoch=1), NOW)
    append(partition)
    log.mark_durable(2)
    found = partition.read(0, 1 << 20).slice
    assert found is not None
    assert found.file_slice is not None
    headers = [each for _, each in iterate_headers(found.file_slice.read(OsFiles()))]
    assert [header.partition_leader_epoch for header in headers] == [0, 4]


def test_an_open_transaction_holds_the_last_stable_offset(partition: Partition, log: Log) -> None:
    append(partition)
    partition.append_as_leader(batch(NOW, producer_id=7, sequence=0, transactional=True), NOW)
    append(partition)
    log.mark_durable(3)
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    assert read_offsets(partition, read_committed=True) == range(1)
    assert read_offsets(partition) == range(3)


def test_a_transaction_has_ended_when_its_marker_is_durable(partition: Partition, log: Log) -> None:
    partition.append_as_leader(batch(NOW, producer_id=7, sequence=0, transactional=True), NOW)
    log.mark_durable(1)
    end_transaction(partition, 7, commit=True)
    assert log.first_unstable_offset is None
    assert partition.last_stable_offset == 0
    partition.append_as_leader(batch(NOW, producer_id=8, sequence=0, transactional=True), NOW)
    log.mark_durable(2)
    assert partition.last_stable_offset == 2
    end_transaction(partition, 8, commit=True)
    log.mark_durable(3)
    assert partition.last_stable_offset == 2
    log.mark_durable(4)
    assert partition.last_stable_offset == 4


def test_readers_of_committed_records_are_told_what_was_aborted(
    partition: Partition, log: Log
) -> None:
    for producer_id in (9, 7):
        partition.append_as_leader(
            batch(NOW, producer_id=producer_id, sequence=0, transactional=True), NOW
        )
    end_transaction(partition, 7, commit=False)
    end_transaction(partition, 9, commit=False)
    log.mark_durable(4)
    committed = partition.read(0, 1 << 20, read_committed=True)
    assert committed.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [
        (9, 0),
        (7, 1),
    ]
    assert partition.read(0, 1 << 20).aborted_transactions is None
    assert partition.read(4, 1 << 20, read_committed=True).aborted_transactions == []


def test_a_reader_whose_log_went_another_way_is_told_where(partition: Partition, log: Log) -> None:
    append(partition)
    append(partition)
    partition.lead(state(leader_epoch=2, partition_epoch=1), NOW)
    append(partition)
    log.mark_durable(3)
    found = partition.read(3, 100, last_fetched_epoch=2)
    assert found.diverging_epoch is None
    found = partition.read(3, 100, last_fetched_epoch=1)
    assert found.diverging_epoch == (0, 2)
    assert found.slice is None
    assert (found.high_watermark, found.log_start_offset) == (3, 0)
    with pytest.raises(ApiError) as caught:
        partition.read(3, 100, last_fetched_epoch=9)
    assert code_of(caught) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_epochs_end_where_the_next_one_begins_even_when_that_is_empty(
    partition: Partition, log: Log
) -> None:
    assert partition.end_offset_for_epoch(0) == (0, 0)
    append(partition)
    append(partition)
    partition.lead(state(leader_epoch=5, partition_epoch=1), NOW)
    assert partition.end_offset_for_epoch(0) == (0, 2)
    assert partition.end_offset_for_epoch(3) == (0, 2)
    assert partition.end_offset_for_epoch(5) == (5, 2)
    append(partition)
    assert partition.end_offset_for_epoch(3) == (0, 2)
    assert partition.end_offset_for_epoch(5) == (5, 3)
    assert partition.end_offset_for_epoch(6) == (-1, -1)
    assert partition.end_offset_for_epoch(-1) == (-1, -1)


def test_offsets_by_time_and_by_special_timestamps(partition: Partition, log: Log) -> None:
    assert partition.list_offset(EARLIEST_TIMESTAMP) == (-1, 0, 0)
    assert partition.list_offset(MAX_TIMESTAMP) == (-1, -1, -1)
    append(partition, NOW, NOW + 9, NOW + 5)
    partition.append_as_leader(batch(NOW + 6, producer_id=7, sequence=0, transactional=True), NOW)
    log.mark_durable(4)
    assert partition.list_offset(LATEST_TIMESTAMP) == (-1, 4, 0)
    assert partition.list_offset(LATEST_TIMESTAMP, read_committed=True) == (-1, 3, 0)
    assert partition.list_offset(EARLIEST_TIMESTAMP) == (-1, 0, 0)
    assert partition.list_offset(EARLIEST_LOCAL_TIMESTAMP) == (-1, 0, 0)
    assert partition.list_offset(LATEST_TIERED_TIMESTAMP) == (-1, -1, -1)
    assert partition.list_offset(MAX_TIMESTAMP) == (NOW + 9, 1, 0)
    assert partition.list_offset(NOW + 1) == (NOW + 9, 1, 0)
    assert partition.list_offset(NOW + 100) == (-1, -1, -1)


def test_a_search_by_time_finds_nothing_that_readers_cannot_see(partition: Partition) -> None:
    append(partition)
    assert partition.list_offset(NOW) == (-1, -1, -1)


def test_records_are_deleted_up_to_the_high_watermark_at_most(
    partition: Partition, log: Log
) -> None:
    append(partition, NOW, NOW, NOW)
    log.mark_durable(2)
    assert partition.delete_records(1) == 1
    assert partition.delete_records(0) == 1
    for offset in (3, -2):
        with pytest.raises(ApiError) as caught:
            partition.delete_records(offset)
        assert code_of(caught) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 2
    with pytest.raises(ApiError) as caught:
        partition.read(1, 100)
    assert code_of(caught) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_are_not_deleted(partition: Partition, log: Log) -> None:
    log.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(ApiError) as caught:
        partition.delete_records(0)
    assert code_of(caught) is ErrorCode.POLICY_VIOLATION


def test_the_high_watermark_is_the_smallest_durable_end_of_the_in_sync_set(
    partition: Partition, log: Log
) -> None:
    partition.lead(state(partition_epoch=1, replicas=(1, 2, 3)), NOW)
    append(partition, NOW, NOW, NOW)
    log.mark_durable(3)
    assert partition.high_watermark == 0
    partition.record_follower_fetch(2, 3, 0, NOW)
    assert partition.high_watermark == 0
    partition.record_follower_fetch(3, 2, 0, NOW)
    assert partition.high_watermark == 2
    # A set without the slow follower goes on; the mark never goes back.
    partition.lead(state(partition_epoch=2, replicas=(1, 2, 3), isr=(1, 2)), NOW)
    assert partition.high_watermark == 3
    partition.lead(state(partition_epoch=3, replicas=(1, 2, 3)), NOW)
    assert partition.high_watermark == 3


def test_a_follower_reads_beyond_the_high_watermark(partition: Partition, log: Log) -> None:
    partition.lead(state(partition_epoch=1, replicas=(1, 2)), NOW)
    append(partition)
    found = partition.read(0, 1 << 20, replica_id=2).slice
    assert found is not None
    assert found.next_offset == 1
    with pytest.raises(ApiError) as caught:
        partition.record_follower_fetch(9, 0, 0, NOW)
    assert code_of(caught) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_all_needs_enough_replicas_in_sync(partition: Partition, log: Log) -> None:
    log.config = LogConfig(min_insync_replicas=2)
    append(partition)  # one replica cannot be asked to be two
    partition.lead(state(partition_epoch=1, replicas=(1, 2), isr=(1,)), NOW)
    with pytest.raises(ApiError) as caught:
        append(partition)
    assert code_of(caught) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.append_as_leader(batch(NOW), NOW, required_acks=1)
    assert partition.log_end_offset == 2


def test_partitions_are_found_by_name_and_by_id(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    assert registry.get("orders", 0) is registry.get_by_id(TOPIC_ID, 0) is partition
    assert registry.get("orders", 1) is registry.get_by_id(bytes(16), 0) is None
    assert registry.of_topic("orders") == list(registry) == [partition]
    assert len(registry) == 1
    with pytest.raises(AssertionError, match="registered twice"):
        registry.add(partition)
    assert registry.remove("orders", 0) is partition
    assert registry.remove("orders", 0) is None
    assert registry.get_by_id(TOPIC_ID, 0) is None


@pytest.mark.parametrize(("known", "taken"), [(0, 0), (2, 2), (9, 3)])
def test_the_high_watermark_of_an_earlier_life_counts_as_far_as_the_log_goes(
    partition: Partition, log: Log, known: int, taken: int
) -> None:
    append(partition, NOW, NOW, NOW)
    again = Partition("orders", 0, TOPIC_ID, 1, log, nobody_waits(), high_watermark=known)
    again.follow(state(leader=2, leader_epoch=1, replicas=(1, 2)))
    assert again.high_watermark == taken
