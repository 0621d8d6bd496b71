"""A power cut loses nothing that was acknowledged."""

import time
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
@pytest.mark.timeout(1800)
def test_many_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    for seed in range(1000, 6000):
        PowerCutRun(tmp_path / str(seed), seed).run(cuts=4, steps=60)
