"""The simulator tells of what a node has lost, whether a client asks for it or not."""

from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import DATA, SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation

METADATA_LOG = f"{DATA}/__cluster_metadata-0/{0:020d}.log"


def test_a_decision_that_a_start_has_lost_is_a_problem() -> None:
    """The start appends more than was lost, so that the length of the log shows nothing."""
    simulation = Simulation(1)
    node = SimulatedNode(simulation, Network(simulation), "node-1")
    assert node.start()
    assert node.node is not None
    # The last that a node says by itself.
    simulation.run_until(SECOND_US, unless=lambda: bool(node.node and node.node.image.controllers))
    offset = node.node.metadata.image.offset
    node.kill()
    node.disk.damage(METADATA_LOG, len(node.disk.read(METADATA_LOG)) - 1)
    assert node.start()
    assert node.node.metadata.log.log_end_offset > offset
    (problem,) = node.bugs
    assert problem.startswith(f"the metadata was committed up to {offset}, and {METADATA_LOG} has")


def test_a_start_that_has_all_decisions_is_no_problem() -> None:
    simulation = Simulation(1)
    node = SimulatedNode(simulation, Network(simulation), "node-1")
    for _ in range(3):
        assert node.start()
        node.kill()
    assert node.bugs == []
