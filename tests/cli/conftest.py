"""The command as a user runs it: in a process of its own, against a real broker."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tidelog.testing import Broker

Run = Callable[..., subprocess.CompletedProcess[str]]

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"cli-{next(_numbers)}"


@pytest.fixture
def run(broker: Broker) -> Run:
    def call(*arguments: str, given: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_command(*arguments, given=given, bootstrap=broker.bootstrap_servers)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    return call


def run_command(
    *arguments: str, given: str = "", bootstrap: str = "127.0.0.1:1"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "TIDELOG_BOOTSTRAP": bootstrap},
    )
