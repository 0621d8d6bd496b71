"""Range: each topic is cut into one contiguous range per member.

Members keep one order for all topics, so topics with the same number of partitions and the same
subscribers are cut alike and a member that joins them reads the same partitions of both.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.groups.assignors.assignor import Assignment, MemberSubscription


def assign_range(
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """`current` is not looked at: the order of the members is what makes ranges stay."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        # Static members come first, by the name that survives their restart.
        return (instance_id is None, member_id if instance_id is None else instance_id)

    order = sorted(members, key=place)
    result: dict[str, Assignment] = {member_id: {} for member_id in members}
    for topic_id in sorted(partition_counts):
        readers = [m for m in order if topic_id in members[m].topic_ids]
        if not readers:
            continue
        share, extra = divmod(partition_counts[topic_id], len(readers))
        start = 0
        for position, member_id in enumerate(readers):
            end = start + share + (1 if position < extra else 0)
            if end > start:
                result[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return result
