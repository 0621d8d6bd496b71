"""What lies between two images, with and without the records between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.image_difference import image_difference
from tidelog.cluster.metadata.records.brokers import RegisterBrokerRecord, UnregisterBrokerRecord
from tidelog.cluster.metadata.records.settings import ConfigRecord, FeatureLevelRecord
from tidelog.cluster.metadata.records.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog.protocol.schema import Message

TOPIC, BROKER = 2, 4


def topic_id(number: int) -> bytes:
    return bytes((number,)) * 16


def make_topic(number: int, life: int) -> list[Message]:
    made = topic_id(number * 16 + life)
    return [
        TopicRecord(name=f"topic-{number}", topic_id=made),
        PartitionRecord(topic_id=made, partition_id=0, replicas=[1], isr=[1], leader=1),
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[list[Message]]:
    """Changes one after the other, each of which can be applied."""
    alive: dict[int, int] = {}
    lives: dict[int, int] = {}
    changes: list[list[Message]] = []
    brokers: set[int] = set()
    for _ in range(draw(st.integers(1, 12))):
        number = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["make", "remove", "elect", "config", "broker", "feature"]))
        if kind == "make" and number not in alive:
            alive[number] = lives[number] = lives.get(number, 0) + 1
            changes.append(make_topic(number, alive[number]))
        elif kind == "remove" and number in alive:
            gone = topic_id(number * 16 + alive.pop(number))
            changes.append([RemoveTopicRecord(topic_id=gone)])
        elif kind == "elect" and number in alive:
            elected = topic_id(number * 16 + alive[number])
            leader = draw(st.integers(-1, 3))
            changes.append([PartitionChangeRecord(topic_id=elected, partition_id=0, leader=leader)])
        elif kind == "config":
            value = draw(st.sampled_from(["1", "2", None]))
            resource = draw(st.sampled_from([TOPIC, BROKER]))
            changes.append(
                [ConfigRecord(resource_type=resource, resource_name="1", name="x", value=value)]
            )
        elif kind == "broker" and number not in brokers:
            brokers.add(number)
            changes.append([RegisterBrokerRecord(broker_id=number, broker_epoch=number)])
        elif kind == "broker":
            brokers.discard(number)
            changes.append([UnregisterBrokerRecord(broker_id=number, broker_epoch=number)])
        elif kind == "feature":
            level = draw(st.integers(0, 2))
            changes.append([FeatureLevelRecord(name="group.version", feature_level=level)])
    return changes


def after(image: MetadataImage, records: Sequence[Message]) -> MetadataImage:
    return image.apply(records, image.offset + len(records), 1, 1)[0]


@given(histories(), st.data())
def test_the_difference_says_what_the_records_between_say(
    changes: list[list[Message]], data: st.DataObject
) -> None:
    images = list(accumulate(changes, after, initial=MetadataImage()))
    first = data.draw(st.integers(0, len(changes)))
    before, last = images[first], images[-1]
    records = [record for change in changes[first:] for record in change]
    _, told = before.apply(records, last.offset, 1, 1)
    found = image_difference(before, last)
    assert {each.topic_id for each in found.created_topics} == {
        each.topic_id
        for each in last.topics_by_name.values()
        if each.topic_id not in before.topics_by_id
    }
    assert {each.topic_id for each in found.deleted_topics} == {
        each.topic_id
        for each in before.topics_by_name.values()
        if each.topic_id not in last.topics_by_id
    }
    # The records may name what has not changed in the end; nothing that has changed is left out.
    for name in ("configs", "brokers", "features"):
        assert getattr(found, name) <= getattr(told, name)
    for old, new in found.changed_topics:
        assert (old.topic_id, old.name) == (new.topic_id, new.name)
        assert old != new
    changed = {old.topic_id for old, _ in found.changed_topics}
    for each, topic in before.topics_by_id.items():
        assert (each in changed) == (last.topics_by_id.get(each, topic) != topic)
    assert image_difference(last, last) == image_difference(before, before)
