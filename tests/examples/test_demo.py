"""The demo as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from examples.shop.checking import Check
from examples.shop.deadline import Deadline
from examples.shop.demo import Demo
from examples.shop.events import make_day, truth
from examples.shop.run import verdict
from tidelog.spark.pipeline.pipeline_file import read_pipeline_file

ROOT = Path(__file__).parent.parent.parent


def test_the_pipeline_of_the_demo_has_no_problems() -> None:
    file = read_pipeline_file(ROOT / "examples" / "shop" / "pipeline.toml", {})
    assert file.problems == ()


@pytest.mark.parametrize(("found", "exit_code"), [(1, 0), (2, 1)])
def test_a_check_that_fails_makes_the_demo_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: int, exit_code: int
) -> None:
    from rich.console import Console

    day = make_day(1, 100)
    demo = Demo(tmp_path, day, truth(day), 1, Deadline(10), Console())
    demo.check(Check("one", 1, found))
    assert verdict(demo, tmp_path / "shop.png", is_kept=False) == exit_code
    shown = capsys.readouterr().out
    assert ("1 of 1 checks failed" in shown) == bool(exit_code)


@pytest.mark.slow
def test_the_demo_ends_by_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.shop.run", "--orders", "3000", "--seconds", "15"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-5000:], done.stderr[-3000:])
    assert "checks hold" in done.stdout
    assert not list(tmp_path.glob("tidelog-shop-*"))
    assert not [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(tmp_path)
    ]
