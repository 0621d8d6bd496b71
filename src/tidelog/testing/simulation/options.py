"""What one seed is about: how much of what, and which faults how often."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

_WORKLOADS = (
    "records",
    "transactions",
    "classic group",
    "consumer group",
    "compaction",
    "plain sends",
    "topic changes",
)


@dataclass(slots=True)
class Options:
    """What one seed is about; drawn from the seed, and told when it fails."""

    duration_s: float
    topics: int
    partitions: int
    producers: int
    consumers: int
    transactional_ids: int
    classic_members: int
    consumer_members: int
    compacted_partitions: int
    plain_producers: int
    changing_topics: int
    internal_segment_bytes: int
    metadata_snapshot_bytes: int
    acks_all: bool
    segment_bytes: int
    slow_network: float
    dripping_network: float
    cutting_network: float
    stalling_network: float
    small_windows: float
    late_jobs: float
    late_turns: float
    short_writes: float
    power_cuts: int
    kills: int
    restarts: int
    clock_jumps: int
    nodes: int = 1
    hurried_aborts: float = 0.0
    """How often a transactional producer does not wait for its last batch, aborts, and begins
    again."""
    lossy_topic: str = ""
    """What a topic allows that may lose records: unclean elections, or page-cache, or both."""

    @classmethod
    def draw(cls, random: Random) -> Options:
        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        workloads = random.sample(_WORKLOADS, random.choice((1, 1, 1, 2, 3)))

        def count(workload: str, least: int, most: int) -> int:
            drawn = random.randint(least, most)
            return drawn if workload in workloads else 0

        return cls(
            duration_s=random.choice((0.3, 0.3, 0.6, 1.0, 2.0)),
            topics=random.randint(1, 2),
            partitions=random.randint(1, 3),
            producers=count("records", 1, 3),
            consumers=count("records", 0, 2),
            transactional_ids=count("transactions", 1, 2),
            classic_members=count("classic group", 1, 3),
            consumer_members=count("consumer group", 1, 3),
            compacted_partitions=count("compaction", 1, 2),
            plain_producers=count("plain sends", 1, 2),
            changing_topics=count("topic changes", 1, 2),
            internal_segment_bytes=random.choice((2_000, 10_000, 1 << 20)),
            metadata_snapshot_bytes=random.choice((1_000, 20 << 20)),
            acks_all=random.random() < 0.7,
            segment_bytes=random.choice((2_000, 10_000, 1 << 20)),
            slow_network=sometimes(0.3, 0.5),
            dripping_network=sometimes(0.3, 0.5),
            cutting_network=sometimes(0.4, 0.5),
            stalling_network=sometimes(0.3, 0.3),
            small_windows=sometimes(0.3, 0.5),
            late_jobs=sometimes(0.3, 0.2),
            late_turns=sometimes(0.2, 0.05),
            short_writes=sometimes(0.3, 0.1),
            power_cuts=random.choice((0, 0, 1, 1, 2, 4)),
            kills=random.choice((0, 0, 1, 2)),
            restarts=random.choice((0, 0, 0, 1)),
            clock_jumps=random.choice((0, 0, 0, 1, 2)),
        )

    def node_settings(self) -> dict[str, str]:
        """What the node is told of it."""
        return {
            "offsets.topic.segment.bytes": str(self.internal_segment_bytes),
            "transaction.state.log.segment.bytes": str(self.internal_segment_bytes),
            "metadata.log.max.record.bytes.between.snapshots": str(self.metadata_snapshot_bytes),
        }

    def __str__(self) -> str:
        return ", ".join(
            f"{each.name} {value:.3g}" if isinstance(value, float) else f"{each.name} {value}"
            for each in fields(self)
            if (value := getattr(self, each.name))
        )
