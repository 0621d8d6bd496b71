"""Whether topics are still those that a query has read: a name may be taken by another topic.

A topic that was deleted and made anew has another id. Offsets alone would not tell as soon as it
has as many records as the old one. Checkpoints hold no ids, so this is known while a query runs and
not across its starts.
"""

from collections.abc import Mapping

from tidelog.protocol.uuids import ZERO_UUID


def is_other_topic(before: bytes | None, now: bytes | None) -> bool:
    """Whether two ids are known and differ."""
    return len({before, now} - {None, ZERO_UUID}) == 2


class TopicIdentities:
    """The ids of topics, as brokers told them whenever the query looked."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._same: set[str] = set()

    def notice(self, ids: Mapping[str, bytes]) -> set[str]:
        """Take note of the ids of now; the topics that were others before.

        Brokers that know no ids tell zero.
        """
        known = {name: each for name, each in ids.items() if each != ZERO_UUID}
        self._same = {name for name, each in known.items() if self._ids.get(name) == each}
        remade = known.keys() & self._ids.keys() - self._same
        self._ids |= known
        return remade

    def is_same(self, topic: str) -> bool:
        """Whether it is known to be the topic that was read before."""
        return topic in self._same
