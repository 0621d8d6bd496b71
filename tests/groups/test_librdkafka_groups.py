"""librdkafka's consumers in groups, under both protocols."""

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.groups.conftest import create_topic, fill
from tests.groups.librdkafka_member import Member, eventually, share_evenly

KINDS = [
    pytest.param({"partition.assignment.strategy": "range"}, id="range"),
    pytest.param({"partition.assignment.strategy": "roundrobin"}, id="roundrobin"),
    pytest.param({"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative"),
    pytest.param({"protocol": "consumer"}, id="consumer"),
    pytest.param({"protocol": "consumer", "group.remote.assignor": "range"}, id="consumer-range"),
]
PROTOCOLS = ["classic", "consumer"]


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_a_topic_and_take_over_from_each_other(
    bootstrap: str, topic: str, kind: dict[str, str]
) -> None:
    with Member(bootstrap, topic, [topic], **kind) as first:
        eventually(share_evenly([first], topic, 4), "one member reads everything")
        eventually(lambda: len(set(first.read)) == 40, "all records are read")
        with Member(bootstrap, topic, [topic], **kind) as second:
            eventually(share_evenly([first, second], topic, 4), "two members share")
            with Member(bootstrap, topic, [topic], **kind) as third:
                eventually(share_evenly([first, second, third], topic, 4), "three members share")
            eventually(share_evenly([first, second], topic, 4), "two members share again")
        eventually(share_evenly([first], topic, 4), "the first has everything again")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param({"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative"),
        pytest.param({"protocol": "consumer"}, id="consumer"),
    ],
)
def test_what_a_member_keeps_it_keeps_through_a_rebalance(
    bootstrap: str, topic: str, kind: dict[str, str]
) -> None:
    with Member(bootstrap, topic, [topic], **kind) as first:
        eventually(share_evenly([first], topic, 4), "one member reads everything")
        with Member(bootstrap, topic, [topic], **kind) as second:
            eventually(share_evenly([first, second], topic, 4), "two members share")
            moved = set().union(*first.revoked)
            assert moved == second.assigned
            assert len(moved) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_restarts_without_a_rebalance(
    bootstrap: str, topic: str, protocol: str
) -> None:
    def static(instance: str) -> Member:
        return Member(
            bootstrap, topic, [topic], protocol=protocol, **{"group.instance.id": instance}
        )

    with static("one") as one:
        two = static("two")
        eventually(share_evenly([one, two], topic, 4), "two members share")
        held, revocations = set(two.assigned), len(one.revoked)
        two.close()
        with static("two") as again:
            eventually(lambda: again.assigned == held, "the same partitions as before")
            assert len(one.revoked) == revocations, "the other member noticed nothing"
            assert len(one.assigned) == 2


def test_a_static_member_fences_another_with_its_name(bootstrap: str, topic: str) -> None:
    settings = {"group.instance.id": "same"}
    with Member(bootstrap, topic, [topic], **settings) as first:
        eventually(share_evenly([first], topic, 4), "the first has everything")
        with Member(bootstrap, topic, [topic], **settings) as second:
            eventually(lambda: first.fatal is not None, "the first is told that it is fenced")
            assert "fenced" in str(first.fatal)
            eventually(share_evenly([second], topic, 4), "the second has everything")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_stopped(bootstrap: str, topic: str, protocol: str) -> None:
    with Member(bootstrap, topic, [topic], protocol=protocol) as first:
        eventually(lambda: len(first.read) == 40, "all records are read")
        offsets = [
            TopicPartition(topic, partition, 7, metadata=f"métadata-{partition}")
            for partition in range(4)
        ]
        first.commit(offsets)
        asked = [TopicPartition(topic, p) for p in range(4)]
        committed = first.call(lambda consumer: consumer.committed(asked, 20))
        assert [each.offset for each in committed] == [7] * 4
        assert [each.metadata for each in committed] == [f"métadata-{p}" for p in range(4)]
    with Member(bootstrap, topic, [topic], protocol=protocol) as second:
        eventually(lambda: len(second.read) == 12, "the rest is read")
        assert set(second.read) == {(topic, p, o) for p in range(4) for o in (7, 8, 9)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_expressions_find_topics_old_and_new(
    bootstrap: str, admin: AdminClient, name: str, protocol: str
) -> None:
    create_topic(admin, f"{name}-a", 1)
    create_topic(admin, f"x{name}-b", 1)
    with Member(bootstrap, name, [f"^{name}-.*"], protocol=protocol) as member:
        eventually(lambda: member.assigned == {(f"{name}-a", 0)}, "the topic that matches")
        create_topic(admin, f"{name}-c", 2)
        eventually(lambda: len(member.assigned) == 3, "the topic that came later")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_partitions_are_read(
    bootstrap: str, admin: AdminClient, name: str, protocol: str
) -> None:
    from confluent_kafka.admin import NewPartitions

    create_topic(admin, name, 1)
    with Member(bootstrap, name, [name], protocol=protocol) as member:
        eventually(lambda: member.partitions == {0}, "the one partition")
        admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
        eventually(lambda: member.partitions == {0, 1, 2}, "the new partitions")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_are_listed_described_and_deleted(
    bootstrap: str, admin: AdminClient, topic: str, protocol: str
) -> None:
    with Member(bootstrap, topic, [topic], protocol=protocol) as member:
        eventually(share_evenly([member], topic, 4), "the member has everything")

        def state() -> ConsumerGroupState:
            return admin.describe_consumer_groups([topic])[topic].result(20).state

        eventually(lambda: state() == ConsumerGroupState.STABLE, "the group is stable")
        described = admin.describe_consumer_groups([topic])[topic].result(20)
        (row,) = described.members
        assert {each.partition for each in row.assignment.topic_partitions} == {0, 1, 2, 3}
        assert row.host == "/127.0.0.1"
        kind = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
        listed = admin.list_consumer_groups(
            states={ConsumerGroupState.STABLE}, types={kind}
        ).result(20)
        assert topic in {each.group_id for each in listed.valid}
        member.commit([TopicPartition(topic, 0, 3)])
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([topic])[topic].result(20)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    admin.delete_consumer_groups([topic])[topic].result(20)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(20)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_are_reset_by_an_operator(bootstrap: str, admin: AdminClient, topic: str) -> None:
    wanted = [TopicPartition(topic, partition, 5) for partition in range(4)]
    request = ConsumerGroupTopicPartitions(topic, wanted)
    altered = admin.alter_consumer_group_offsets([request])[topic].result(20)
    assert all(each.error is None for each in altered.topic_partitions)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])
    rows = listed[topic].result(20).topic_partitions
    assert {(row.partition, row.offset) for row in rows} == {(p, 5) for p in range(4)}
    with Member(bootstrap, topic, [topic]) as member:
        eventually(lambda: len(member.read) == 20, "the second half is read")
        refused = admin.alter_consumer_group_offsets([request])[topic].result(20)
        assert {each.error.code() for each in refused.topic_partitions} == {
            KafkaError.UNKNOWN_MEMBER_ID
        }


def test_a_consumer_outside_of_group_management_commits(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 20)
    assert committed.offset == 4
    consumer.close()


def test_a_live_group_changes_its_protocol_and_loses_nothing(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    def kind() -> ConsumerGroupType:
        (row,) = [g for g in admin.list_consumer_groups().result(20).valid if g.group_id == topic]
        return row.type

    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    with Member(bootstrap, topic, [topic], **strategy) as classic:
        eventually(share_evenly([classic], topic, 4), "the classic member has everything")
        with Member(bootstrap, topic, [topic], protocol="consumer") as modern:
            eventually(share_evenly([classic, modern], topic, 4), "both kinds share")
            assert kind() == ConsumerGroupType.CONSUMER
            fill(bootstrap, topic, 4, 5)
            eventually(
                lambda: len({*classic.read, *modern.read}) == 60, "every record is read by one"
            )
        eventually(share_evenly([classic], topic, 4), "the classic member has everything again")
        assert kind() == ConsumerGroupType.CLASSIC
