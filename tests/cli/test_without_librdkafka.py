"""Which commands do without confluent-kafka, and what the others say when it is missing."""

import subprocess
import sys

import pytest

from tidelog.testing import Broker

# An entry of None makes every import of the name fail as if it were not installed.
_MAIN = "import sys; sys.modules['confluent_kafka'] = None; from tidelog.cli import main; main()"


def run_without(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments", [("topic", "list"), ("group", "list"), ("txn", "list"), ("up", "--help")]
)
def test_commands_that_do_without_it(broker: Broker, arguments: tuple[str, ...]) -> None:
    where = () if "--help" in arguments else ("-b", broker.bootstrap_servers)
    done = run_without(*arguments, *where)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["produce", "consume", "bench"])
def test_commands_that_need_it_say_so(command: str) -> None:
    done = run_without(command, "topic")
    assert done.returncode == 1
    needs = f'error: tidelog {command} needs confluent-kafka: pip install "tidelog[client]"'
    assert done.stderr.strip() == needs


def test_the_sdk_says_so_too() -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; from tidelog.client import connect"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    told = 'tidelog.client.connect needs confluent_kafka: pip install "tidelog[client]"'
    assert told in done.stderr
