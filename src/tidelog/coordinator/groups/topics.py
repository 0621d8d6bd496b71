"""What the groups have to know of the topics: the part of the metadata image they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol


class TopicView(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[Any]: ...


class TopicsView(Protocol):
    """The metadata image; a new object for every change, `offset` grows with each."""

    @property
    def topics_by_name(self) -> Mapping[str, TopicView]: ...
    @property
    def topics_by_id(self) -> Mapping[bytes, TopicView]: ...
    @property
    def offset(self) -> int: ...


class NoTopics:
    """The view of a shard before it was given an image."""

    topics_by_name: Mapping[str, TopicView] = {}
    topics_by_id: Mapping[bytes, TopicView] = {}
    offset = -1


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Changes when one of these topics is created, deleted, recreated or gets partitions.

    0 means that none of them exists. Cost: one digest over about 60 bytes a topic.
    """
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = topics.topics_by_name.get(name)
        if topic is None:
            continue
        found = True
        digest.update(f"{len(name)}:{name}:{len(topic.partitions)}:".encode())
        digest.update(topic.topic_id)
    if not found:
        return 0
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
