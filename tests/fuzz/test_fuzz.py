"""Malformed frames against a running node: a small share of what `make fuzz` sends."""

from pathlib import Path

import pytest

from tests.fuzz.run import fuzz


def test_malformed_frames_crash_nothing_and_leak_nothing(tmp_path: Path) -> None:
    run = fuzz(tmp_path, frames=7_000, seed=15)
    assert run.frames > 14_000
    assert run.connections >= 7_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_malformed_frames(tmp_path: Path) -> None:
    fuzz(tmp_path, frames=1_000_000, seed=1)
