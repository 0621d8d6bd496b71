"""Uniform: as even as the subscriptions allow, and moving as little as that needs.

When all members want the same topics, loads differ by one at most and a partition moves only if its
member has more than its share. Otherwise partitions stay where they are as long as they may, free
ones go to the least loaded subscriber, and then single partitions move from a member to a
subscriber that has at least two fewer, until there is no such pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from tidelog.coordinator.groups.assignors.assignor import (
    Assignment,
    MemberSubscription,
    collect,
)

Partition = tuple[bytes, int]


def assign_uniform(
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    if not members:
        return {}
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) == 1:
        return _assign_alike(members, partition_counts, current)
    return _assign_mixed(members, partition_counts, current)


def _held(
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
    current: Mapping[str, Assignment],
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """What each member may keep, and the partitions that nobody has. The first of two members that
    claim one partition keeps it."""
    kept: dict[str, list[Partition]] = {member_id: [] for member_id in members}
    taken: set[Partition] = set()
    for member_id in sorted(members):
        wanted = members[member_id].topic_ids
        for topic_id, indexes in sorted(current.get(member_id, {}).items()):
            count = partition_counts.get(topic_id, 0)
            if topic_id not in wanted:
                continue
            for index in sorted(indexes):
                partition = (topic_id, index)
                if index < count and partition not in taken:
                    taken.add(partition)
                    kept[member_id].append(partition)
    wanted_topics = frozenset().union(*(member.topic_ids for member in members.values()))
    free = [
        (topic_id, index)
        for topic_id in sorted(wanted_topics)
        for index in range(partition_counts.get(topic_id, 0))
        if (topic_id, index) not in taken
    ]
    return kept, free


def _assign_alike(
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    kept, free = _held(members, partition_counts, current)
    total = len(free) + sum(map(len, kept.values()))
    share, extra = divmod(total, len(members))
    quota = {}
    # Those who hold most get the odd ones, so that the fewest partitions move.
    for position, member_id in enumerate(sorted(members, key=lambda m: (-len(kept[m]), m))):
        quota[member_id] = share + (1 if position < extra else 0)
    for member_id, partitions in kept.items():
        free += partitions[quota[member_id] :]
        del partitions[quota[member_id] :]
    free.sort(reverse=True)
    for member_id in sorted(members):
        partitions = kept[member_id]
        while len(partitions) < quota[member_id]:
            partitions.append(free.pop())
    return {member_id: _group(partitions) for member_id, partitions in kept.items()}


def _assign_mixed(
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    kept, free = _held(members, partition_counts, current)
    load = {member_id: len(partitions) for member_id, partitions in kept.items()}
    readers = {
        topic_id: sorted(m for m in members if topic_id in members[m].topic_ids)
        for topic_id in partition_counts
    }
    owners: dict[bytes, dict[int, str]] = {topic_id: {} for topic_id in partition_counts}
    for member_id, partitions in kept.items():
        for topic_id, index in partitions:
            owners[topic_id][index] = member_id

    free_of: dict[bytes, list[int]] = {}
    for topic_id, index in free:
        free_of.setdefault(topic_id, []).append(index)
    # A topic that few members want leaves the least choice: it goes first.
    for topic_id in sorted(free_of, key=lambda t: (len(readers[t]), t)):
        heap = [(load[m], m) for m in readers[topic_id]]
        heapify(heap)
        for index in free_of[topic_id]:
            count, member_id = heappop(heap)
            owners[topic_id][index] = member_id
            load[member_id] = count + 1
            heappush(heap, (count + 1, member_id))

    moved = True
    while moved:
        moved = False
        for topic_id in sorted(owners):
            moved |= _even_out(owners[topic_id], readers[topic_id], load)
    result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for topic_id, by_index in owners.items():
        for index, member_id in by_index.items():
            result[member_id].setdefault(topic_id, set()).add(index)
    return {member_id: collect(partitions) for member_id, partitions in result.items()}


def _even_out(owners: dict[int, str], readers: list[str], load: dict[str, int]) -> bool:
    """Moves partitions of one topic to lighter subscribers; each move makes the sum of the squared
    loads smaller, so repeating this ends."""
    moved = False
    heap = [(load[m], m) for m in readers]
    heapify(heap)
    for index in sorted(owners, key=lambda i: (-load[owners[i]], i)):
        owner = owners[index]
        while heap[0][0] != load[heap[0][1]]:
            _, stale = heappop(heap)
            heappush(heap, (load[stale], stale))
        lightest_load, lightest = heap[0]
        if load[owner] - lightest_load < 2:
            continue
        owners[index] = lightest
        load[owner] -= 1
        load[lightest] += 1
        heappush(heap, (load[owner], owner))
        moved = True
    return moved


def _group(partitions: list[Partition]) -> Assignment:
    result: dict[bytes, set[int]] = {}
    for topic_id, index in partitions:
        result.setdefault(topic_id, set()).add(index)
    return collect(result)
