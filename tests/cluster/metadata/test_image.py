from typing import Any

import pytest

from tests.cluster.cluster_host import ClusterHost, broker_uuid
from tidelog.cluster.features import METADATA_VERSION
from tidelog.cluster.metadata.image import (
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
)
from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.image_records import image_records
from tidelog.cluster.metadata.records import security, settings
from tidelog.cluster.metadata.records.brokers import BrokerRegistrationChangeRecord
from tidelog.cluster.metadata.records.log_control import NoOpRecord
from tidelog.cluster.metadata.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog.protocol.schema import Message

TOPIC = b"T" * 16


def applied(*records: Message, image: MetadataImage | None = None) -> MetadataImage:
    image = image or MetadataImage()
    after, _ = image.apply(records, image.offset + len(records), 1, 0)
    return after


def new_topic(name: str, topic_id: bytes, partitions: int = 1) -> list[Message]:
    records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for index in range(partitions)
    ]
    return records


def test_an_image_never_changes() -> None:
    before = applied(*new_topic("orders", TOPIC))
    topics, orders = dict(before.topics_by_name), before.topics_by_name["orders"]
    after = applied(
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1),
        *new_topic("more", b"M" * 16),
        image=before,
    )
    assert before.topics_by_name == topics
    assert before.topics_by_name["orders"] is orders
    assert after.topics_by_name["orders"].partitions[0].leader == -1
    assert set(after.topics_by_name) == {"orders", "more"}


def test_what_records_leave_alone_is_shared() -> None:
    records: list[Message] = []
    for number in range(50):
        records += new_topic(f"topic-{number}", number.to_bytes(16, "big"), 3)
    before = applied(*records)
    after = applied(
        PartitionChangeRecord(partition_id=1, topic_id=(7).to_bytes(16, "big"), leader=-1),
        image=before,
    )
    assert after.configs is before.configs
    assert after.brokers is before.brokers
    assert all(
        after.topics_by_name[name] is topic
        for name, topic in before.topics_by_name.items()
        if name != "topic-7"
    )
    changed, unchanged = after.topics_by_name["topic-7"], before.topics_by_name["topic-7"]
    assert changed.partitions[0] is unchanged.partitions[0]


def test_every_change_raises_the_partition_epoch_and_elections_the_leader_epoch() -> None:
    image = applied(*new_topic("orders", TOPIC))
    steps = [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1]),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1),
    ]
    epochs = []
    for step in steps:
        image = applied(step, image=image)
        partition = image.topics_by_id[TOPIC].partitions[0]
        epochs.append((partition.leader, partition.leader_epoch, partition.partition_epoch))
    assert epochs == [(1, 0, 1), (-1, 1, 2), (1, 2, 3), (1, 3, 4)]


def test_a_name_can_go_and_come_back_in_the_same_records() -> None:
    before = applied(*new_topic("orders", TOPIC))
    after, delta = before.apply(
        [RemoveTopicRecord(topic_id=TOPIC), *new_topic("orders", b"N" * 16, 2)], 9, 1, 0
    )
    assert after.topics_by_name["orders"].topic_id == b"N" * 16
    assert TOPIC not in after.topics_by_id
    assert [topic.topic_id for topic in delta.deleted_topics] == [TOPIC]
    assert [topic.topic_id for topic in delta.created_topics] == [b"N" * 16]
    assert not delta.changed_topics


@pytest.mark.parametrize(("cleared", "kept"), [("", []), ("orders", ["more"])])
def test_eligible_leader_replicas_are_cleared_of_a_topic_or_of_all(
    cleared: str, kept: list[str]
) -> None:
    change = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC, eligible_leader_replicas=[2], last_known_elr=[3]
    )
    other = b"M" * 16
    before = applied(
        *new_topic("orders", TOPIC),
        change,
        *new_topic("gone", b"G" * 16),
        *new_topic("more", other),
        PartitionChangeRecord(partition_id=0, topic_id=other, eligible_leader_replicas=[2]),
    )
    image = applied(
        RemoveTopicRecord(topic_id=b"G" * 16), ClearElrRecord(topic_name=cleared), image=before
    )
    partitions = {topic.name: topic.partitions[0] for topic in image.topics_by_name.values()}
    assert partitions.keys() == {"orders", "more"}
    assert [name for name, each in partitions.items() if each.eligible_leader_replicas] == kept
    assert partitions["orders"].last_known_elr == ()
    with pytest.raises(MetadataReplayError, match="no topic gone"):
        applied(ClearElrRecord(topic_name="gone"), image=image)


def test_a_topic_that_comes_and_goes_in_the_same_records_was_never_there() -> None:
    after, delta = MetadataImage().apply(
        [*new_topic("orders", TOPIC), RemoveTopicRecord(topic_id=TOPIC)], 3, 1, 0
    )
    assert not after.topics_by_name
    assert not delta.created_topics
    assert not delta.deleted_topics


def test_a_topics_settings_go_with_it() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    image = applied(
        *new_topic("orders", TOPIC),
        settings.ConfigRecord(resource_type=2, resource_name="orders", name="a", value="1"),
    )
    assert image.topic_configs("orders") == {"a": "1"}
    after, delta = image.apply([RemoveTopicRecord(topic_id=TOPIC)], 9, 1, 0)
    assert resource not in after.configs
    assert resource in delta.configs


def test_the_delta_says_what_was_touched() -> None:
    host = ClusterHost()
    _, delta = host.image.apply(
        [
            settings.ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
            settings.FeatureLevelRecord(name="group.version", feature_level=0),
            settings.ClientQuotaRecord(
                entity=[
                    settings.EntityData(entity_type="user", entity_name="a"),
                    settings.EntityData(entity_type="client-id", entity_name=None),
                ],
                key="k",
                value=1.0,
            ),
            security.UserScramCredentialRecord(name="alice", mechanism=1),
        ],
        99,
        1,
        0,
    )
    assert delta.configs == {ConfigResource(4, "")}
    assert delta.features == {"group.version"}
    assert delta.quotas == {(("client-id", None), ("user", "a"))}
    assert delta.scram == {("alice", 1)}


def test_features_of_level_zero_are_gone_but_for_the_metadata_version() -> None:
    image = applied(
        settings.FeatureLevelRecord(name=METADATA_VERSION, feature_level=25),
        settings.FeatureLevelRecord(name="group.version", feature_level=1),
        settings.FeatureLevelRecord(name="group.version", feature_level=0),
    )
    assert image.features == {METADATA_VERSION: 25}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (RemoveTopicRecord(topic_id=TOPIC), "no topic with id VFRUVFRUVFRUVFRUVFRUVA"),
        (PartitionRecord(topic_id=TOPIC), "no topic with id"),
        (PartitionChangeRecord(topic_id=TOPIC), "no topic with id"),
    ],
)
def test_a_record_about_nothing_is_refused(record: Any, reason: str) -> None:
    with pytest.raises(MetadataReplayError, match=reason):
        applied(record)


def test_a_topic_without_some_of_its_partitions_is_refused() -> None:
    with pytest.raises(MetadataReplayError, match=r"orders has the partitions \[1\]"):
        applied(
            TopicRecord(name="orders", topic_id=TOPIC),
            PartitionRecord(partition_id=1, topic_id=TOPIC),
        )


def test_records_that_change_nothing_move_the_offset_only() -> None:
    before = applied(*new_topic("orders", TOPIC))
    after = applied(NoOpRecord(), image=before)
    assert after == before.at(before.offset + 1, 1, 0)


def test_the_records_of_an_image_make_the_same_image() -> None:
    host = ClusterHost([1, 2], racks=["a", "b"])
    host.create("orders", partition_count=3, configs={"retention.ms": "5"})
    host.submit(
        [
            security.AccessControlEntryRecord(id=TOPIC, resource_name="orders", host="*"),
            security.DelegationTokenRecord(token_id="t", owner="o", renewers=["r"]),
            security.UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s"),
            settings.ProducerIdsRecord(next_producer_id=3000),
            BrokerRegistrationChangeRecord(
                broker_id=2,
                broker_epoch=host.image.brokers[2].epoch,
                cordoned_log_dirs=[broker_uuid(200)],
            ),
        ]
    )
    assert host.image.brokers[2].cordoned_log_dirs == (broker_uuid(200),)
    assert host.image.brokers[1].cordoned_log_dirs is None
    again, _ = MetadataImage().apply(
        image_records(host.image), host.image.offset, host.image.epoch, host.image.timestamp_ms
    )
    assert again == host.image
