"""What one schedule is about: how many replicas, which faults and how often.

Most schedules have few kinds of faults, and those often: with all of them at once little happens
but faults (swarm testing).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random


@dataclass(slots=True)
class Options:
    """Drawn from the seed, and told when it fails. Probabilities are per message or operation;
    counts are per schedule."""

    voters: int
    observers: int
    kraft_version: int
    encodes: bool  # every message goes through its wire form, at a drawn version
    duration_ms: int
    proposals: int
    latency_ms: int
    loss: float
    stragglers: float
    partitions: int
    crashes: int  # power cuts
    kills: int
    slow_disk: float
    full_disks: int
    pauses: int
    skew: float  # of the clocks' speed
    snapshots: int
    voter_changes: int
    replacements: int
    resignations: int
    upgrades: int  # of kraft.version, from 0 to 1
    election_timeout_ms: int
    fetch_max_bytes: int
    snapshot_chunk_bytes: int
    cuts_off: bool  # some nodes, for good, in the end
    tests_stability: bool  # of the leader, when one voter cannot reach it

    @classmethod
    def draw(cls, random: Random) -> Options:
        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        def count(chance: float, most: int) -> int:
            return random.randint(1, most) if random.random() < chance else 0

        kraft_version = int(random.random() < 0.75)
        encodes = random.random() < 1 / 16
        cuts_off = random.random() < 0.5
        return cls(
            voters=random.choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 7)),
            observers=random.choice((0, 0, 1, 1, 2)),
            kraft_version=kraft_version,
            encodes=encodes,
            duration_ms=random.randint(1_200, 3_500),
            proposals=random.randint(4, 12),
            latency_ms=random.choice((1, 2, 5, 20, 60)),
            loss=sometimes(0.35, 0.15),
            stragglers=sometimes(0.25, 0.1),
            partitions=count(0.45, 3),
            crashes=count(0.45, 4),
            kills=count(0.2, 2),
            slow_disk=sometimes(0.3, 0.3),
            full_disks=count(0.12, 2),
            pauses=count(0.2, 2),
            skew=sometimes(0.3, 0.1),
            snapshots=count(0.45, 6),
            voter_changes=count(0.45, 4) * kraft_version,
            replacements=count(0.2, 1) * kraft_version,
            resignations=count(0.1, 1),
            # Old versions of messages have no directory ids, which records of voters need.
            upgrades=count(0.3, 4) * (not kraft_version and not encodes),
            election_timeout_ms=random.choice((120, 300, 1_000)),
            fetch_max_bytes=random.choice((100, 1 << 20)),
            cuts_off=cuts_off,
            # Voters that are too old for pre-votes do depose it.
            tests_stability=random.random() < 0.15 and not cuts_off and not encodes,
            snapshot_chunk_bytes=random.choice((64, 150, 1 << 20)),
        )

    def __str__(self) -> str:
        shown = ((each.name, getattr(self, each.name)) for each in fields(self))
        return " ".join(
            f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}"
            for name, value in shown
            if value or name == "kraft_version"
        )
