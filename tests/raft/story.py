"""A quorum without faults but those of the story; everything the simulator checks is checked."""

from __future__ import annotations

from typing import Any

from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest, Listener
from tidelog.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.raft.replica import Replica
from tidelog.testing.simulation.consensus.cluster import Cluster
from tidelog.testing.simulation.consensus.network import MS_US
from tidelog.testing.simulation.consensus.node import CLUSTER_ID, SimulatedNode, endpoints_of
from tidelog.testing.simulation.consensus.options import Options


class Story:
    """Nodes 0 to `voters` - 1 vote, those after them observe."""

    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        kraft_version: int = 1,
        seed: int = 1,
        starts: bool = True,
    ) -> None:
        options = Options(
            voters=voters,
            observers=observers,
            kraft_version=kraft_version,
            encodes=False,
            duration_ms=0,
            proposals=0,
            latency_ms=1,
            loss=0,
            stragglers=0,
            partitions=0,
            crashes=0,
            kills=0,
            slow_disk=0,
            full_disks=0,
            pauses=0,
            skew=0,
            snapshots=0,
            voter_changes=0,
            replacements=0,
            resignations=0,
            upgrades=0,
            election_timeout_ms=1_000,
            fetch_max_bytes=1 << 20,
            snapshot_chunk_bytes=100,
            cuts_off=False,
            tests_stability=False,
        )
        self.cluster = Cluster(seed, options, keeps_trace=True)
        self.cluster.links.is_faulty = False
        self.nodes = self.cluster.nodes
        if starts:
            for node in self.nodes:
                node.start()

    def run(self, seconds: float) -> None:
        """Time passes, and nothing may be wrong."""
        self.cluster.run_until(self.cluster.now_us + int(seconds * 1_000 * MS_US))
        assert self.cluster.problems == [], self.cluster.lines

    def elected(self, *, within_s: float = 10) -> SimulatedNode:
        """The leader, once it has committed something."""
        for _ in range(int(within_s * 20)):
            leader = self.cluster.leader
            if leader is not None and leader.replica is not None:
                state: Any = leader.replica.quorum.state
                if state.high_watermark is not None:
                    return leader
            self.run(0.05)
        raise AssertionError("nobody was elected")

    def others(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [each for each in self.nodes if each is not node]

    def cut(self, *nodes: SimulatedNode) -> None:
        """Cut these nodes off from all others, not from each other."""
        inside = {node.node_id for node in nodes}
        outside = {node.node_id for node in self.nodes} - inside
        pairs = {(a, b) for a in inside for b in outside}
        self.cluster.links.block(pairs | {(b, a) for a, b in pairs})

    def heal(self) -> None:
        self.cluster.links.heal()

    def propose(self, node: SimulatedNode) -> int:
        return self.cluster.propose(node)

    def outcome(self, number: int) -> ApiError | int | None:
        return self.cluster.checker.outcomes[number]

    def commit(self, node: SimulatedNode, count: int = 1) -> None:
        numbers = [self.propose(node) for _ in range(count)]
        self.run(0.2)
        assert all(isinstance(self.outcome(number), int) for number in numbers)

    def add_voter(self, leader: SimulatedNode, node: SimulatedNode, seconds: float = 0.5) -> Any:
        """The answer, None when there is none yet."""
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=1_000,
            voter_id=node.node_id,
            voter_directory_id=node.key.directory_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port)
                for each in endpoints_of(node.node_id)
            ],
        )
        asked = self.cluster.ask(leader, request)
        self.run(seconds)
        return asked.response

    def remove_voter(self, leader: SimulatedNode, node: SimulatedNode, seconds: float = 0.5) -> Any:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=node.node_id,
            voter_directory_id=node.key.directory_id,
        )
        asked = self.cluster.ask(leader, request)
        self.run(seconds)
        return asked.response


def replica_of(node: SimulatedNode) -> Replica:
    assert node.replica is not None
    return node.replica


def voters_of(node: SimulatedNode) -> tuple[int, ...]:
    return replica_of(node).quorum.voters.ids


def ok(response: Any) -> bool:
    return response is not None and response.error_code == ErrorCode.NONE
