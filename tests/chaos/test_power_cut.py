"""A power cut loses nothing that was acknowledged."""

import shutil
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.chaos.power_cut_run import PowerCutRun


def test_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    deadline = time.monotonic() + 12
    for seed in range(60):
        PowerCutRun(tmp_path / str(seed), seed).run(cuts=3, steps=30)
        if seed >= 20 and time.monotonic() > deadline:
            break


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """In processes that end now and then: one that lost its power leaves its files open."""
    seeds = range(1000, 6000)
    with get_context("spawn").Pool(maxtasksperchild=1) as pool:
        blocks = [seeds[at : at + 100] for at in range(0, len(seeds), 100)]
        for _ in pool.imap_unordered(partial(run_seeds, tmp_path), blocks):
            pass


def run_seeds(folder: Path, seeds: range) -> None:
    for seed in seeds:
        PowerCutRun(folder / str(seed), seed).run(cuts=4, steps=60)
        shutil.rmtree(folder / str(seed))
