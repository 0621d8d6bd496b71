"""Whether an archive is of the topic that brokers have now: a name may be taken by another topic.

The id of the topic is kept in the table's log beside its coverage, as two numbers. There is none
where the brokers tell none, and in archives of before ids were kept; then a topic that ends before
its archive does is all that can be noticed.
"""

from collections.abc import Mapping

from tidelog.protocol.uuids import format_uuid
from tidelog.spark.lake.coverage import VersionOf
from tidelog.spark.source.topic_identity import is_other_topic

_HALVES = ("high", "low")


def kept_topic_id(topic: str, version_of: VersionOf) -> bytes | None:
    """The id that the log of a table holds for a topic."""
    halves = [version_of(_half_id(topic, half)) for half in _HALVES]
    return b"".join(half.to_bytes(8, signed=True) for half in halves if half is not None) or None


def id_transactions(topic: str, topic_id: bytes) -> dict[str, int]:
    """The application transactions that keep the id of a topic."""
    parts = (topic_id[:8], topic_id[8:])
    return {
        _half_id(topic, half): int.from_bytes(part, signed=True)
        for half, part in zip(_HALVES, parts, strict=True)
    }


def other_topics(version_of: VersionOf, ids: Mapping[str, bytes]) -> list[str]:
    """In words, which topics are not those that were archived."""
    problems = []
    for topic, found in sorted(ids.items()):
        kept = kept_topic_id(topic, version_of)
        if kept is not None and is_other_topic(kept, found):
            problems.append(
                f"the topic {topic} (id {format_uuid(found)}) is not the one that was archived "
                f"(id {format_uuid(kept)}): it was deleted and made anew"
            )
    return problems


def _half_id(topic: str, half: str) -> str:
    return f"tidelog/{topic}/id/{half}"
