"""Which commands do without confluent-kafka, and what the others say when it is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidelog.testing import Broker

_ROOT = Path(__file__).parents[2]

# An entry of None makes every import of the name fail as if it were not installed.
_MAIN = "import sys; sys.modules['confluent_kafka'] = None; from tidelog.cli import main; main()"


def run_without(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [("topic", "list"), ("group", "list"), ("txn", "list"), ("up", "--help")]
)
def test_commands_that_do_without_it(broker: Broker, arguments: tuple[str, ...]) -> None:
    where = () if "--help" in arguments else ("-b", broker.bootstrap_servers)
    done = run_without(*arguments, *where)
    assert done.returncode == 0, done.stderr


def test_records_go_in_and_come_out_without_it(broker: Broker, topic: str) -> None:
    where = ("-b", broker.bootstrap_servers)
    done = run_without("produce", topic, "-z", "lz4", *where, given="one\ntwo\n")
    assert done.returncode == 0, done.stderr
    for group in ((), ("-g", f"g-{topic}")):
        done = run_without("consume", topic, *group, *where)
        assert (done.returncode, done.stdout) == (0, "one\ntwo\n"), done.stderr


def test_the_command_that_needs_it_says_so() -> None:
    done = run_without("bench", "produce")
    assert done.returncode == 1
    needs = 'error: tidelog bench needs confluent-kafka: pip install "tidelog[client]"'
    assert done.stderr.strip() == needs


@pytest.mark.parametrize("name", ["connect", "Client", "Worker", "Subscription"])
def test_the_sdk_says_so_too(name: str) -> None:
    code = f"import sys; sys.modules['confluent_kafka'] = None; from tidelog.client import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    told = f'tidelog.client.{name} needs confluent_kafka: pip install "tidelog[client]"'
    assert told in done.stderr


def test_the_core_install_does_without_it() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    core = " ".join(project["dependencies"])
    assert "confluent" not in core
    assert any("confluent-kafka" in each for each in project["optional-dependencies"]["client"])
