"""The same seed gives the same trace, byte for byte, in any process and after any other seed."""

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tidelog.testing.simulation.exploration import run_seed_guarded

DIGESTS = """
import sys
from tidelog.testing.simulation.exploration import run_seed_guarded

for seed in map(int, sys.argv[1:]):
    print(seed, run_seed_guarded(seed).trace_digest)
"""


def digests_elsewhere(seeds: Iterable[int], hash_seed: int) -> list[str]:
    """Of a process of its own, in which strings have other hashes."""
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_seed_has_one_trace() -> None:
    seeds = range(5)
    here = [f"{seed} {run_seed_guarded(seed).trace_digest}" for seed in reversed(seeds)]
    elsewhere = digests_elsewhere(seeds, hash_seed=1)
    assert len(set(elsewhere)) == len(seeds)
    assert elsewhere == here[::-1]
    assert digests_elsewhere(seeds, hash_seed=2) == elsewhere


@pytest.mark.slow
def test_many_seeds_have_one_trace() -> None:
    seeds = range(1000, 1100)
    assert digests_elsewhere(seeds, hash_seed=1) == digests_elsewhere(seeds, hash_seed=2)


def test_a_trace_that_is_kept_is_the_one_that_is_digested() -> None:
    kept = run_seed_guarded(7, keeps_trace=True)
    assert kept.trace
    assert run_seed_guarded(7).trace_digest == kept.trace_digest
