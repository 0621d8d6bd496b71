"""Duplicates that librdkafka makes itself, told apart from those of a cluster.

With several requests in flight an idempotent producer gets OUT_OF_ORDER_SEQUENCE_NUMBER when one is
refused (a full disk, too few in-sync replicas) and the one behind it is not. librdkafka then takes
the next producer epoch and sends everything again that was in flight, to all partitions, with what
had been appended without an answer so far. Kafka's brokers cannot know that those are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import Operation, Polled

_Names = dict[tuple[TopicPartition, int], Hashable]


def told_apart(
    history: Sequence[Operation], prefixes: Collection[str]
) -> tuple[list[Operation], int]:
    """The history with names of their own for resends, and how many there are.

    `prefixes` begin the values of producers that have taken a new epoch; the first place of a value
    keeps its name. All other duplicates stay what they are.
    """
    if not prefixes:
        return list(history), 0
    names = _resends(history, tuple(prefixes))
    if not names:
        return list(history), 0
    return [_renamed(operation, names) for operation in history], len(names)


def _resends(history: Sequence[Operation], prefixes: tuple[str, ...]) -> _Names:
    places: dict[tuple[str, Hashable], set[tuple[TopicPartition, int]]] = {}
    for operation in history:
        records = [record for poll in operation.polls for record in poll]
        for topic_partition, offset, value in records:
            if str(value).startswith(prefixes):
                at = (topic_partition, offset)
                places.setdefault((topic_partition.topic, value), set()).add(at)
    return {
        at: f"{value}#{number}"
        for (_, value), found in places.items()
        for number, at in enumerate(sorted(found))
        if number
    }


def _renamed(operation: Operation, names: _Names) -> Operation:
    return replace(
        operation,
        sends=[
            send
            if send.offset is None
            else send._replace(value=names.get((send.topic_partition, send.offset), send.value))
            for send in operation.sends
        ],
        polls=[
            [
                Polled(each.topic_partition, each.offset, names.get(each[:2], each.value))
                for each in poll
            ]
            for poll in operation.polls
        ],
    )
