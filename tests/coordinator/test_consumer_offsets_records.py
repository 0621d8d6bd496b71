"""The bytes of `__consumer_offsets` as Kafka's own tools read them."""

from tests.coordinator.group_driver import topic_id
from tidelog.coordinator.records.consumer_offsets import CONSUMER_OFFSETS
from tidelog.coordinator.records.group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    TopicPartitions,
)
from tidelog.coordinator.records.offset import OffsetCommitKey, OffsetCommitValue
from tidelog.coordinator.shard import CoordinatorRecord


def check(record: CoordinatorRecord, key: str, value: str) -> None:
    encoded = CONSUMER_OFFSETS.encode(record)
    assert encoded[0].hex() == key.replace(" ", "")
    assert encoded[1] is not None
    assert encoded[1].hex() == value.replace(" ", "")
    assert CONSUMER_OFFSETS.decode(*encoded) == record


def test_a_committed_offset() -> None:
    check(
        CoordinatorRecord(
            OffsetCommitKey(group="g", topic="t", partition=1),
            OffsetCommitValue(offset=10, leader_epoch=2, metadata="m", commit_timestamp=255),
            3,
        ),
        "0001 000167 000174 00000001",
        "0003 000000000000000a 00000002 00016d 00000000000000ff",
    )


def test_a_classic_group() -> None:
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=2,
        session_timeout=1,
        subscription=b"\x07",
        assignment=b"\x08",
    )
    check(
        CoordinatorRecord(
            GroupMetadataKey(group="g"),
            GroupMetadataValue(
                protocol_type="consumer",
                generation=4,
                protocol="range",
                leader="m",
                current_state_timestamp=9,
                members=[member],
            ),
            3,
        ),
        "0002 000167",
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 00016d 0000000000000009 00000001"
        " 00016d ffff 000163 00022f68 00000002 00000001 00000001 07 00000001 08",
    )


def test_the_epoch_of_a_consumer_group() -> None:
    check(
        CoordinatorRecord(
            ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5)
        ),
        "0003 000167",
        "0000 00000005 00",
    )


def test_a_member_of_a_consumer_group_that_speaks_classic() -> None:
    check(
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            ConsumerGroupMemberMetadataValue(
                client_id="c",
                client_host="/h",
                subscribed_topic_names=["t"],
                rebalance_timeout_ms=3,
                classic_member_metadata=ClassicMemberMetadata(
                    session_timeout_ms=1,
                    supported_protocols=[ClassicProtocol(name="r", metadata=b"\x01")],
                ),
            ),
        ),
        "0005 000167 00016d",
        # instance, rack, client, host, topics, regex, timeout, assignor; one tagged struct, which
        # begins with the byte that says that it is there.
        "0000 00 00 0263 032f68 020274 00 00000003 00 01 00 0c 01 00000001 02 0272 0201 00 00",
    )


def test_the_current_assignment_of_a_member() -> None:
    check(
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=6,
                previous_member_epoch=5,
                state=1,
                assigned_partitions=[TopicPartitions(topic_id=topic_id("t"), partitions=[0, 1])],
            ),
        ),
        "0008 000167 00016d",
        f"0000 00000006 00000005 01 02 {topic_id('t').hex()} 03 00000000 00000001 00 01 00",
    )


def test_records_of_newer_brokers_are_skipped() -> None:
    assert CONSUMER_OFFSETS.decode(b"\x00\x63\x00\x01g", b"\x00\x00") is None
