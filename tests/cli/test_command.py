"""The command line itself: help, errors, exit codes."""

from pathlib import Path

import pytest

from tests.cli.conftest import run_command


def test_help_lists_the_commands() -> None:
    done = run_command("--help")
    assert done.returncode == 0
    for name in ("up", "topic", "produce", "consume", "group", "txn", "bench", "log"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "name", ["up", "topic", "produce", "consume", "group", "txn", "bench", "log"]
)
def test_every_command_has_help(name: str) -> None:
    assert run_command(name, "--help").returncode == 0


def test_a_mistyped_command_gets_a_suggestion() -> None:
    done = run_command("topc", "list")
    assert done.returncode == 2
    assert "topic" in done.stderr


def test_no_broker_is_one_line_and_no_traceback() -> None:
    done = run_command("topic", "list")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no broker answers at 127.0.0.1:1")
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_of_the_node_is_named(tmp_path: Path) -> None:
    done = run_command("up", "--data", str(tmp_path), "--set", "num.partition=3")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_value_is_named(tmp_path: Path) -> None:
    done = run_command("up", "--data", str(tmp_path), "--set", "num.partitions=many")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "many" in done.stderr


def test_a_configuration_file_that_is_not_there(tmp_path: Path) -> None:
    done = run_command("up", "--config", str(tmp_path / "none.toml"))
    assert done.returncode == 1
    assert "none.toml" in done.stderr
