"""What goes into an assignor and what comes out.

An assignor is a pure function of the members' subscriptions, the topics' partition counts and the
assignment before. Every partition of a subscribed topic gets exactly one member that subscribes to
it; the same input gives the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = dict[bytes, frozenset[int]]  # topic id -> partitions; no topic without partitions


@dataclass(slots=True, frozen=True)
class MemberSubscription:
    """The ids of the existing topics that a member wants."""

    topic_ids: frozenset[bytes]
    instance_id: str | None = None


Assignor = Callable[
    [Mapping[str, MemberSubscription], Mapping[bytes, int], Mapping[str, Assignment]],
    dict[str, Assignment],
]


def collect(partitions: Mapping[bytes, set[int]]) -> Assignment:
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items() if indexes}
