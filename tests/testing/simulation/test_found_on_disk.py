"""What the simulator has found in the node, each as a test that needs no luck."""

from collections.abc import Callable

from tidelog.storage.store_options import StoreOptions
from tidelog.testing.history import check_history
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import DATA, SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.consuming import read_everything
from tidelog.testing.simulation.workloads.producing import IdempotentProducer
from tidelog.testing.simulation.workloads.topics import create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace


class World:
    """A node that makes a checkpoint every few records, and a producer."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(1, keeps_trace=True)
        self.network = Network(self.simulation)
        self.node = SimulatedNode(
            self.simulation,
            self.network,
            "node-1",
            settings=settings,
            log_directories=[f"{DATA}/0", f"{DATA}/1"],
            store_options=StoreOptions(checkpoint_journal_bytes=1000, journal_file_bytes=64 << 10),
        )
        self.workspace = Workspace(self.make_client)

    def make_client(self, name: str) -> SimulatedClient:
        return SimulatedClient(self.simulation, self.network, name, self.node.address)

    def run(self, seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
        until_us = self.simulation.now_us + int(seconds * SECOND_US)
        self.simulation.run_until(until_us, unless=unless)

    def produce(self, seconds: float, configs: dict[str, str] | None = None) -> None:
        client = self.make_client("producer")
        client.start(create_topics(client, self.workspace, ["topic"], 4, configs or {}))
        producer = IdempotentProducer(client, self.workspace, acks=-1)
        self.workspace.start_when_ready(client, producer.run)
        self.run(seconds)

    def check(self) -> None:
        """Everything that was acknowledged is there."""
        self.workspace.is_over = True
        self.run(10)
        client = self.make_client("reader")
        workspace = self.workspace
        client.start(
            read_everything(client, workspace.partitions, workspace.history, read_committed=False)
        )
        self.run(10)
        report = check_history(workspace.history)
        assert report.anomalies == []
        assert report.acknowledged > 100
        assert self.node.bugs == []


def test_a_disk_that_refuses_to_remove_an_old_snapshot_goes_offline() -> None:
    """The exception went through the loop, and other logs' part of the checkpoint was not done."""
    world = World()
    node, disk = world.node, world.node.disk
    struck: list[str] = []

    def refuse_one_removal(name: str, path: str, _detail: int) -> None:
        if name == "unlink" and path.endswith(".snapshot") and "/topic-" in path and not struck:
            struck.append(path)
            disk.fail_once("write")

    disk.on_operation = refuse_one_removal
    assert node.start()
    world.produce(1.0)
    assert struck
    assert node.bugs == []
    assert node.node is not None
    offline = [str(state.path) for state in node.node.store.directories if not state.online]
    assert offline == [struck[0][: len(f"{DATA}/0")]]
    node.cut_power()
    assert node.start()
    world.run(1.0)
    world.check()


def test_a_disk_that_refuses_to_remove_an_old_segment_goes_offline() -> None:
    """The exception went through a timer, and retention passed over the other partitions."""
    world = World({"log.retention.check.interval.ms": "100"})
    node, disk = world.node, world.node.disk
    struck: list[str] = []

    def refuse_one_removal(name: str, path: str, _detail: int) -> None:
        if name == "rename" and path.endswith("0.log") and not struck:
            struck.append(path)
            disk.fail_once("write")

    disk.on_operation = refuse_one_removal
    assert node.start()
    world.produce(2.0, {"segment.bytes": "1000", "retention.bytes": "1000"})
    assert struck
    assert node.bugs == []
    assert node.node is not None
    offline = [str(state.path) for state in node.node.store.directories if not state.online]
    assert offline == [struck[0][: len(f"{DATA}/0")]]
