"""A compacted topic: for each key the last acknowledged value is there, or a later one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import Operation, Outcome, Polled


def key_number(value: str, keys: int) -> int:
    """The key of a value of `SteadyProducer`: its number modulo the number of keys."""
    return int(value.rpartition("-")[2]) % keys


def compaction_problems(sent: Sequence[Operation], found: Sequence[Polled], keys: int) -> list[str]:
    """Compares what one producer sent, in this order, with what can be read at the end."""
    problems = []
    acknowledged: dict[tuple[Place, int], str] = {}
    outcomes: dict[str, Outcome] = {}
    last: dict[int, int] = {}
    for operation in sent:
        for send in operation.sends:
            value = str(send.value)
            outcomes[value] = operation.outcome
            if operation.outcome is Outcome.OK:
                last[key_number(value, keys)] = int(value.rpartition("-")[2])
                if send.offset is not None:
                    acknowledged[send.topic_partition, send.offset] = value
    newest: dict[int, int] = defaultdict(lambda: -1)
    for record in found:
        value = str(record.value)
        at = (record.topic_partition, record.offset)
        if acknowledged.get(at, value) != value:
            problems.append(f"{at} was acknowledged for {acknowledged[at]} and holds {value}")
        if outcomes.get(value, Outcome.FAILED) is Outcome.FAILED:
            problems.append(f"{at} holds {value}, which nobody has sent")
        number = int(value.rpartition("-")[2])
        key = number % keys
        if number <= newest[key]:
            problems.append(f"key {key} has {value} at {at} after its number {newest[key]}")
        newest[key] = max(newest[key], number)
    for key, number in sorted(last.items()):
        if newest[key] < number:
            problems.append(f"key {key} ends with number {newest[key]}; {number} was acknowledged")
    return problems
