"""Where a query starts and ends, found out: positions become offsets.

With a lake the earliest offset is the lake's, and a record that is searched by its time may be
found there.
"""

from dataclasses import dataclass

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Offsets,
    Position,
    written,
)
from tidelog.spark.source.lake_lookup import Coverage, LakeLookup
from tidelog.spark.source.subscribed_topics import SubscribedTopics


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is to read of each partition, from lake and broker together."""

    earliest: Offsets
    latest: Offsets
    losses: tuple[str, ...] = ()
    """In words, what is known to be amiss with it."""

    def within(self, offsets: Offsets, what: str) -> tuple[Offsets, list[str]]:
        """Offsets brought to the nearest that exist, and in words what that leaves out."""
        nearest, losses = {}, []
        for name, offset in sorted(offsets.items()):
            low, high = self.earliest[name], self.latest[name]
            nearest[name] = min(max(offset, low), high)
            if offset != nearest[name]:
                losses.append(f"{name} has offsets from {low} to {high}, not the {what} {offset}")
        return nearest, losses


@dataclass(frozen=True, slots=True)
class Asked:
    """A position of a query: `which` is "starting" or "ending", as its options are named.

    Where no record is as new as a timestamp asks, that is an error, or the latest offset.
    """

    which: str
    position: Position
    falls_to_latest: bool


def find_positions(
    topics: SubscribedTopics, lake: LakeLookup, names: set[TopicPartition], *asked: Asked
) -> tuple[Extent, list[Offsets]]:
    """What there is, and the offsets of each position, with one round trip to each leader.

    Partitions that went away meanwhile are in none of them.
    """
    questions = [_timestamps(each, names) for each in asked]
    # Before the ends are asked: an archive that goes on is not beyond them.
    coverage = lake.coverage(names, topics.topic_ids)
    earliest, latest, *answers = topics.list_offsets(
        dict.fromkeys(names, EARLIEST), dict.fromkeys(names, LATEST), *questions
    )
    present = earliest.keys() & latest.keys()
    extent = Extent(
        earliest_with_lake(coverage, {name: earliest[name] for name in present}),
        {name: latest[name] for name in present},
        tuple(beyond_ends(topics, coverage, latest)),
    )
    found = []
    for each, question, answer in zip(asked, questions, answers, strict=True):
        by_time = first_of_both(answer, lake.first_not_older(question) if question else {})
        found.append(offsets_at(each, extent, by_time))
    return extent, found


def first_of_both(from_broker: Offsets, from_lake: Offsets) -> Offsets:
    """Of the first offsets found by time in either the lower one; -1 is none."""
    return {
        name: min(offset, from_lake.get(name, offset)) if offset >= 0 else from_lake.get(name, -1)
        for name, offset in from_broker.items()
    }


def offsets_at(asked: Asked, extent: Extent, by_time: Offsets) -> Offsets:
    """The offsets of a position, given what there is and what was found by time."""
    position = asked.position
    if isinstance(position, Everywhere):
        return dict(extent.earliest if position.offset == EARLIEST else extent.latest)
    if isinstance(position, AtOffsets):
        special = {EARLIEST: extent.earliest, LATEST: extent.latest}
        return {
            name: special[offset][name] if offset in special else offset
            for name, offset in position.offsets.items()
            if name in extent.latest
        }
    offsets = {}
    for name, latest in extent.latest.items():
        offsets[name] = by_time.get(name, LATEST)
        if offsets[name] == LATEST:
            if not asked.falls_to_latest:
                raise OptionError(
                    f"option {_option(asked)}: {name} has no record that new; set "
                    f"startingOffsetsByTimestampStrategy to latest to start at its end"
                )
            offsets[name] = latest
    return offsets


def _timestamps(asked: Asked, names: set[TopicPartition]) -> Offsets:
    """What is to be searched by time."""
    position = asked.position
    if isinstance(position, AtTimestamp):
        return dict.fromkeys(names, position.timestamp_ms)
    if isinstance(position, Everywhere):
        return {}
    by_time = isinstance(position, AtTimestamps)
    given = position.timestamps_ms if isinstance(position, AtTimestamps) else position.offsets
    if given.keys() != names:
        raise OptionError(
            f"option {_option(asked)} must name each partition that is read (-1 and -2 stand for "
            f"the latest and the earliest offset): it lacks {written(names - given.keys())}, and "
            f"names {written(given.keys() - names)} besides"
        )
    return dict(given) if by_time else {}


def _option(asked: Asked) -> str:
    kinds = {AtOffsets: "Offsets", AtTimestamp: "Timestamp", AtTimestamps: "OffsetsByTimestamp"}
    return asked.which + kinds.get(type(asked.position), "Offsets")


def earliest_with_lake(coverage: Coverage, earliest: Offsets) -> Offsets:
    """The first offsets that can be read, given those of the brokers and what a lake covers."""
    if not coverage:
        return earliest
    from tidelog.spark.lake.union import earliest as earliest_of_both

    return {name: earliest_of_both(first, coverage.get(name)) for name, first in earliest.items()}


def beyond_ends(topics: SubscribedTopics, coverage: Coverage, latest: Offsets) -> list[str]:
    """In words, which partitions end before their archive does: so it is not of what is there.

    `latest` are ends that are known already, and may be those of committed records only.
    """
    beyond = {name: end for name, (_, end) in coverage.items() if end > latest.get(name, -1)}
    if not beyond:
        return []
    ends = topics.ends(beyond)
    return [
        f"{name} ends at offset {ends[name]}, and the lake holds it up to {end}: it lost its last "
        "records, or is another topic than the one that was archived"
        for name, end in sorted(beyond.items())
        if name in ends and end > ends[name]
    ]
