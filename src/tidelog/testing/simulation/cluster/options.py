"""What one seed of a cluster is about: how many nodes, which clients, which faults how often."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

from tidelog.testing.simulation.fault_options import FaultOptions
from tidelog.testing.simulation.options import Options

_SETTINGS = {
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "600",
    "replica.lag.time.max.ms": "800",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "200",
    # A follower's fetch waits for up to half a second.
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "1000",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}

_REPLICATION_OF_COORDINATORS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)
_OLD_METADATA_VERSIONS = ("3.7-IV2", "3.8-IV0", "3.9-IV0", "4.0-IV1", "4.0-IV3", "4.1-IV1")
"""A node may have two log directories, which 3.7-IV2 is the first to know."""

_MIXED_SEGMENT_BYTES_MIN = 5_000


@dataclass(slots=True)
class ClusterOptions:
    """Drawn from the seed, and told when it fails."""

    work: Options
    """What clients do; of its faults only those of the network hold."""
    nodes: int
    voters: int
    has_static_voters: bool
    """kraft.version 0: every node is told who the voters are."""
    replication_factor: int
    partitions_of_network: int
    slow_links: int
    pauses: int
    down_ms_max: int
    """So long is a node down, at most."""
    moves: int = 0
    elections: int = 0
    voter_changes: int = 0
    feature_changes: int = 0
    added_nodes: int = 0
    removed_nodes: int = 0
    throttles: int = 0
    """What operators do meanwhile."""
    clock_skew_ms_max: int = 0
    """By so much, at most, are the wall clocks of nodes wrong from the start."""
    loses_minority: bool = False
    """Whether some nodes are gone for good when the faults end."""
    changes_settings: bool = False
    """Whether a client changes a setting all the time."""
    keeps_disk_full: bool = False
    """Whether the disk of a node is full when the faults have ended, and stays so."""
    held_proposals: int = 0
    """How often an in-sync set that is proposed reaches the controller late."""
    grows_internal_topics: bool = False
    """Whether the coordinators' topics begin with fewer replicas than they are to have."""
    initial_metadata_version: str = ""
    """That of a cluster whose operator raises it; empty for the newest."""
    raises_features: int = 0
    """Whether an operator brings all features to their newest level."""
    coordinator_cuts: int = 0
    """How often a coordinator loses power when a transaction of it is decided."""
    held_markers: int = 0
    """How often, for a while, markers are sent twice, and what was sent first arrives later."""
    held_verifications: int = 0
    """How often, for a while, what a coordinator says of a transaction comes late."""

    @classmethod
    def draw(cls, random: Random, more: Random, targeted: Random) -> ClusterOptions:
        """`more` and `targeted` draw what came later, so that the rest of a seed stays what it
        was."""
        return cls._drawn_before(random, more)._with_situations(targeted)

    def _with_situations(self, random: Random) -> ClusterOptions:
        """With faults that strike where something is under way."""
        options = self
        if options.work.classic_members and options.work.consumer_members:
            # A group that changes its protocol writes all its members at once, to one segment.
            size_bytes = max(options.work.internal_segment_bytes, _MIXED_SEGMENT_BYTES_MIN)
            options = replace(
                options, work=replace(options.work, internal_segment_bytes=size_bytes)
            )
        has_transactions = options.work.transactional_ids > 0
        # Who reorders replicas must not give them back to a node that is drained.
        may_reorder = not options.removed_nodes
        if random.random() < (0.7 if has_transactions else 0.4):
            hurried_aborts = random.choice((0.0, 0.3, 0.6))
            options = replace(
                options,
                work=replace(options.work, hurried_aborts=hurried_aborts),
                held_proposals=random.choice((0, 2, 4)) if may_reorder else 0,
                coordinator_cuts=random.choice((0, 1, 2)) if has_transactions else 0,
                held_markers=random.choice((0, 2, 4)) if may_reorder and has_transactions else 0,
                held_verifications=random.choice((0, 3, 6)) if has_transactions else 0,
            )
            if hurried_aborts and has_transactions:
                # What was asked before an abort shows most when it is answered after that.
                options = replace(options, held_verifications=options.held_verifications or 3)
        if random.random() < 0.1:
            lossy = random.choice(("unclean", "unclean", "page-cache", "both"))
            options = replace(options, work=replace(options.work, lossy_topic=lossy))
        if random.random() < 0.15:
            options = replace(options, grows_internal_topics=True)
        if random.random() < 0.15:
            version = random.choice(_OLD_METADATA_VERSIONS)
            options = replace(
                options,
                initial_metadata_version=version,
                raises_features=1,
                # Each voter has to say once that it knows the levels.
                loses_minority=False,
                # Eligible leader replicas are off at first, and there are none to be changed.
                feature_changes=0,
            )
        return options

    @classmethod
    def _drawn_before(cls, random: Random, more: Random) -> ClusterOptions:
        options = cls._draw(random)
        if more.random() < 0.1:
            nodes = more.choice((6, 7))
            work = replace(options.work, nodes=nodes, duration_s=min(options.work.duration_s, 4.0))
            options = replace(options, work=work, nodes=nodes, voters=more.choice((3, 5, 7)))
        if more.random() < 0.4:
            is_dynamic = not options.has_static_voters
            options = replace(
                options,
                moves=more.choice((0, 1, 3)),
                elections=more.choice((0, 1)),
                voter_changes=more.choice((0, 1, 2)) if is_dynamic else 0,
                feature_changes=more.choice((0, 0, 1)),
                added_nodes=more.choice((0, 1)) if is_dynamic else 0,
                removed_nodes=more.choice((0, 1)) if is_dynamic else 0,
            )
        # What an operator wants of a node that is gone never comes to its end.
        may_lose = options.replication_factor >= 3 and not options.has_operators
        options = replace(
            options,
            clock_skew_ms_max=more.choice((0, 0, 300, 60_000)),
            loses_minority=may_lose and more.random() < 0.4,
            changes_settings=more.random() < 0.3,
            throttles=more.choice((0, 0, 0, 1, 3)),
        )
        # Of fewer replicas too few may be left that have room.
        may_lack_room = options.replication_factor >= 3 and not options.loses_minority
        return replace(options, keeps_disk_full=may_lack_room and more.random() < 0.3)

    @property
    def has_operators(self) -> bool:
        return bool(self.moves or self.voter_changes or self.added_nodes or self.removed_nodes)

    @property
    def nodes_max(self) -> int:
        return self.nodes + self.added_nodes

    @classmethod
    def _draw(cls, random: Random) -> ClusterOptions:
        nodes = random.choice((3, 3, 3, 4, 5))
        work = replace(
            Options.draw(random),
            nodes=nodes,
            duration_s=random.choice((2.0, 4.0, 4.0, 8.0)),
            acks_all=True,
            changing_topics=0,
        )
        if not (
            work.producers
            or work.transactional_ids
            or work.classic_members
            or work.consumer_members
            or work.compacted_partitions
            or work.plain_producers
        ):
            work = replace(work, producers=2, consumers=1)
        return cls(
            work=work,
            nodes=nodes,
            voters=random.choice((3, 5)),
            has_static_voters=random.random() < 0.25,
            replication_factor=random.choice((3, 3, 3, 3, 2, 1)),
            partitions_of_network=random.choice((0, 0, 1, 2, 4)),
            slow_links=random.choice((0, 0, 1, 2)),
            pauses=random.choice((0, 0, 1, 2, 4)),
            down_ms_max=random.choice((300, 1000, 3000)),
        )

    def node_settings(self, node_id: int) -> dict[str, str]:
        """What a node is told of it."""
        settings = {
            **_SETTINGS,
            **self.work.node_settings(),
            "node.id": str(node_id),
            "controller.quorum.voters.max": str(self.voters),
        }
        if self.grows_internal_topics:
            for name in _REPLICATION_OF_COORDINATORS:
                del settings[name]
        if self.initial_metadata_version:
            settings["initial.metadata.version"] = self.initial_metadata_version
            # What clients make use of is there from the start.
            settings["initial.feature.levels"] = "group.version=1,transaction.version=2"
        if self.work.lossy_topic:
            settings["unclean.leader.election.interval.ms"] = "300"
        if self.has_static_voters:
            settings["controller.quorum.voters"] = ",".join(
                f"{number}@node-{number}:9092" for number in range(1, self.nodes + 1)
            )
        elif node_id > 1:
            settings["controller.quorum.auto.join.enable"] = "true"
            settings["controller.quorum.bootstrap.servers"] = ",".join(
                f"node-{number}:9092" for number in range(1, self.nodes + 1)
            )
        return settings

    def __str__(self) -> str:
        return ", ".join(
            f"{each.name} {value}" for each in fields(self) if (value := getattr(self, each.name))
        )


@dataclass(slots=True)
class NodeFaults:
    """Which faults one node of a cluster has; many have none."""

    options: Options
    fault_options: FaultOptions

    @classmethod
    def draw(cls, random: Random, duration_s: float) -> NodeFaults:
        options = replace(Options.draw(random), duration_s=duration_s)
        fault_options = FaultOptions.draw(random)
        if random.random() < 0.5:
            options = replace(
                options, power_cuts=0, kills=0, restarts=0, clock_jumps=0, late_turns=0.0
            )
            fault_options = replace(
                fault_options,
                full_disks=0,
                write_errors=0,
                sync_errors=0,
                read_errors=0,
                interrupted_stops=0,
            )
        return cls(options, fault_options)
