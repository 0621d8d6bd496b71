"""Nodes that are gone for good when the faults end, so few that the others can do without.

Everything that can go on must then go on without them. Which they are is drawn when the faults end,
from what is in sync then: each partition keeps as many in-sync replicas as its topic needs, and the
quorum keeps a majority.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelog.cluster.metadata.image import MetadataImage, PartitionImage
from tidelog.testing.simulation.links import Link
from tidelog.testing.simulation.node import SimulatedNode

WAYS = ("dead", "cut off", "frozen")


def draw_minority(
    random: Random,
    nodes: Sequence[SimulatedNode],
    voters: Sequence[int],
    image: MetadataImage,
) -> list[SimulatedNode]:
    """As many nodes as are drawn, or fewer, or none."""
    wanted = random.choice((1, 1, 2))
    chosen: list[SimulatedNode] = []
    for node in random.sample(list(nodes), len(nodes)):
        ids = {each.node_id for each in (*chosen, node)}
        if len(chosen) < wanted and _can_do_without(ids, voters, image):
            chosen.append(node)
    return chosen


def _can_do_without(ids: set[int], voters: Sequence[int], image: MetadataImage) -> bool:
    if len(set(voters) - ids) * 2 <= len(voters):
        return False
    rows = [row for topic in image.topics_by_name.values() for row in topic.partitions]
    return bool(rows) and all(len(set(row.isr) - ids) >= min(2, len(row.replicas)) for row in rows)


def waits_for(row: PartitionImage) -> set[int]:
    """Who may lead a partition that has no leader: nobody else has all that is committed."""
    return set(row.isr or row.eligible_leader_replicas or row.last_known_elr)


def all_links(node: SimulatedNode, names: Sequence[str]) -> list[Link]:
    """Between a machine and all others, both ways."""
    others = [name for name in names if name != node.name]
    return [(node.name, name) for name in others] + [(name, node.name) for name in others]
