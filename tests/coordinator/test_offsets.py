from dataclasses import replace

import pytest

from tests.coordinator.group_driver import FAST, Driver, FakeTopics, subscription, topic_id
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.offsets import CommittedOffset, Offsets
from tidelog.coordinator.records.consumer_offsets import CONSUMER_OFFSETS
from tidelog.coordinator.records.offset import OffsetCommitKey, OffsetCommitValue
from tidelog.coordinator.shard import CoordinatorRecord
from tidelog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequestGroup
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.uuids import ZERO_UUID

NONE = ErrorCode.NONE
DAY_MS = 24 * 3600 * 1000


def commit_in_transaction(
    driver: Driver, offset: int, producer_id: int = 9, *, member_id: str = "", generation: int = -1
) -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=3,
        generation_id=generation,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata="tx"
                    )
                ],
            )
        ],
    )
    client = ClientContext("c", "/127.0.0.1", 5)
    driver.run(driver.shard.offsets.commit_in_transaction(client, request, driver.now_ms))


def test_what_is_committed_comes_back_unchanged() -> None:
    driver = Driver()
    metadata = "héllo \x00 {json}"
    assert driver.commit(offset=12, metadata=metadata) == NONE
    for _ in range(2):
        row = driver.fetch()
        assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (
            12,
            2,
            metadata,
        )
        driver.restart()
    assert driver.fetch(partition=1).committed_offset == -1
    assert driver.fetch("other").committed_offset == -1


def test_null_metadata_is_read_as_the_empty_string() -> None:
    driver = Driver()
    driver.commit(metadata=None)
    assert driver.fetch().metadata == ""


def test_all_offsets_of_a_group_can_be_asked_for() -> None:
    driver = Driver()
    for partition in range(3):
        driver.commit(partition=partition, offset=partition)
    response = driver.shard.offsets.fetch(
        OffsetFetchRequestGroup(group_id="g", topics=None), require_stable=False
    )
    (topic,) = response.topics
    assert {row.partition_index: row.committed_offset for row in topic.partitions} == {
        0: 0,
        1: 1,
        2: 2,
    }


def test_metadata_has_a_limit() -> None:
    driver = Driver()
    assert driver.commit(metadata="x" * 4096) == NONE
    assert driver.commit(metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_only_members_of_the_generation_commit_to_a_group_that_has_members() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    assert driver.commit(member_id=member, epoch=1) == NONE
    assert driver.commit(member_id=member, epoch=0) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(member_id="nobody", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    driver.leave(member)
    assert driver.commit() == NONE


def test_a_commit_between_join_and_sync_is_told_to_rejoin() -> None:
    driver = Driver()
    ticket = driver.join(version=3)
    driver.advance(1)
    member = ticket.response.member_id
    assert driver.commit(member_id=member, epoch=1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_generation_of_an_unknown_group_is_refused() -> None:
    driver = Driver()
    assert driver.commit("new", "m", 1, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit("new", "m", 1, version=9) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_commits_under_its_instance_id() -> None:
    driver = Driver()
    ticket = driver.join(instance_id="one")
    driver.advance(1)
    member = ticket.response.member_id
    driver.sync(member, 1, {})
    assert driver.commit(member_id=member, epoch=1, instance_id="one") == NONE
    fenced = driver.commit(member_id="old", epoch=1, instance_id="one")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID


def test_an_offset_of_a_transaction_counts_when_the_transaction_commits() -> None:
    driver = Driver()
    driver.commit(offset=1)
    commit_in_transaction(driver, 5)
    assert driver.fetch().committed_offset == 1
    unstable = driver.fetch(require_stable=True)
    assert (unstable.error_code, unstable.committed_offset) == (
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        -1,
    )
    driver.shard.replay_end_marker(9, 3, committed=True)
    row = driver.fetch(require_stable=True)
    assert (row.committed_offset, row.metadata) == (5, "tx")


def test_an_offset_of_an_aborted_transaction_is_forgotten() -> None:
    driver = Driver()
    driver.commit(offset=1)
    commit_in_transaction(driver, 5)
    driver.shard.replay_end_marker(9, 3, committed=False)
    assert driver.fetch(require_stable=True).committed_offset == 1


def test_a_later_commit_is_not_taken_back_by_a_transaction() -> None:
    driver = Driver()
    commit_in_transaction(driver, 5)
    driver.commit(offset=8)
    driver.shard.replay_end_marker(9, 3, committed=True)
    assert driver.fetch().committed_offset == 8


def test_two_transactions_keep_their_offsets_apart() -> None:
    driver = Driver()
    commit_in_transaction(driver, 5, producer_id=1)
    commit_in_transaction(driver, 6, producer_id=2)
    driver.shard.replay_end_marker(2, 3, committed=True)
    assert driver.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    driver.shard.replay_end_marker(1, 3, committed=False)
    assert driver.fetch(require_stable=True).committed_offset == 6


def test_open_transactions_survive_a_restart() -> None:
    driver = Driver()
    commit_in_transaction(driver, 5)
    driver.restart()
    assert driver.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    driver.shard.replay_end_marker(9, 3, committed=True)
    assert driver.fetch().committed_offset == 5
    assert [row.group_id for row in driver.shard.list_groups((), ())] == ["g"]


def test_a_transaction_of_an_old_generation_is_refused() -> None:
    driver = Driver()
    (member,) = driver.stable_group(1)
    commit_in_transaction(driver, 5, member_id=member, generation=1)
    with pytest.raises(ApiError) as caught:
        commit_in_transaction(driver, 5, member_id=member, generation=0)
    assert caught.value.code == ErrorCode.ILLEGAL_GENERATION
    commit_in_transaction(driver, 6)  # old producers do not say who they are


def test_offsets_expire_after_their_retention() -> None:
    driver = Driver()
    driver.commit(offset=1)
    driver.advance(7 * DAY_MS - 700_000)
    assert driver.fetch().committed_offset == 1
    driver.advance(1_400_000)
    assert driver.fetch().committed_offset == -1
    assert driver.shard.list_groups((), ()) == []
    driver.restart()
    assert driver.fetch().committed_offset == -1


def test_a_client_may_ask_for_its_own_retention() -> None:
    driver = Driver()
    driver.commit(offset=1, retention_ms=3_600_000, version=4)
    driver.restart()
    driver.advance(3_000_000)
    assert driver.fetch().committed_offset == 1
    driver.advance(1_300_000)
    assert driver.fetch().committed_offset == -1


def test_the_retention_of_a_group_begins_when_it_is_empty() -> None:
    driver = Driver(replace(FAST, offsets_retention_minutes=60))
    (member,) = driver.stable_group(
        1, session_ms=1_800_000, protocols=[("range", subscription("t"))]
    )
    driver.commit(member_id=member, epoch=1)
    for _ in range(10):
        driver.advance(900_000)
        driver.heartbeat(member, 1)
    assert driver.fetch().committed_offset == 7, "its members are reading the topic"
    driver.leave(member)
    driver.advance(2_700_000)
    assert driver.fetch().committed_offset == 7
    driver.advance(1_600_000)
    assert driver.fetch().committed_offset == -1


def test_offsets_of_topics_that_a_live_group_no_longer_reads_expire() -> None:
    topics = Driver().topics.with_topic("old", 1)
    driver = Driver(replace(FAST, offsets_retention_minutes=60), topics)
    driver.commit(topic="old")
    driver.consumer("a", 0)
    driver.commit(member_id="a", epoch=1)
    for _ in range(120):
        driver.advance(40_000)
        driver.consumer("a", 1)
    assert driver.fetch(topic="old").committed_offset == -1
    assert driver.fetch().committed_offset == 7


def test_offsets_held_by_a_transaction_do_not_expire() -> None:
    driver = Driver(replace(FAST, offsets_retention_minutes=60))
    driver.commit(offset=1)
    commit_in_transaction(driver, 5)
    driver.advance(2 * 3_600_000)
    driver.shard.replay_end_marker(9, 3, committed=False)
    assert driver.fetch().committed_offset == 1


def test_offsets_go_with_their_topic() -> None:
    driver = Driver()
    driver.commit(offset=1)
    commit_in_transaction(driver, 5)
    driver.set_topics(driver.topics.without_topic("t"))
    assert driver.fetch().committed_offset == -1
    driver.shard.replay_end_marker(9, 3, committed=True)
    assert driver.fetch().committed_offset == -1, "not even a transaction brings it back"


def delete_offsets(driver: Driver, topic: str) -> ErrorCode:
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    try:
        response = driver.run(driver.shard.offsets.delete(request))
    except ApiError as error:
        return error.code
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_offsets_can_be_deleted_where_nobody_subscribes() -> None:
    driver = Driver(topics=Driver().topics.with_topic("u", 1))
    assert delete_offsets(driver, "t") == ErrorCode.GROUP_ID_NOT_FOUND
    driver.commit(topic="t")
    driver.commit(topic="u")
    driver.stable_group(1, protocols=[("range", subscription("t"))])
    assert delete_offsets(driver, "t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(driver, "u") == NONE
    assert driver.fetch(topic="u").committed_offset == -1
    assert driver.fetch(topic="t").committed_offset == 7


def test_offsets_of_a_connect_group_are_not_deleted_under_it() -> None:
    driver = Driver()
    driver.stable_group(1, protocol_type="connect")
    assert delete_offsets(driver, "t") == ErrorCode.NON_EMPTY_GROUP


def test_what_is_written_names_the_topic_by_its_id() -> None:
    driver = Driver()
    driver.commit(offset=10, metadata="m")
    commit_in_transaction(driver, 11)
    written = [value.hex() for _, value, _, _ in driver.log if value is not None]
    time_ms = f"{driver.now_ms:016x}"
    by_id = f"01 00 10 {topic_id('t').hex()}".replace(" ", "")
    assert written == [
        f"0004 000000000000000a 00000002 026d {time_ms}".replace(" ", "") + by_id,
        f"0004 000000000000000b ffffffff 037478 {time_ms}".replace(" ", "") + by_id,
    ]
    # A time of expiry is known to version 1 only, and that knows no ids.
    driver.commit(offset=10, retention_ms=1000)
    assert driver.log[-1][1] is not None
    assert driver.log[-1][1][:2] == b"\0\1"


def test_an_offset_in_a_topic_that_was_made_again_is_not_one_in_the_new_topic() -> None:
    driver = Driver()
    driver.commit()
    driver.commit(partition=1, retention_ms=1_000_000)
    # The coordinator was away when the topic was deleted, so that the offset has stayed.
    driver.topics = FakeTopics().with_topic("t", 4, generation=1)
    driver.restart()
    assert driver.fetch(by_id=topic_id("t", 1)).committed_offset == -1
    assert driver.fetch().committed_offset == 7, "by name it is told, as Kafka does"
    assert driver.fetch(partition=1, by_id=topic_id("t", 1)).committed_offset == 7
    driver.commit(offset=2)
    assert driver.fetch(by_id=topic_id("t", 1)).committed_offset == 2


@pytest.mark.parametrize("metadata", ["", "m", "é" * 40, "x" * 126, "x" * 127, "x" * 300])
@pytest.mark.parametrize("by_id", [topic_id("t"), ZERO_UUID])
def test_offsets_of_every_shape_are_loaded_by_bytes(metadata: str, by_id: bytes) -> None:
    value = OffsetCommitValue(
        offset=5, leader_epoch=1, metadata=metadata, commit_timestamp=100, topic_id=by_id
    )
    for version in (3, 4):
        offsets = Offsets()
        record = CoordinatorRecord(
            OffsetCommitKey(group="g", topic="t", partition=3), value, version
        )
        key, encoded = CONSUMER_OFFSETS.encode(record)
        offsets.replay_bytes(key, encoded, -1)
        known = by_id if version == 4 else ZERO_UUID
        assert offsets.get("g", "t", 3) == CommittedOffset(5, 1, metadata, 100, -1, 1, known)


def test_loading_by_bytes_is_the_same_as_replaying_records() -> None:
    offsets = Offsets()
    records = [
        offsets.commit_record(
            "g", "töpic", 2, CommittedOffset(4, 1, "", 100, -1, 0, topic_id("töpic"))
        ),
        offsets.commit_record("g", "töpic", 3, CommittedOffset(5, 1, "m", 100, -1, 0)),
        offsets.commit_record("g", "t", 0, CommittedOffset(6, -1, "", 100, 200, 0)),
        offsets.commit_record("h", "t", 0, CommittedOffset(7, 2, "x" * 300, 100, -1, 0)),
        offsets.tombstone("g", "t", 0),
    ]
    by_record, by_bytes = Offsets(), Offsets()
    for record in records:
        key, value = CONSUMER_OFFSETS.encode(record)
        decoded = CONSUMER_OFFSETS.decode(key, value)
        assert decoded is not None
        row = decoded.key
        by_record.replay(row.group, row.topic, row.partition, decoded.value, -1)  # type: ignore[attr-defined, arg-type]
        by_bytes.replay_bytes(key, value, -1)
    for group in ("g", "h"):
        assert by_record.of_group(group) == by_bytes.of_group(group)
    assert by_bytes.get("g", "töpic", 3) == CommittedOffset(5, 1, "m", 100, -1, 2)


@pytest.mark.parametrize("key", [b"\0\1\0\5g", b"\0\1\0\1g\0\1t\0", b"\0\1\0\1\xff\0\1t\0\0\0\0"])
def test_malformed_offset_records_are_found_out(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        Offsets().replay_bytes(key, b"\0\3" + bytes(30), -1)


@pytest.mark.parametrize("value", [b"\0\4", b"\0\4" + bytes(21), b"\0\3" + bytes(15), b"\0"])
def test_malformed_offsets_are_found_out(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        Offsets().replay_bytes(b"\0\1\0\1g\0\1t\0\0\0\0", value, -1)
