"""Offsets of partitions by time, from all their leaders at once."""

from collections.abc import Mapping, Sequence

from tidelog.client.cluster.cluster import Cluster
from tidelog.client.cluster.retrying import Retries, Stale, is_retriable, retrying
from tidelog.client.cluster.view import Address
from tidelog.client.errors import BrokerError, ConnectError, RetriableError
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

EARLIEST = -2
LATEST = -1

_READ_COMMITTED = 1

_Timestamps = dict[TopicPartition, int]


def list_offsets(
    cluster: Cluster,
    asked: Sequence[Mapping[TopicPartition, int]],
    *,
    read_committed: bool,
    retries: Retries,
) -> list[dict[TopicPartition, int]]:
    """For each mapping from partitions to timestamps the first offsets not older, or -1.

    Any number of partitions takes one round trip, and one before it for leaders that are not known.
    Partitions that do not exist are left out. BrokerError names a partition that a broker refuses.
    """
    waiting = [dict(each) for each in asked]
    found: list[dict[TopicPartition, int]] = [{} for _ in asked]
    retrying(
        lambda: _attempt(cluster, waiting, found, read_committed),
        "the offsets of partitions",
        retries,
    )
    return found


def _attempt(
    cluster: Cluster,
    waiting: list[_Timestamps],
    found: list[dict[TopicPartition, int]],
    read_committed: bool,
) -> None:
    """What is answered moves from `waiting` to `found`."""
    failure: ConnectError | RetriableError | None = _find_leaders(cluster, waiting)
    requests: list[tuple[Address, Message]] = []
    places: list[int] = []
    for at, timestamps in enumerate(waiting):
        by_leader: dict[Address, _Timestamps] = {}
        for name, timestamp_ms in timestamps.items():
            leader = cluster.view.leaders.get(name)
            if leader is not None:
                by_leader.setdefault(leader.address, {})[name] = timestamp_ms
        for address, part in by_leader.items():
            requests.append((address, _request(part, read_committed)))
            places.append(at)
    for at, response in zip(places, cluster.exchange(requests, ListOffsetsResponse), strict=True):
        if isinstance(response, ConnectError):
            failure = response
            continue
        for topic in response.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                if is_retriable(row.error_code, Stale.METADATA):
                    cluster.view.invalidate_leader(name, row.error_code)
                    failure = RetriableError(ErrorCode(row.error_code), str(name))
                elif row.error_code:
                    raise BrokerError(ErrorCode(row.error_code), str(name))
                else:
                    found[at][name] = row.offset
                    del waiting[at][name]
    if failure is not None:
        raise failure
    for each in waiting:
        # Others that share the view may have invalidated a leader meanwhile.
        for name in each:
            raise RetriableError(ErrorCode.LEADER_NOT_AVAILABLE, str(name))


def _find_leaders(cluster: Cluster, waiting: list[_Timestamps]) -> RetriableError | None:
    """Ask for leaders that are not known; an error if a partition has none.

    Partitions that do not exist are waited for no longer.
    """
    known = cluster.view.leaders
    topics = {name.topic for each in waiting for name in each if name not in known}
    if not topics:
        return None
    failure = None
    exist: set[TopicPartition] = set()
    for topic in cluster.metadata(sorted(topics)).topics:
        rows = {TopicPartition(topic.name or "", each.partition_index) for each in topic.partitions}
        exist |= rows
        code = topic.error_code
        if not code:
            leaderless = sorted(rows - known.keys())
            if any(name in each for each in waiting for name in leaderless):
                failure = RetriableError(ErrorCode.LEADER_NOT_AVAILABLE, str(leaderless[0]))
        elif code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if not is_retriable(code, Stale.METADATA):
                raise BrokerError(ErrorCode(code), topic.name or "")
            failure = RetriableError(ErrorCode(code), topic.name or "")
            exist |= {name for each in waiting for name in each if name.topic == topic.name}
    for each in waiting:
        for name in list(each):
            if name.topic in topics and name not in exist:
                del each[name]
    return failure


def _request(timestamps: Mapping[TopicPartition, int], read_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, timestamp_ms in timestamps.items():
        row = ListOffsetsPartition(partition_index=name.partition, timestamp=timestamp_ms)
        topics.setdefault(name.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_COMMITTED if read_committed else 0,
        topics=[ListOffsetsTopic(name=each, partitions=rows) for each, rows in topics.items()],
    )
