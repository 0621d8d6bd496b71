"""`tidelog simulate`: one seed with its story, many seeds with their totals."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli import tidelog


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(tidelog, ["simulate", *arguments])


def test_one_seed_tells_its_options_and_what_happened() -> None:
    result = simulate("--seed", "3")
    assert result.exit_code == 0, result.output
    assert "seed 3: duration_s" in result.output
    assert "acknowledged" in result.output


def test_trace_tells_the_story() -> None:
    result = simulate("--seed", "5", "--trace")
    assert "starts, life 1" in result.output
    assert "producer-0" in result.output
    assert "produced" in result.output


def test_seeds_are_counted_with_what_they_saw() -> None:
    result = simulate("--seeds", "0:6", "--jobs", "2")
    assert result.exit_code == 0, result.output
    assert "6 seeds in" in result.output
    assert "a second, 0 failed" in result.output
    assert "power cuts" in result.output


def test_a_failure_names_its_seed_and_the_command_that_repeats_it() -> None:
    result = simulate("--count", "2", "--from", "4", "--jobs", "1", "--plant", "forget-long-polls")
    assert result.exit_code == 1
    assert "seed 4 failed" in result.output
    assert "  options: duration_s" in result.output
    assert "a long poll at 0 was not woken" in result.output
    command = "tidelog simulate --seed 4 --trace --plant forget-long-polls"
    assert f"repeat: {command}" in result.output
    repeated = simulate(*command.split()[2:])
    assert repeated.exit_code == 1
    assert "a long poll at 0 was not woken" in repeated.output


def test_minutes_begin_at_a_seed_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cli.simulate._draw_first_seed", lambda: 40)
    result = simulate("--minutes", "0.000001", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "seeds from 40 on for 1e-06 minutes" in result.output
    assert "20 seeds in" in result.output


def test_planted_bugs_are_listed() -> None:
    result = simulate("--plant", "list")
    assert result.exit_code == 0
    assert "acknowledge-before-sync" in result.output


def test_contradictions_are_refused() -> None:
    assert "exclude each other" in simulate("--seed", "1", "--count", "2").output
    assert "say which with --seed" in simulate("--trace").output
    assert "no planted bug 'typo'" in simulate("--seed", "1", "--plant", "typo").output
    assert "FROM:TO" in simulate("--seeds", "5").output
    assert "has no seeds" in simulate("--seeds", "5:5").output


def test_other_commands_do_not_load_the_simulator() -> None:
    code = (
        "import sys, tidelog.cli, tidelog.cli.simulate\n"
        "print([name for name in sys.modules if 'simulation' in name or 'server' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_quorum_alone_is_simulated() -> None:
    result = simulate("--consensus", "--seeds", "0:40", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "40 seeds in" in result.output
    assert "elections won" in result.output


def test_a_failure_of_the_quorum_names_the_command_that_repeats_it() -> None:
    result = simulate("--consensus", "--seed", "0", "--plant", "acknowledge-on-append")
    assert result.exit_code == 1
    command = "tidelog simulate --consensus --seed 0 --trace --plant acknowledge-on-append"
    assert f"repeat: {command}" in result.output
    repeated = simulate(*command.split()[2:])
    assert repeated.exit_code == 1
    assert "PROBLEM: proposal" in repeated.output


def test_planted_bugs_of_the_quorum_are_listed() -> None:
    result = simulate("--consensus", "--plant", "list")
    assert "vote-for-shorter-logs" in result.output
    assert "ignore-failed-sync" not in result.output


def test_the_story_of_a_cluster_is_told_and_drawn(tmp_path: Path) -> None:
    page = tmp_path / "story.html"
    story = simulate(
        "--cluster", "--seed", "5", "--without", "0,1", "--timeline", "--html", str(page)
    )
    assert story.exit_code == 0, story.output
    assert "the cluster is well" in story.output
    assert f"wrote {page}" in story.output
    assert "--cluster --seed 5 --without 0,1" in page.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--timeline",),
        ("--cluster", "--html", "x.html"),
        ("--seed", "5", "--without", "3"),
        ("--seed", "5", "--shrink"),
        ("--cluster", "--seed", "5", "--without", "x"),
    ],
)
def test_stories_are_of_one_seed_of_clusters(arguments: tuple[str, ...]) -> None:
    assert simulate(*arguments).exit_code == 2


def test_a_good_seed_cannot_be_shrunk() -> None:
    result = simulate("--cluster", "--seed", "5", "--shrink")
    assert result.exit_code == 2
    assert "does not fail" in result.output
