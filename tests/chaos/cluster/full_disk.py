"""The disk of one node is full: others lead, and a topic that is deleted there makes room.

    python -m tests.chaos.cluster.full_disk

The node leads partitions that the two others replicate, and has a large topic alone. Its disk is
filled up. Writes to all partitions go on, while nobody makes room. Then the large topic is deleted:
the node, which hears of that on a full disk, removes it, catches up, and leads again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.cluster import namespaces
from tests.chaos.cluster.chaos_cluster import ChaosCluster, NotWellError
from tests.chaos.cluster.disks import make_disks
from tests.chaos.cluster.hosts import Network
from tests.chaos.cluster.servers import ClusterPlan, Tidelog
from tests.chaos.cluster.workloads import STURDY, read_to_end
from tidelog.client.cluster.cluster_state import ReplicatedPartition
from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import Operation, Outcome, Send, check_history

_MODULE = "tests.chaos.cluster.full_disk"
_FULL = 2
_TOPIC, _LARGE = "orders", "large"
_PARTITIONS = 6
_RECORDS = 100
_LARGE_BYTES = 24 << 20
_STEP_TIMEOUT_S = 60.0


def main(arguments: Sequence[str]) -> int:
    if not namespaces.is_inside():
        problem = namespaces.missing()
        if problem is not None:
            _say(problem)
            return 2
        return namespaces.enter(_MODULE, arguments)
    folder = namespaces.folder()
    plan = ClusterPlan(3, 3)
    cluster = ChaosCluster(
        plan,
        Tidelog(plan),
        Network(plan.nodes),
        make_disks(folder, plan.node_ids),
        folder / "nodes",
    )
    try:
        cluster.start()
        problems = _fill_up_and_make_room(cluster)
    finally:
        cluster.close()
    for problem in problems:
        _say(f"    {problem}")
    _say(f"{len(problems)} problems")
    return int(bool(problems))


def _fill_up_and_make_room(cluster: ChaosCluster) -> list[str]:
    _create_topics(cluster)
    producer = Producer(
        {"bootstrap.servers": cluster.plan.bootstrap, "enable.idempotence": True, **STURDY}
    )
    sent = _send(producer, "before")
    _send_large(producer)
    disk = cluster.nodes[_FULL].disk
    disk.fill_up(0)
    began = time.monotonic()
    sent += _send(producer, "full")
    refused = [each for each in sent if each.outcome is not Outcome.OK]
    _say(f"writes went on {time.monotonic() - began:.1f} s after the disk was full")
    rows = _rows(cluster)
    problems = [f"{len(refused)} records were not acknowledged"] if refused else []
    problems += [f"{row.partition} is led by the full node" for row in rows if _leads(row)]
    admin = AdminClient({"bootstrap.servers": cluster.plan.bootstrap, **STURDY})
    admin.delete_topics([_LARGE])[_LARGE].result()
    _await(lambda: not list(disk.path.glob(f"**/{_LARGE}-0*")), "the topic is not removed")
    sent += _send(producer, "after")
    _await(
        lambda: all(len(row.isr) == len(row.replicas) for row in _rows(cluster)),
        "the node does not catch up",
    )
    _await(lambda: any(map(_leads, _rows(cluster))), "the node does not lead again")
    disk.make_room()
    cluster.await_health(_STEP_TIMEOUT_S)
    places = [Place(_TOPIC, index) for index in range(_PARTITIONS)]
    found = read_to_end(cluster.plan.bootstrap, "final", places, _STEP_TIMEOUT_S)
    report = check_history([*sent, *found])
    _say(f"{report.acknowledged} records acknowledged")
    endings = [node.ended_by_itself for node in cluster.nodes.values()]
    problems += [f"a node ended with status {status}" for status in endings if status is not None]
    return problems + [str(anomaly) for anomaly in report.anomalies]


def _create_topics(cluster: ChaosCluster) -> None:
    nodes = list(cluster.nodes)
    orders = [[*nodes[at % 3 :], *nodes[: at % 3]] for at in range(_PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": cluster.plan.bootstrap, **STURDY})
    made = admin.create_topics(
        [
            NewTopic(_TOPIC, num_partitions=_PARTITIONS, replica_assignment=orders),
            NewTopic(
                _LARGE,
                num_partitions=1,
                replica_assignment=[[_FULL]],
                config={"min.insync.replicas": "1"},
            ),
        ]
    )
    for each in made.values():
        each.result()
    _await(lambda: any(map(_leads, _rows(cluster))), "the node leads nothing")


def _send(producer: Producer, purpose: str) -> list[Operation]:
    operations = []
    for number in range(_RECORDS * _PARTITIONS):
        place = Place(_TOPIC, number % _PARTITIONS)
        value = f"{purpose}-{number}"
        operation = Operation("producer", Outcome.UNKNOWN, [Send(place, value)])
        operations.append(operation)

        def delivered(error: object, message: object, operation: Operation = operation) -> None:
            if error is None:
                (send,) = operation.sends
                operation.outcome = Outcome.OK
                operation.sends = [send._replace(offset=message.offset())]  # type: ignore[attr-defined]

        producer.produce(_TOPIC, value, partition=place.partition, on_delivery=delivered)
        producer.poll(0)
    producer.flush(_STEP_TIMEOUT_S)
    return operations


def _send_large(producer: Producer) -> None:
    for _ in range(_LARGE_BYTES // 100_000):
        producer.produce(_LARGE, bytes(100_000), partition=0)
        producer.poll(0)
    if producer.flush(_STEP_TIMEOUT_S):
        raise NotWellError("the large topic was not written")


def _rows(cluster: ChaosCluster) -> list[ReplicatedPartition]:
    return [row for row in cluster.state().partitions if row.partition.topic == _TOPIC]


def _leads(row: ReplicatedPartition) -> bool:
    return row.leader_id == _FULL


def _await(is_so: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + _STEP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except TidelogError:
            pass  # told below when it does not pass
        time.sleep(0.1)
    raise NotWellError(problem)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
