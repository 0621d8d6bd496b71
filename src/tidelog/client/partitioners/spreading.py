"""Partitioners that look at no key: order between records of one key is not kept."""

import random

from tidelog.client.partitioners.choice import Choice
from tidelog.client.topic_layout import TopicLayout


class RoundRobin:
    """Each partition of a topic in turn, so that all get the same number of records."""

    native: str | None = None

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice:
        partition = self._next.get(layout.topic, 0) % layout.partition_count
        self._next[layout.topic] = partition + 1
        return Choice(partition)


class Random:
    """Any partition, each as likely as the others."""

    native: str | None = "random"

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice:
        return Choice(random.randrange(layout.partition_count))
