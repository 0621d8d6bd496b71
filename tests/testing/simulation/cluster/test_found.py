"""Seeds that have found mistakes, each named for what was wrong."""

import pytest

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(842, id="a verification that was refused asked another node at once"),
    ],
)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert run_cluster_guarded(seed).failures == []
