import pytest

from tidelog.cluster.topic_names import (
    collision_key,
    invalid_topic_name,
    is_internal,
    validate_topic_name,
)
from tidelog.protocol.errors import ApiError, ErrorCode


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "__consumer_offsets"])
def test_what_kafka_allows_is_allowed(name: str) -> None:
    assert invalid_topic_name(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ö", "a\n"])
def test_what_kafka_refuses_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")


def test_the_coordinators_topics_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__cluster_metadata")
    assert not is_internal("orders")
