"""A consumer in a group: the records of the partitions that the group gives to this member."""

from collections.abc import Iterable, Iterator, Mapping

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.fetcher import Fetched, Fetcher, FetchSettings
from tidelog.client.cluster.membership import Membership, MembershipSettings
from tidelog.client.errors import ConsumeError
from tidelog.protocol.topic_partition import TopicPartition


class GroupConsumer:
    """Reads topics as a member of a group, from where the group has committed.

    Nothing is committed until `commit` is called. When the group rebalances, what was given out and
    not committed comes again, here or at another member. Not safe to share between threads.
    """

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        topics: Iterable[str],
        fetching: FetchSettings,
        membership: MembershipSettings,
    ) -> None:
        self._client = client
        self._fetching = fetching
        self._fetcher = Fetcher(client, fetching)
        self._membership = Membership(client, group_id, topics, membership)

    def __enter__(self) -> "GroupConsumer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group."""
        self._fetcher.close()
        self._membership.close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are this member's."""
        return frozenset(self._fetcher.positions)

    @property
    def is_at_end(self) -> bool:
        """Whether this member has partitions, and has given out all that they had."""
        return bool(self.assignment) and self.assignment <= self._fetcher.at_end

    def poll(self, timeout_s: float) -> Iterator[Fetched]:
        """What comes next, or nothing within the time; what is not taken of it is lost.

        Joins the group first where it has to, which may take longer.
        """
        if not self._membership.poll():
            self._fetcher.assign({})
            partitions = self._membership.join()
            self._fetcher.assign(self._positions(partitions))
        yield from self._fetcher.poll(timeout_s)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record in the group that everything before these offsets is done.

        Nothing happens if it rebalances meanwhile: the records come again.
        """
        self._membership.commit(offsets)

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self._membership.committed()
        positions = {name: committed[name] for name in partitions if name in committed}
        fresh = [name for name in partitions if name not in committed]
        reset = self._fetching.reset
        if fresh and reset is None:
            raise ConsumeError(
                f"the group {self._membership.group_id} has no committed offset of {fresh[0]}"
            )
        if fresh and reset is not None:
            (found,) = self._client.list_offsets(
                [dict.fromkeys(fresh, reset)], read_committed=self._fetching.read_committed
            )
            positions |= found
        return positions
