"""DeleteTopics: by name, by id, and what is refused."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, describe_topic, list_offset, produce
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_go_by_name(wire: WireClient, new_name: NewName, version: int) -> None:
    topic, missing = new_name("topic"), new_name("missing")
    create_topic(wire, topic)
    request = DeleteTopicsRequest(
        topic_names=[topic, missing] if version < 6 else [],
        topics=[DeleteTopicState(name=topic), DeleteTopicState(name=missing)],
    )
    deleted, not_there = wire.call(request, version).responses
    assert (deleted.name, deleted.error_code) == (topic, 0)
    assert (not_there.name, not_there.error_code) == (
        missing,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert describe_topic(wire, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_go_by_id(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    topic_id = create_topic(wire, topic).topic_id
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=b"\x09" * 16)]
    )
    deleted, unknown = wire.call(request, 6).responses
    assert (deleted.name, deleted.topic_id, deleted.error_code) == (topic, topic_id, 0)
    assert (unknown.name, unknown.topic_id) == (None, b"\x09" * 16)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_ambiguous_rows_are_refused(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    topic_id = create_topic(wire, topic).topic_id
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(),
            DeleteTopicState(name=topic, topic_id=topic_id),
            DeleteTopicState(name=topic),
            DeleteTopicState(topic_id=topic_id),
        ]
    )
    rows = wire.call(request, 6).responses
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_REQUEST}
    assert describe_topic(wire, topic).error_code == 0


def test_a_topic_made_again_is_empty(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    produce(wire, topic, 1, 2, 3)
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    assert list_offset(wire, topic, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(wire, topic)
    assert list_offset(wire, topic, -1).offset == 0
