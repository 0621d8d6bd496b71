"""Client-side assignors."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cluster.assignors import ASSIGNORS, Assignor, assign_range, assign_round_robin
from tidelog.protocol.topic_partition import TopicPartition

TOPICS = ["a", "b", "c"]


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def test_range_gives_each_member_a_piece_of_each_topic() -> None:
    both = frozenset({"a", "b"})
    assert assign_range({"x": both, "y": both}, {"a": 3, "b": 3}) == {
        "x": partitions("a", 0, 1) + partitions("b", 0, 1),
        "y": partitions("a", 2) + partitions("b", 2),
    }


def test_round_robin_takes_turns() -> None:
    both = frozenset({"a", "b"})
    assert assign_round_robin({"x": both, "y": both}, {"a": 3, "b": 3}) == {
        "x": partitions("a", 0, 2) + partitions("b", 1),
        "y": partitions("a", 1) + partitions("b", 0, 2),
    }


def test_round_robin_passes_over_who_does_not_want_a_topic() -> None:
    wanted = {"x": frozenset({"a"}), "y": frozenset({"a", "b"})}
    assert assign_round_robin(wanted, {"a": 1, "b": 3}) == {
        "x": partitions("a", 0),
        "y": partitions("b", 0, 1, 2),
    }


@given(
    st.sampled_from(list(ASSIGNORS.values())),
    st.dictionaries(st.text("xyz", min_size=1), st.frozensets(st.sampled_from(TOPICS)), max_size=5),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_every_partition_that_is_wanted_has_one_reader(
    assign: Assignor, subscriptions: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    assigned = assign(subscriptions, counts)
    assert assigned.keys() == subscriptions.keys()
    given_out = [each for mine in assigned.values() for each in mine]
    wanted = frozenset().union(*subscriptions.values())
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number)
        for topic in wanted & counts.keys()
        for number in range(counts[topic])
    )
    for member, mine in assigned.items():
        assert {each.topic for each in mine} <= subscriptions[member]
