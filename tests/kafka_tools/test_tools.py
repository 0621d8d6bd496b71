"""What Apache Kafka's own command line tools print of a cluster of three nodes, and do to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_tools.conftest import NODES
from tests.kafka_tools.kafka_command import (
    CONFIGS,
    FEATURES,
    GET_OFFSETS,
    GROUPS,
    LEADER_ELECTION,
    LOG_DIRS,
    PERF,
    QUORUM,
    REASSIGN,
    TOPICS,
    VERIFIABLE_CONSUMER,
    KafkaTools,
    ToolError,
    fields_of,
    rows_of,
)
from tidelog.testing import Cluster

pytestmark = [pytest.mark.kafka_tools, pytest.mark.timeout(300)]

Run = Callable[..., str]


def partitions_of(described: str) -> list[dict[str, str]]:
    """The lines of partitions in what kafka-topics --describe prints."""
    return [fields_of(line) for line in described.splitlines() if line.startswith("\t")]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def eventually(holds: Callable[[], bool], problem: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, problem
        time.sleep(0.5)


def create(run: Run, topic: str, partitions: int = 3, replicas: int = NODES) -> None:
    run(
        TOPICS,
        "--create",
        *("--topic", topic),
        *("--partitions", str(partitions)),
        *("--replication-factor", str(replicas)),
    )


def test_topics_are_created_described_altered_and_deleted(run: Run) -> None:
    create(run, "orders")
    rows = partitions_of(run(TOPICS, "--describe", "--topic", "orders"))
    assert [row["Partition"] for row in rows] == ["0", "1", "2"]
    for row in rows:
        assert sorted(numbers(row["Replicas"])) == sorted(numbers(row["Isr"])) == [1, 2, 3]
        assert int(row["Leader"]) == numbers(row["Replicas"])[0]
    run(TOPICS, "--alter", "--topic", "orders", "--partitions", "5")
    assert len(partitions_of(run(TOPICS, "--describe", "--topic", "orders"))) == 5
    run(TOPICS, "--delete", "--topic", "orders")
    assert "orders" not in run(TOPICS, "--list").split()


def test_topics_shows_what_is_under_replicated(run: Run, cluster: Cluster) -> None:
    create(run, "short")
    assert not partitions_of(run(TOPICS, "--describe", "--under-replicated-partitions"))
    cluster.kill(3)

    def described() -> list[dict[str, str]]:
        printed = run(TOPICS, "--describe", "--under-replicated-partitions", "--topic", "short")
        return partitions_of(printed)

    try:
        eventually(lambda: len(described()) == 3, "the replicas of node 3 stay in sync")
        for row in described():
            assert sorted(numbers(row["Isr"])) == [1, 2]
            assert row["Leader"] in ("1", "2")
    finally:
        cluster.start(3)
    eventually(lambda: not described(), "the replicas of node 3 do not come back")


def test_quorum_describes_status_and_replication(run: Run, cluster: Cluster) -> None:
    lines = (line.partition(":") for line in run(QUORUM, "describe", "--status").splitlines())
    status = {name: value.strip() for name, _, value in lines}
    assert int(status["LeaderId"]) == cluster.controller()
    assert int(status["LeaderEpoch"]) > 0
    assert int(status["HighWatermark"]) > 0
    voters = json.loads(status["CurrentVoters"])
    assert [voter["id"] for voter in voters] == [1, 2, 3]
    rows = rows_of(run(QUORUM, "describe", "--replication"))
    assert sorted(int(row["NodeId"]) for row in rows) == [1, 2, 3]
    assert [row["Status"] for row in rows] == ["Leader", "Follower", "Follower"]
    assert {row["DirectoryId"] for row in rows} == {voter["directoryId"] for voter in voters}


def test_quorum_adds_and_removes_a_controller(
    run: Run, tools: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    assert "kraft.version" in run(FEATURES, "describe")
    node = cluster.add()
    try:
        rows = rows_of(run(QUORUM, "describe", "--replication"))
        (row,) = (row for row in rows if int(row["NodeId"]) == node)
        assert row["Status"] == "Observer"
        broker = cluster.brokers[node]
        properties = tmp_path / "controller.properties"
        properties.write_text(
            "process.roles=broker,controller\n"
            f"node.id={node}\n"
            f"log.dirs={broker.data}\n"
            f"listeners=PLAINTEXT://{broker.bootstrap_servers}\n"
            "controller.listener.names=PLAINTEXT\n"
        )
        run(QUORUM, "--command-config", str(properties), "add-controller")
        rows = rows_of(run(QUORUM, "describe", "--replication"))
        assert {int(row["NodeId"]) for row in rows if row["Status"] != "Observer"} == {1, 2, 3, 4}
        removed = run(
            QUORUM,
            "remove-controller",
            *("--controller-id", str(node)),
            *("--controller-directory-id", row["DirectoryId"]),
        )
        assert str(node) in removed
        rows = rows_of(run(QUORUM, "describe", "--replication"))
        assert {int(row["NodeId"]) for row in rows if row["Status"] != "Observer"} == {1, 2, 3}
    finally:
        cluster.stop(node)
        del cluster.brokers[node]


def test_reassign_generates_executes_and_verifies(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    create(run, "moved", partitions=2, replicas=1)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": "moved"}], "version": 1}))
    generated = run(
        REASSIGN,
        "--generate",
        *("--topics-to-move-json-file", str(topics)),
        *("--broker-list", "1,2,3"),
    )
    proposed = json.loads(generated.strip().splitlines()[-1])
    assert [row["partition"] for row in proposed["partitions"]] == [0, 1]
    plan = {
        "version": 1,
        "partitions": [
            {"topic": "moved", "partition": 0, "replicas": [2, 3]},
            {"topic": "moved", "partition": 1, "replicas": [3, 1]},
        ],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    executed = run(
        REASSIGN, "--execute", "--reassignment-json-file", str(file), "--throttle", "10000000"
    )
    assert "Successfully started partition reassignments for moved-0,moved-1" in executed
    assert "10000000 B/s" in executed

    def verified() -> bool:
        printed = run(REASSIGN, "--verify", "--reassignment-json-file", str(file))
        return printed.count("is completed") == 2 and "Clearing topic-level throttles" in printed

    eventually(verified, "the reassignment does not end")
    rows = partitions_of(run(TOPICS, "--describe", "--topic", "moved"))
    assert [numbers(row["Replicas"]) for row in rows] == [[2, 3], [3, 1]]
    topic = run(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved")
    assert "throttled" not in topic


def settings_of(run: Run, kind: str, name: str) -> dict[str, str]:
    """What kafka-configs prints of the settings that were made for a topic or a broker."""
    described = run(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)
    words = (line.split()[0] for line in described.splitlines() if line.startswith("  "))
    return dict(word.partition("=")[::2] for word in words)


def throttles_of(run: Run, topic: str) -> dict[str, str]:
    """The settings of throttles, of a topic and of all brokers."""
    settings = settings_of(run, "topics", topic)
    for node in range(1, NODES + 1):
        settings |= settings_of(run, "brokers", str(node))
    return {name: value for name, value in settings.items() if "replication.throttled" in name}


@pytest.fixture
def slow_move(
    run: Run, tools: KafkaTools, cluster: Cluster, tmp_path: Path
) -> Callable[[str], Path]:
    """Makes a topic with 5 MB on one node and moves it to another with 100 KB a second; gives the
    file with the plan."""

    def begin(topic: str) -> Path:
        assignment = ("--replica-assignment", "1", "--config", "min.insync.replicas=1")
        run(TOPICS, "--create", "--topic", topic, *assignment)
        tools.run(
            PERF,
            *("--topic", topic, "--num-records", "500", "--record-size", "10000"),
            *("--throughput", "-1", "--bootstrap-server", cluster.bootstrap),
        )
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2]}]}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(plan))
        execute = ("--execute", "--reassignment-json-file", str(file), "--throttle", "100000")
        executed = run(REASSIGN, *execute)
        assert f"Successfully started partition reassignment for {topic}-0" in executed
        assert "The inter-broker throttle limit was set to 100000 B/s" in executed
        return file

    return begin


def test_a_throttled_reassignment_is_cancelled_while_it_runs(
    run: Run, slow_move: Callable[[str], Path]
) -> None:
    file = slow_move("cancelled")
    assert throttles_of(run, "cancelled") == {
        "leader.replication.throttled.rate": "100000",
        "follower.replication.throttled.rate": "100000",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    assert "cancelled-0" in run(REASSIGN, "--list")
    verified = run(REASSIGN, "--verify", "--reassignment-json-file", str(file))
    assert "Reassignment of partition cancelled-0 is still in progress" in verified
    cancelled = run(REASSIGN, "--cancel", "--reassignment-json-file", str(file))
    assert "Successfully cancelled partition reassignment for: cancelled-0" in cancelled
    assert "No partition reassignments found" in run(REASSIGN, "--list")
    (row,) = partitions_of(run(TOPICS, "--describe", "--topic", "cancelled"))
    assert (numbers(row["Replicas"]), numbers(row["Isr"])) == ([1], [1])
    assert throttles_of(run, "cancelled") == {}


def test_a_reassignment_is_hurried_by_another_throttle_and_its_end_clears_it(
    run: Run, slow_move: Callable[[str], Path]
) -> None:
    file = slow_move("hurried")
    assert "hurried-0" in run(REASSIGN, "--list")
    more = ("--additional", "--execute", "--throttle", "100000000")
    run(REASSIGN, *more, "--reassignment-json-file", str(file))

    def verified() -> bool:
        printed = run(REASSIGN, "--verify", "--reassignment-json-file", str(file))
        return "is completed" in printed and "Clearing topic-level throttles" in printed

    eventually(verified, "the reassignment does not end", 20.0)
    (row,) = partitions_of(run(TOPICS, "--describe", "--topic", "hurried"))
    assert (numbers(row["Replicas"]), numbers(row["Isr"])) == ([2], [2])
    assert throttles_of(run, "hurried") == {}


def test_leader_election_restores_preferred_leaders(run: Run, cluster: Cluster) -> None:
    create(run, "spread", partitions=3)
    cluster.restart(2)
    election = ("--topic", "spread", "--partition", "1")

    def preferred() -> bool:
        rows = partitions_of(run(TOPICS, "--describe", "--topic", "spread"))
        return all(int(row["Leader"]) == numbers(row["Replicas"])[0] for row in rows)

    printed = run(LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed" in printed or "already elected" in printed
    eventually(preferred, "leaders are not the preferred ones")
    again = run(LEADER_ELECTION, "--election-type", "preferred", *election)
    assert "Valid replica already elected" in again


def test_leader_election_makes_a_replica_lead_that_was_not_in_sync(
    run: Run, cluster: Cluster
) -> None:
    run(
        TOPICS,
        *("--create", "--topic", "unclean", "--replica-assignment", "1:2"),
        *("--config", "min.insync.replicas=1"),
    )

    def partition() -> dict[str, str]:
        (row,) = partitions_of(run(TOPICS, "--describe", "--topic", "unclean"))
        return row

    cluster.kill(2)
    eventually(lambda: partition()["Isr"] == "1", "node 2 stays in sync")
    cluster.kill(1)
    cluster.start(2)
    try:
        eventually(lambda: partition()["Leader"] == "none", "the partition still has a leader")
        election = ("--topic", "unclean", "--partition", "0")
        elected = run(LEADER_ELECTION, "--election-type", "unclean", *election)
        assert (
            "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in elected
        )
        assert (partition()["Leader"], partition()["Isr"]) == ("2", "2")
    finally:
        cluster.start(1)
    eventually(lambda: sorted(numbers(partition()["Isr"])) == [1, 2], "node 1 does not follow")


def test_features_are_described_downgraded_and_upgraded(run: Run) -> None:
    def level(feature: str) -> str:
        lines = [fields_of(line) for line in run(FEATURES, "describe").splitlines()]
        (found,) = (line for line in lines if line.get("Feature") == feature)
        return found["FinalizedVersionLevel"]

    newest = level("metadata.version")
    assert newest.startswith("4.3")
    assert level("kraft.version") == "1"
    groups = level("group.version")
    run(FEATURES, "downgrade", "--feature", "group.version=0")
    assert level("group.version") == "0"
    run(FEATURES, "upgrade", "--feature", f"group.version={groups}")
    assert level("group.version") == groups
    with pytest.raises(ToolError):
        run(FEATURES, "upgrade", "--feature", "group.version=99")


def test_log_dirs_describes_every_replica(run: Run, cluster: Cluster) -> None:
    create(run, "dirs", partitions=2)
    described = run(LOG_DIRS, "--describe", "--topic-list", "dirs")
    (line,) = (line for line in described.splitlines() if line.startswith("{"))
    brokers = {row["broker"]: row["logDirs"] for row in json.loads(line)["brokers"]}
    assert set(brokers) == {1, 2, 3}
    for node, directories in brokers.items():
        (directory,) = directories
        assert directory["logDir"] == str(cluster.brokers[node].data)
        assert sorted(each["partition"] for each in directory["partitions"]) == ["dirs-0", "dirs-1"]


def test_settings_offsets_and_groups(run: Run, tools: KafkaTools, cluster: Cluster) -> None:
    create(run, "read", partitions=1)
    entity = ("--entity-type", "topics", "--entity-name", "read")
    run(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=7200000")
    assert "retention.ms=7200000" in run(CONFIGS, "--describe", *entity)
    sent = tools.run(
        PERF,
        *("--topic", "read"),
        *("--num-records", "1000"),
        *("--record-size", "100"),
        *("--throughput", "-1"),
        *("--bootstrap-server", cluster.bootstrap),
    )
    assert "1000 records sent" in sent
    assert run(GET_OFFSETS, "--topic", "read").strip() == "read:0:1000"
    run(
        VERIFIABLE_CONSUMER,
        *("--topic", "read"),
        *("--group-id", "readers"),
        *("--max-messages", "1000"),
        *("--reset-policy", "earliest"),
    )
    described = run(GROUPS, "--describe", "--group", "readers")
    (row,) = rows_of(described)
    assert (row["TOPIC"], row["CURRENT-OFFSET"], row["LAG"]) == ("read", "1000", "0")
    reset = run(
        GROUPS,
        *("--reset-offsets", "--group", "readers", "--topic", "read"),
        *("--to-earliest", "--execute"),
    )
    assert rows_of(reset)[0]["NEW-OFFSET"] == "0"
    run(GROUPS, "--delete", "--group", "readers")
    assert "readers" not in run(GROUPS, "--list").split()
