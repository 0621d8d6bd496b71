"""What the simulator of clusters has found: seeds, and what can be told without one."""

import pytest

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded
from tidelog.testing.simulation.cluster.options import ClusterOptions
from tidelog.testing.simulation.cluster.scenario import CLUSTER_ID
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(19, id="a node led on without room: nobody knew in which directory"),
        pytest.param(37, id="a node without room for its vote heard of no leader"),
        pytest.param(842, id="a verification that was refused asked another node at once"),
        pytest.param(60083, id="a torn end of a static voter's metadata was taken for damage"),
    ],
)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert run_cluster_guarded(seed).failures == []


def test_a_controller_that_stops_before_it_serves_listens_no_more() -> None:
    """It unfences its own broker while it resigns; its listeners are closed by then."""
    simulation = Simulation(1, keeps_trace=True)
    network = Network(simulation)
    options = ClusterOptions.draw(*map(simulation.random, ("options", "more", "situations")))
    options.nodes, options.has_static_voters = 3, True
    nodes = [
        SimulatedNode(
            simulation,
            network,
            f"node-{number}",
            settings={"cluster.id": CLUSTER_ID, **options.node_settings(number)},
        )
        for number in range(1, 4)
    ]
    stopped: list[SimulatedNode] = []

    def stop_controller(which: SimulatedNode) -> None:
        node = which.node
        assert node is not None
        if not stopped and node.metadata.is_active and node.broker_epoch >= 0:
            assert not node.is_ready
            stopped.append(which)
            which.stop()

    for each in nodes:
        each.on_turn = lambda each=each: stop_controller(each)  # type: ignore[misc]
        assert each.start()
    simulation.run_until(5 * SECOND_US)
    (controller,) = stopped
    assert not controller.is_alive
    assert [bug for node in nodes for bug in node.bugs] == []
    assert simulation.lines is not None
    own = [line for line in simulation.lines if controller.name in line]
    assert any("node_stopping" in line for line in own)
    assert not any("node_started" in line for line in own)
