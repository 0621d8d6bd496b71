"""The same seed gives the same trace, byte for byte, in any process."""

import os
import subprocess
import sys

from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded

DIGESTS = """
import sys
from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded

for seed in map(int, sys.argv[1:]):
    print(seed, run_cluster_guarded(seed).trace_digest)
"""
SEEDS = (5, 10, 13, 14)


def test_a_seed_has_one_trace() -> None:
    elsewhere = subprocess.run(
        [sys.executable, "-c", DIGESTS, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    here = [f"{seed} {run_cluster_guarded(seed).trace_digest}" for seed in reversed(SEEDS)]
    assert len(set(elsewhere)) == len(SEEDS)
    assert elsewhere == here[::-1]


def test_a_trace_tells_of_all_nodes() -> None:
    result = run_cluster_guarded(13, keeps_trace=True)
    assert result.is_good
    for name in ("node-1", "node-2", "node-3"):
        assert any(f"  {name} " in line for line in result.trace)
    assert run_cluster_guarded(13).trace_digest == result.trace_digest
