"""What runs on the hosts: Tidelog from a source tree, or Apache Kafka, with the same settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.chaos.cluster.hosts import address_of

SOURCES = Path(__file__).resolve().parents[3] / "src"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
PORT = 9092
_CONTROLLER_PORT = 9093

# What makes rounds short: a node that is lost is missed within seconds, not within minutes. Records
# are kept whatever the clocks say.
QUICK = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "default.replication.factor": "3",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "5",
    "log.cleaner.backoff.ms": "500",
    "log.retention.ms": "-1",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
}


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The nodes 1 to `nodes`, of which the first `voters` are the metadata quorum."""

    nodes: int
    voters: int
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def voter_ids(self) -> range:
        return range(1, self.voters + 1)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{address_of(node)}:{PORT}" for node in self.node_ids)


@dataclass(frozen=True, slots=True)
class Command:
    """How one node is started."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


class Server(Protocol):
    name: str

    def prepare(self, node: int, data: Path) -> None:
        """What is done once with an empty data directory."""

    def command(self, node: int, data: Path) -> Command:
        """Starts the node, for the first time or again."""


class Tidelog:
    """`tidelog up`: the first node begins a cluster and the others join it."""

    name = "tidelog"

    def __init__(self, plan: ClusterPlan, sources: Path = SOURCES) -> None:
        self._plan = plan
        self.sources = sources

    def prepare(self, node: int, data: Path) -> None:
        pass

    def command(self, node: int, data: Path) -> Command:
        settings = {**QUICK, **self._plan.settings}
        arguments = [
            *(sys.executable, "-m", "tidelog", "up", "--quiet"),
            *("--data", str(data / "log"), "--listen", f"{address_of(node)}:{PORT}"),
            *("--node-id", str(node), "--voters", str(self._plan.voters)),
            *(f"--set={name}={value}" for name, value in settings.items()),
        ]
        if node != 1:
            others = [each for each in self._plan.node_ids if each != node]
            arguments += ["--join", ",".join(f"{address_of(each)}:{PORT}" for each in others)]
        return Command(arguments, {"PYTHONPATH": str(self.sources)})


class Kafka:
    """Apache Kafka with a fixed quorum; the voters are brokers as well."""

    name = "kafka"

    def __init__(
        self, plan: ClusterPlan, libraries: Path, features: Mapping[str, int] | None = None
    ) -> None:
        self._plan = plan
        self._java = ["java", "-Xmx320M", "-Xms320M", "-XX:+UseSerialGC", "-cp", f"{libraries}/*"]
        self._features = features or {}

    def prepare(self, node: int, data: Path) -> None:
        is_voter = node in self._plan.voter_ids
        here = address_of(node)
        listeners = [f"PLAINTEXT://{here}:{PORT}"]
        if is_voter:
            listeners.append(f"CONTROLLER://{here}:{_CONTROLLER_PORT}")
        voters = ",".join(
            f"{voter}@{address_of(voter)}:{_CONTROLLER_PORT}" for voter in self._plan.voter_ids
        )
        settings = {
            **QUICK,
            **self._plan.settings,
            "process.roles": "broker,controller" if is_voter else "broker",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(data / "log"),
        }
        properties = data / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        features = [f"--feature={name}={level}" for name, level in self._features.items()]
        formatted = subprocess.run(
            [
                *self._java,
                *("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)),
                *features,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if formatted.returncode:
            raise RuntimeError(f"Kafka cannot format: {formatted.stdout}{formatted.stderr}")
        # What a power cut must not take: it is written before the cluster has a history.
        subprocess.run(["sync", "-f", str(data)], check=True)

    def command(self, node: int, data: Path) -> Command:
        return Command([*self._java, "kafka.Kafka", str(data / "server.properties")], {})
