"""Publishing to the leaders that are near."""

from tidelog.client.partitioners.choice import Choice
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.client.topic_layout import TopicLayout


class RackAware:
    """Records without a key go in turn to the partitions whose leader is in `rack`.

    With no leader there, all partitions take part. Records with a key go by its hash, because
    their order would break whenever a leader moves; `keys_too=True` gives that up and hashes keys
    over the near partitions only.
    """

    native: str | None = None

    def __init__(self, rack: str, *, keys_too: bool = False) -> None:
        self.rack = rack
        self.keys_too = keys_too
        self._turn: dict[str, int] = {}
        self._near: dict[str, tuple[TopicLayout, tuple[int, ...]]] = {}

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice:
        if key is not None and not self.keys_too:
            return Choice(key_partition(key, layout.partition_count))
        near = self._near_partitions(layout)
        if key is not None:
            return Choice(near[key_partition(key, len(near))])
        turn = self._turn.get(layout.topic, 0) % len(near)
        self._turn[layout.topic] = turn + 1
        return Choice(near[turn])

    def _near_partitions(self, layout: TopicLayout) -> tuple[int, ...]:
        cached = self._near.get(layout.topic)
        if cached is not None and cached[0] is layout:
            return cached[1]
        near = tuple(at for at, rack in enumerate(layout.leader_racks) if rack == self.rack)
        near = near or tuple(range(layout.partition_count))
        self._near[layout.topic] = (layout, near)
        return near
