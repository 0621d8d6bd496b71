"""Which partitions of a request exist.

The offset APIs name topics and, in rows below them, partitions. What does not exist is answered
here, row by row; the coordinator gets the rest, and its answer is put together with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import TopicImage


class _Topic(Protocol):
    name: str
    partitions: list[Any]


Wanted = TypeVar("Wanted", bound=_Topic)
Answered = TypeVar("Answered", bound=_Topic)


def take_unknown(
    topics: Iterable[Wanted], find: Callable[[Wanted], TopicImage | None]
) -> tuple[list[Wanted], list[tuple[Wanted, list[int]]]]:
    """The topics with the partitions that exist, and the numbers of those that do not."""
    known: list[Wanted] = []
    unknown: list[tuple[Wanted, list[int]]] = []
    for topic in topics:
        found = find(topic)
        count = 0 if found is None else len(found.partitions)
        missing = [
            row.partition_index for row in topic.partitions if not 0 <= row.partition_index < count
        ]
        if missing:
            unknown.append((topic, missing))
            topic.partitions = [row for row in topic.partitions if 0 <= row.partition_index < count]
        if topic.partitions:
            known.append(topic)
    return known, unknown


def merged(refused: list[Answered], answered: list[Answered]) -> list[Answered]:
    """Both in one list, in which each topic stands once."""
    if not refused:
        return answered
    by_name = {topic.name: topic for topic in answered}
    for topic in refused:
        same = by_name.get(topic.name)
        if same is None:
            answered.append(topic)
        else:
            same.partitions = topic.partitions + same.partitions
    return answered
