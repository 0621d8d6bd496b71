"""The last replica standing loses power (KIP-966), on Tidelog and on Apache Kafka.

    python -m tests.chaos.cluster.last_replica --against kafka --without-eligible-leader-replicas

Records are acknowledged by three replicas, none of which has synced them. Two replicas are cut off,
so that one is the only one in sync; that one loses power, and with it what it had not synced, and
comes back first. If it leads again, the others truncate what they still have. With eligible leader
replicas it does not: the two that were cut off are remembered, and one of them leads.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.cluster import namespaces
from tests.chaos.cluster.chaos_cluster import ChaosCluster, NotWellError
from tests.chaos.cluster.disks import make_disks
from tests.chaos.cluster.hosts import CLIENTS, Network, split
from tests.chaos.cluster.servers import ClusterPlan, Kafka, Server, Tidelog
from tests.chaos.cluster.workloads import STURDY, read_to_end
from tidelog.client.cluster.cluster_state import ReplicatedPartition
from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import AnomalyKind, Operation, Outcome, Send, check_history

_MODULE = "tests.chaos.cluster.last_replica"
_TOPIC = "orders"
_PLACE = Place(_TOPIC, 0)
_VOTERS = 3
_RECORDS = 2_000
_STEP_TIMEOUT_S = 90.0
_ALONE_S = 10.0
_LOST = (AnomalyKind.LOST_WRITE, AnomalyKind.UNSEEN)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What was acknowledged and what of it is gone."""

    acknowledged: int
    lost: int
    led_alone: bool
    """Whether the replica that had lost its records led before another was back."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("--against", choices=("tidelog", "kafka"), default="tidelog")
    parser.add_argument("--durability", choices=("fsync", "page-cache"), default="page-cache")
    parser.add_argument("--without-eligible-leader-replicas", action="store_true")
    parser.add_argument("--expect-loss", action="store_true", help="Fail when nothing is lost.")
    options = parser.parse_args(arguments)
    if not namespaces.is_inside():
        problem = namespaces.missing()
        if problem is None and not namespaces.has_loop_devices():
            problem = "Power cuts need root, loop devices and mkfs.ext4 (e2fsprogs)."
        if problem is not None:
            _say(problem)
            return 2
        return namespaces.enter(_MODULE, arguments)
    outcomes = _run(options)
    _say(f"{outcomes.lost} of {outcomes.acknowledged} acknowledged records are lost")
    return int(bool(outcomes.lost) != options.expect_loss)


def _run(options: argparse.Namespace) -> Outcomes:
    folder = namespaces.folder()
    settings = {} if options.against == "kafka" else {"durability": options.durability}
    plan = ClusterPlan(5, _VOTERS, settings)
    cluster = ChaosCluster(
        plan,
        _server(options, plan),
        Network(plan.nodes),
        make_disks(folder, plan.node_ids),
        folder / "nodes",
    )
    try:
        cluster.start()
        return _last_replica_loses_power(cluster)
    finally:
        cluster.close()


def _server(options: argparse.Namespace, plan: ClusterPlan) -> Server:
    if options.against == "tidelog":
        return Tidelog(plan)
    from benchmarks.servers import kafka_libraries

    libraries = kafka_libraries()
    if libraries is None:
        raise NotWellError("Apache Kafka needs java, and mvn to fetch it.")
    level = 0 if options.without_eligible_leader_replicas else 1
    return Kafka(plan, libraries, {"eligible.leader.replicas.version": level})


def _last_replica_loses_power(cluster: ChaosCluster) -> Outcomes:
    last, others = _replicas(cluster)
    _create_topic(cluster, [last, *others])
    sent = _send(cluster)
    _say(f"{sum(each.outcome is Outcome.OK for each in sent)} records acknowledged, {_at(cluster)}")
    cut = split(others, [*cluster.nodes, CLIENTS])
    cluster.network.cut(cut)
    _await(cluster, lambda row: row.isr == (last,), "the ISR does not shrink to one")
    _say(f"nodes {others} cut off: {_at(cluster)}")
    cluster.nodes[last].cut_power()
    _await(cluster, lambda row: row.leader_id != last, "the last replica still leads")
    _say(f"node {last} without power: {_at(cluster)}")
    cluster.nodes[last].disk.power_on()
    cluster.nodes[last].start()
    cluster.await_serving(last, _STEP_TIMEOUT_S)
    deadline = time.monotonic() + _ALONE_S
    while _row(cluster).leader_id != last and time.monotonic() < deadline:
        time.sleep(0.2)
    led_alone = _row(cluster).leader_id == last
    _say(f"node {last} back alone: {_at(cluster)}")
    cluster.network.mend(cut)
    cluster.await_health(_STEP_TIMEOUT_S)
    _say(f"all back: {_at(cluster)}")
    found = read_to_end(cluster.plan.bootstrap, "final", [_PLACE], _STEP_TIMEOUT_S)
    report = check_history([*sent, *found])
    for anomaly in report.anomalies[:3]:
        _say(f"    {anomaly}")
    lost = sum(len(report.of(kind)) for kind in _LOST)
    return Outcomes(report.acknowledged, lost, led_alone)


def _replicas(cluster: ChaosCluster) -> tuple[int, list[int]]:
    """The last replica, a voter whose loss the quorum survives, and two that have no vote."""
    members = cluster.state().members
    voters = members.quorum.voter_ids
    last = next(number for number in voters if number != members.quorum.leader_id)
    return last, [number for number in cluster.nodes if number not in voters]


def _create_topic(cluster: ChaosCluster, replicas: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.plan.bootstrap, **STURDY})
    topic = NewTopic(_TOPIC, num_partitions=1, replica_assignment=[replicas])
    admin.create_topics([topic])[_TOPIC].result()
    _await(
        cluster,
        lambda row: row.leader_id == replicas[0] and len(row.isr) == len(replicas),
        "the topic is not in sync",
    )


def _send(cluster: ChaosCluster) -> list[Operation]:
    producer = Producer(
        {"bootstrap.servers": cluster.plan.bootstrap, "enable.idempotence": True, **STURDY}
    )
    operations = []
    for number in range(_RECORDS):
        operation = Operation("producer", Outcome.UNKNOWN, [Send(_PLACE, f"order-{number}")])
        operations.append(operation)

        def delivered(error: object, message: object, operation: Operation = operation) -> None:
            if error is None:
                (send,) = operation.sends
                operation.outcome = Outcome.OK
                operation.sends = [send._replace(offset=message.offset())]  # type: ignore[attr-defined]

        producer.produce(_TOPIC, f"order-{number}", partition=0, on_delivery=delivered)
    producer.flush(_STEP_TIMEOUT_S)
    return operations


def _row(cluster: ChaosCluster) -> ReplicatedPartition:
    return next(row for row in cluster.state().partitions if row.partition == _PLACE)


def _at(cluster: ChaosCluster) -> str:
    row = _row(cluster)
    leader = "nobody" if row.is_offline else f"node {row.leader_id}"
    return f"led by {leader}, in sync {list(row.isr)}"


def _await(
    cluster: ChaosCluster, is_so: Callable[[ReplicatedPartition], bool], problem: str
) -> None:
    deadline = time.monotonic() + _STEP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if is_so(_row(cluster)):
                return
        except (TidelogError, StopIteration):
            pass  # told below when it does not pass
        time.sleep(0.1)
    raise NotWellError(f"{problem}: {cluster.picture()}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
