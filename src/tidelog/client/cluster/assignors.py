"""Client-side assignors of classic groups: which member reads which partition.

The leader of a group runs the one that all members know; `range` and `roundrobin` divide as those
of Kafka's own clients do. Members come in a fixed order, and so the same input gives the same
output.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from tidelog.protocol.topic_partition import TopicPartition

Subscriptions = Mapping[str, frozenset[str]]
"""For each member the topics that it wants."""

Assignor = Callable[[Subscriptions, Mapping[str, int]], dict[str, list[TopicPartition]]]


def assign_range(
    subscriptions: Subscriptions, partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each topic is cut into one contiguous range per member; the first get one more."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic, count in sorted(partition_counts.items()):
        members = _subscribers(subscriptions, topic)
        if not members:
            continue
        share, extra = divmod(count, len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + share + (place < extra)
            assigned[member] += [TopicPartition(topic, each) for each in range(start, end)]
            start = end
    return assigned


def assign_round_robin(
    subscriptions: Subscriptions, partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """All partitions in turn to the members, past those that do not want the topic."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    turns = cycle(subscriptions)
    for topic, count in sorted(partition_counts.items()):
        if not _subscribers(subscriptions, topic):
            continue
        for number in range(count):
            member = next(each for each in turns if topic in subscriptions[each])
            assigned[member].append(TopicPartition(topic, number))
    return assigned


ASSIGNORS: dict[str, Assignor] = {"range": assign_range, "roundrobin": assign_round_robin}
"""By the names of their protocols, the preferred one first."""


def _subscribers(subscriptions: Subscriptions, topic: str) -> Sequence[str]:
    return [member for member, topics in subscriptions.items() if topic in topics]
