"""Which partitions a query reads: named topics, topics by pattern, or named partitions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import parse_partitions

NAMES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of the three is given. `topics` is None where the broker must list all it has."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    @property
    def option(self) -> str:
        """The option that it came from."""
        if self.pattern is not None:
            return "subscribePattern"
        return "subscribe" if self.partitions is None else "assign"

    def chooses_topic(self, topic: str) -> bool:
        if self.pattern is not None:
            # Found anywhere in the name, as Spark's Kafka source does it.
            return re.search(self.pattern, topic) is not None
        assert self.topics is not None
        return topic in self.topics

    def chosen(self, existing: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of the broker's partitions that the query reads."""
        return {
            name
            for name in existing
            if self.chooses_topic(name.topic)
            and (self.partitions is None or name in self.partitions)
        }


def parse_subscription(options: Mapping[str, str]) -> Subscription:
    """From exactly one of the options subscribe, subscribePattern and assign."""
    given = [name for name in NAMES if name.lower() in options]
    if len(given) != 1:
        found = f"{' and '.join(given)} are both given" if given else "none is given"
        raise OptionError(f"exactly one of the options {', '.join(NAMES)} is needed: {found}")
    (name,) = given
    text = options[name.lower()].strip()
    if not text:
        raise OptionError(f"option {name} is empty")
    if name == "assign":
        partitions = parse_partitions(name, text)
        return Subscription(frozenset(each.topic for each in partitions), partitions=partitions)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option {name}={text!r} is no pattern: {error}") from error
        return Subscription(pattern=text)
    topics = frozenset(each.strip() for each in text.split(",") if each.strip())
    if not topics:
        raise OptionError(f"option {name}={text!r} names no topic")
    return Subscription(topics)
