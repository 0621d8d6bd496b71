"""One schedule of the quorum from beginning to end: faults first, then peace, then the reckoning.

Safety phase: nodes start, clients propose, operators change voters, and faults strike, all at drawn
times. Liveness phase: the faults end, and a majority of the voters stays connected for good; now
and then the others are cut off for good. From here on everything must progress: a leader is
elected, what is proposed is committed, every replica that is connected hears of it, a change of the
voters succeeds, and one that was cut off while it led has stopped leading. Faults that heal by
themselves would hide a quorum that is stuck.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from functools import partial
from random import Random

from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest, Listener
from tidelog.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.raft.voters import ReplicaKey
from tidelog.testing.simulation.consensus.cluster import Asked, Cluster, number_of
from tidelog.testing.simulation.consensus.network import MS_US
from tidelog.testing.simulation.consensus.node import (
    CLUSTER_ID,
    SimulatedNode,
    endpoints_of,
)
from tidelog.testing.simulation.consensus.options import Options
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.simulation import SECOND_US, NoEndInSight

_PEACE_S_MAX = 40
"""So long may it take until everything has progressed once the faults have ended."""
_STEP_US = 100 * MS_US


class Schedule:
    """Run one with `run_schedule`."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed * 4)
        self.options = Options.draw(self.random)
        self.cluster = Cluster(seed, self.options, keeps_trace=keeps_trace)
        self._disk_numbers: dict[int, int] = {}
        self._wanted: Asked | None = None
        self._wanted_us = 0
        self._final_proposals: set[int] = set()

    # The safety phase

    def run(self) -> None:
        cluster, options = self.cluster, self.options
        for node in cluster.nodes:
            cluster.at(self.random.randrange(100 * MS_US), node.start)
        self._arrange(options.proposals, self._propose)
        self._arrange(options.partitions, self._partition)
        self._arrange(options.crashes, partial(self._crash, with_power=False))
        self._arrange(options.kills, partial(self._crash, with_power=True))
        self._arrange(options.full_disks, self._fill_disk)
        self._arrange(options.pauses, self._pause)
        self._arrange(options.snapshots, self._snapshot)
        self._arrange(options.voter_changes, self._change_voters)
        self._arrange(options.replacements, self._replace)
        self._arrange(options.resignations, self._resign)
        self._arrange(options.upgrades, self._upgrade)
        cluster.run_until(options.duration_ms * MS_US)
        if not cluster.problems:
            self._make_peace()
        if not cluster.problems:
            self._reckon()

    def _arrange(self, count: int, act: Callable[[], None]) -> None:
        for _ in range(count):
            self.cluster.at(self.random.randrange(self.options.duration_ms * MS_US), act)

    def _later(self, least_ms: int, most_ms: int, act: Callable[[], None]) -> None:
        self.cluster.after(self.random.randint(least_ms, most_ms) * MS_US, act)

    def _pick(self) -> SimulatedNode:
        """Faults strike leaders more often than their number says."""
        leader = self.cluster.leader
        if leader is not None and self.random.random() < 0.5:
            return leader
        return self.random.choice(self.cluster.nodes)

    def _propose(self) -> None:
        if not self.cluster.links.is_faulty:
            return
        leader = self.cluster.leader
        if self.random.random() < 0.05:
            leader = self.random.choice(self.cluster.nodes)
        if leader is None:
            self._later(100, 400, self._propose)
            return
        if leader.replica is not None:
            for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                self.cluster.propose(leader)

    def _partition(self) -> None:
        cluster, random = self.cluster, self.random
        ids = list(range(len(cluster.nodes)))
        if len(ids) < 2:
            return
        kind = random.choice(("isolate", "isolate", "split", "inbound", "outbound", "bridge"))
        one = self._pick().node_id
        others = [each for each in ids if each != one]
        if kind == "isolate":
            pairs = {(one, each) for each in others} | {(each, one) for each in others}
        elif kind == "inbound":
            pairs = {(each, one) for each in others}
        elif kind == "outbound":
            pairs = {(one, each) for each in others}
        else:
            random.shuffle(others)
            if kind == "split":
                others.append(one)
            half = len(others) // 2
            left, right = others[:half], others[half:]
            pairs = {(a, b) for a in left for b in right} | {(b, a) for a in left for b in right}
        cluster.links.block(pairs)
        cluster.count(f"partitions: {kind}")
        cluster.trace(-1, f"partition ({kind} {one}): {sorted(pairs)}")
        self._later(200, 4_000, self._heal)

    def _isolate(self, node: SimulatedNode, delay_ms: int) -> None:
        others = [each.node_id for each in self.cluster.nodes if each is not node]
        pairs = {(node.node_id, each) for each in others} | {
            (each, node.node_id) for each in others
        }

        def isolate() -> None:
            if self.cluster.links.is_faulty:
                self.cluster.links.block(pairs)
                self.cluster.count("leaders isolated after a change")

        self._later(delay_ms, delay_ms, isolate)
        self._later(2_000, 6_000, self._heal)

    def _heal(self) -> None:
        if self.cluster.links.is_faulty:
            self.cluster.links.heal()
            self.cluster.trace(-1, "partitions are healed")

    def _crash(self, *, with_power: bool) -> None:
        node = self._pick()
        if node.replica is None:
            return
        node.stop(with_power=with_power)
        self.cluster.count("kills" if with_power else "power cuts")
        self._later(1, 1_500, self.cluster.start_if_down(node))

    def _fill_disk(self) -> None:
        disk = self._pick().disk
        disk.is_full = True
        self.cluster.count("full disks")

        def empty() -> None:
            disk.is_full = False
            self.cluster.counts["appends refused"] += disk.refusals

        self._later(100, 1_500, empty)

    def _pause(self) -> None:
        node = self._pick()
        if node.replica is not None:
            node.pause()
            self.cluster.count("pauses")
            self._later(50, 3_500, node.resume)

    def _snapshot(self) -> None:
        self._pick().take_snapshot(forgets_log=self.random.random() < 0.8)

    def _resign(self) -> None:
        leader = self.cluster.leader
        if leader is not None:
            self.cluster.count("resignations")
            leader.resign()

    # Operators

    def _upgrade(self) -> None:
        leader = self.cluster.leader
        if leader is not None:
            leader.upgrade_kraft_version()

    def _change_voters(self) -> None:
        cluster, random = self.cluster, self.random
        leader = cluster.leader
        if leader is None or leader.replica is None:
            return
        voters = leader.replica.quorum.voters
        observers = [
            node
            for node in cluster.nodes
            if voters.get(node.node_id) is None and node.replica is not None
        ]
        if observers and random.random() < 0.6:
            self._add(leader, random.choice(observers))
        elif len(voters) > 1:
            self._remove(leader, random.choice([node.key for node in voters]))
        if random.random() < 0.3:
            # Another operator at the same time.
            self._later(0, 30, self._change_voters)
        if random.random() < 0.3 and len(cluster.nodes) > 1:
            # The change may be in no other log than the leader's, and be truncated later.
            self._isolate(leader, random.choice((0, 0, 5, 50)))

    def _add(self, leader: SimulatedNode, node: SimulatedNode) -> Asked:
        self.cluster.count("voters to add")
        listeners = [
            Listener(name=each.name, host=each.host, port=each.port)
            for each in endpoints_of(node.node_id)
        ]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=1_000,
            voter_id=node.node_id,
            voter_directory_id=node.key.directory_id,
            listeners=listeners,
            ack_when_committed=self.random.random() < 0.8,
        )
        return self.cluster.ask(leader, request)

    def _remove(self, leader: SimulatedNode, key: ReplicaKey) -> Asked:
        self.cluster.count("voters to remove")
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
        )
        return self.cluster.ask(leader, request)

    def _replace(self) -> None:
        """A node loses its disk. While the others are a majority that is one failure like any."""
        cluster, random = self.cluster, self.random
        if self.options.voters < 3 or self.options.voter_changes:
            return
        node = random.choice(cluster.nodes)
        if node.replica is None:
            return
        node.stop(with_power=False)
        number = self._disk_numbers[node.node_id] = self._disk_numbers.get(node.node_id, 0) + 1
        cluster.replace_disk(node, number)
        cluster.count("disks replaced")
        self._later(10, 1_000, cluster.start_if_down(node))

    # The liveness phase

    def _make_peace(self) -> None:
        cluster = self.cluster
        cluster.links.is_faulty = False
        cluster.links.heal()
        for node in cluster.nodes:
            node.disk.is_full = False
            node.resume()
            if node.replica is None:
                node.start()
        self._cut_some_off()
        cluster.trace(-1, "peace")
        began_us = cluster.now_us
        steps: list[Callable[[], bool]] = [self._commits, self._all_have_heard]
        if self.options.kraft_version and self.random.random() < 0.4:
            steps += [self._voters_change, self._commits, self._all_have_heard]
        if self.options.upgrades and not self.options.cuts_off:
            steps += [self._upgrades, self._commits, self._all_have_heard]
        steps.append(self._all_proposals_end)
        for step in steps:
            self._final_proposals.clear()
            while not step() and not cluster.problems:
                if cluster.now_us - began_us > _PEACE_S_MAX * SECOND_US:
                    cluster.problem(f"no progress in {_PEACE_S_MAX} s of peace: {step.__name__}")
                    return
                cluster.run_until(cluster.now_us + _STEP_US)
        self._check_cut_off(began_us)
        if self.options.tests_stability and not cluster.problems:
            self._check_stability()

    def _cut_some_off(self) -> None:
        """Nodes that the rest can do without, whichever voters count in the end."""
        cluster, random = self.cluster, self.random
        if not self.options.cuts_off:
            return
        sets = [
            {voter.key for voter in node.replica.quorum.voters}
            for node in cluster.nodes
            if node.replica is not None
        ]
        alive = {node.key for node in cluster.nodes}
        static = {ReplicaKey(node.node_id) for node in cluster.nodes}
        leader = cluster.leader
        order = random.sample(cluster.nodes, len(cluster.nodes))
        if leader is not None:
            order.insert(0, leader)
        gone: set[ReplicaKey] = set()
        for node in order[: random.randint(1, len(order))]:
            lost = gone | {node.key, ReplicaKey(node.node_id)}
            if all(len((keys & (alive | static)) - lost) > len(keys) // 2 for keys in sets if keys):
                gone = lost
                node.is_cut_off = True
                others = [each.node_id for each in cluster.nodes if each is not node]
                pairs = {(each, node.node_id) for each in others}
                # One that can still be heard deposes leaders for ever where voters are too old for
                # pre-votes.
                if random.random() < 0.7 or self.options.encodes:
                    pairs |= {(node.node_id, each) for each in others}
                cluster.links.block(pairs)
                cluster.count("nodes cut off for good")
                cluster.trace(-1, f"node {node.node_id} is cut off for good")

    def _commits(self) -> bool:
        """Something that was proposed in peace is committed."""
        cluster = self.cluster
        outcomes = cluster.checker.outcomes
        if any(isinstance(outcomes[number], int) for number in self._final_proposals):
            return True
        leader = self._reachable_leader()
        if leader is not None and all(
            outcomes[number] is not None or number in cluster.unanswered
            for number in self._final_proposals
        ):
            self._final_proposals.add(cluster.propose(leader))
        return False

    def _reachable_leader(self) -> SimulatedNode | None:
        leaders = [
            node
            for node in self.cluster.nodes
            if node.replica is not None and node.replica.is_leader and not node.is_cut_off
        ]
        return max(
            leaders, key=lambda node: node.replica.epoch if node.replica else 0, default=None
        )

    def _all_have_heard(self) -> bool:
        end = self.cluster.checker.committed_end
        return all(node.applied_offset >= end for node in self.cluster.nodes if not node.is_cut_off)

    def _upgrades(self) -> bool:
        """Every voter describes itself to the leader sooner or later; then kraft.version can be
        raised."""
        leader = self._reachable_leader()
        if leader is None or leader.replica is None:
            return False
        if leader.replica.quorum.history.kraft_version == 1:
            return True
        leader.upgrade_kraft_version()
        return False

    def _all_proposals_end(self) -> bool:
        """Whoever is still there hears how it ended."""
        return all(node.is_cut_off for node in self.cluster.proposals_at.values())

    def _voters_change(self) -> bool:
        """A change of the voters is asked for until it is committed."""
        cluster = self.cluster
        if self._wanted is not None:
            code = getattr(self._wanted.response, "error_code", None)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND):
                return True
            # Whoever was asked may have died.
            if code is None and cluster.now_us - self._wanted_us < 5 * SECOND_US:
                return False
        leader = self._reachable_leader()
        if leader is None or leader.replica is None:
            return False
        voters = leader.replica.quorum.voters
        lost = [
            voter.key
            for voter in voters
            if cluster.nodes[voter.key.id].is_cut_off
            or cluster.nodes[voter.key.id].key != voter.key
        ]
        observers = [
            node
            for node in cluster.nodes
            if not node.is_cut_off and voters.get(node.node_id) is None
        ]
        if lost and len(voters) > 1:
            self._wanted = self._remove(leader, lost[0])
        elif observers:
            self._wanted = self._add(leader, observers[0])
        elif len(voters) > 1:
            self._wanted = self._remove(leader, next(iter(voters)).key)
        else:
            return True
        self._wanted_us = cluster.now_us
        return False

    def _check_cut_off(self, began_us: int) -> None:
        """Check-quorum: nobody goes on leading those it cannot reach."""
        cluster = self.cluster
        # Fetches that were on their way may arrive late.
        deadline_us = began_us + cluster.settings.check_quorum_timeout_ms * 3 * MS_US
        for node in cluster.nodes:
            if not node.is_cut_off:
                continue
            while self._leads_others(node) and not cluster.problems:
                if cluster.now_us > deadline_us:
                    cluster.problem(f"node {node.node_id} still leads those it cannot reach")
                    return
                cluster.run_until(cluster.now_us + _STEP_US)

    @staticmethod
    def _leads_others(node: SimulatedNode) -> bool:
        replica = node.replica
        return replica is not None and replica.is_leader and len(replica.quorum.voters) > 1

    def _check_stability(self) -> None:
        """A voter that cannot reach the leader does not depose it while a majority can."""
        cluster = self.cluster
        leader = self._reachable_leader()
        if leader is None or leader.replica is None:
            return
        voters, epoch = leader.replica.quorum.voters, leader.replica.epoch
        others = [each for each in voters.ids if each != leader.node_id]
        alive = [node for node in voters if node.matches(cluster.nodes[node.key.id].key)]
        if len(voters) < 3 or len(alive) < len(voters) or not leader.replica.quorum.is_voter:
            return
        one = self.random.choice(others)
        cluster.links.block({(one, leader.node_id), (leader.node_id, one)})
        cluster.count("links to the leader cut")
        cluster.trace(-1, f"node {one} cannot reach its leader {leader.node_id}")
        cluster.run_until(cluster.now_us + 5 * SECOND_US)
        replica = leader.replica
        if replica is None or not replica.is_leader or replica.epoch != epoch:
            cluster.problem(f"leader {leader.node_id} of epoch {epoch} is deposed in peace")

    # The reckoning

    def _reckon(self) -> None:
        cluster, options = self.cluster, self.options
        for node in cluster.nodes:
            if node.is_cut_off:
                node.stop(with_power=True)
        cluster.checker.check_outcomes(cluster.unanswered, number_of)
        counts = cluster.counts
        if not counts["proposals committed"]:
            cluster.problem("nothing was committed: such a run shows nothing")
        if options.loss * counts["messages in war"] > 20 and not counts["messages lost"]:
            cluster.problem("no message was lost, although some should have been")
        has_partition = any(name.startswith("partitions") for name in counts)
        if options.partitions and len(cluster.nodes) > 1 and not has_partition:
            cluster.problem("there was no partition")
        if options.slow_disk * counts["syncs in war"] > 20 and not counts["slow syncs"]:
            cluster.problem("no sync was slow")


def run_schedule(seed: int, *, keeps_trace: bool = False) -> Result:
    """Runs one seed; whatever it raises is a failure of the seed."""
    schedule = Schedule(seed, keeps_trace=keeps_trace)
    cluster = schedule.cluster
    try:
        schedule.run()
    except (Exception, NoEndInSight):  # noqa: BLE001 - whatever the replicas raise is a finding
        cluster.problem(traceback.format_exc())
    lines = cluster.lines or []
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest() if keeps_trace else ""
    counts = dict(cluster.counts)
    counts["committed batches"] = len(cluster.checker.committed)
    return Result(
        seed,
        str(schedule.options),
        cluster.problems,
        digest,
        lines,
        cluster.now_us / SECOND_US,
        cluster.events,
        counts,
    )
