"""DescribeTopicPartitions: pages of topics and partitions."""

from collections.abc import Callable

from tests.server.handlers.admin_calls import create_topic
from tidelog.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def page(
    wire: WireClient, names: list[str], limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response: DescribeTopicPartitionsResponse = wire.call(request, 0)
    return response


def test_topics_come_in_order_of_their_names(wire: WireClient, new_name: NewName) -> None:
    second, first = new_name("b-paged"), new_name("a-paged")
    topic_id = create_topic(wire, first, partitions=2).topic_id
    create_topic(wire, second)
    response = page(wire, [second, first])
    assert [topic.name for topic in response.topics] == [first, second]
    assert response.topics[0].topic_id == topic_id
    partition = response.topics[0].partitions[1]
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (1, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert partition.eligible_leader_replicas == []
    assert response.next_cursor is None


def test_pages_put_together_are_all_partitions(wire: WireClient, new_name: NewName) -> None:
    names = sorted(new_name(f"{letter}-paged") for letter in "cde")
    for name in names:
        create_topic(wire, name, partitions=3)
    seen = []
    cursor = None
    pages = 0
    while True:
        response = page(wire, names, limit=2, cursor=cursor)
        pages += 1
        count = 0
        for topic in response.topics:
            count += len(topic.partitions)
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        assert count <= 2
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == [(name, index) for name in names for index in range(3)]
    assert pages == 5


def test_without_topics_all_are_described(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    assert topic in [each.name for each in page(wire, []).topics]


def test_missing_and_impossible_topics_have_error_rows(wire: WireClient, new_name: NewName) -> None:
    missing = new_name("missing")
    rows = {row.name: row.error_code for row in page(wire, [missing, "bad name"]).topics}
    assert rows == {
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_a_wrong_cursor_is_refused(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    for cursor in (
        Cursor(topic_name=topic, partition_index=-1),
        Cursor(topic_name="another", partition_index=0),
    ):
        (row,) = page(wire, [topic], cursor=cursor).topics
        assert row.error_code == ErrorCode.INVALID_REQUEST
