"""`tidelog group describe --watch`, on a terminal and into a pipe, until it is interrupted."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cli.conftest import Run
from tests.cli.interruptible import INTERRUPTIBLE
from tidelog.testing import Broker

_TIMEOUT_S = 60.0
_SHOW_CURSOR = "\x1b[?25h"


class _Watch:
    """A running command whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], output_fd: int) -> None:
        self._process = process
        self._output_fd = output_fd
        self.output = ""

    def read_until(self, is_there: Callable[[str], object]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_there(self.output):
            assert time.monotonic() < deadline, self.output
            self._read(0.1)

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit status."""
        self._process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _TIMEOUT_S
        # Somebody has to read a terminal, or what writes to it cannot end.
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.output
            self._read(0.1)
        while self._read(0):
            pass
        return self._process.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._output_fd], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self._output_fd, 65_536)
        except OSError:  # the terminal's other end is closed
            return False
        self.output += data.decode(errors="replace")
        return bool(data)


@contextmanager
def _watching(broker: Broker, group: str, *options: str, on_terminal: bool) -> Iterator[_Watch]:
    output_fd, command_fd = pty.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen(
        [
            *(*INTERRUPTIBLE, "group", "describe", group),
            *("--watch", "--interval", "0.1", *options),
        ],
        stdin=subprocess.DEVNULL,
        stdout=command_fd,
        stderr=command_fd,
        env={
            **{name: value for name, value in os.environ.items() if name != "FORCE_COLOR"},
            "TIDELOG_BOOTSTRAP": broker.bootstrap_servers,
            "TERM": "xterm",
            "COLUMNS": "150",
            "LINES": "50",
        },
    )
    os.close(command_fd)
    try:
        yield _Watch(process, output_fd)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(output_fd)


def _make_group(run: Run, topic: str) -> str:
    group = f"watched-{topic}"
    run("topic", "create", topic)
    run("produce", topic, given="1\n2\n3\n4\n")
    run("consume", topic, "-g", group, "-n", "3")
    return group


def test_the_lag_is_followed_on_a_terminal(run: Run, broker: Broker, topic: str) -> None:
    group = _make_group(run, topic)
    with _watching(broker, group, on_terminal=True) as watch:
        watch.read_until(lambda output: topic in output and _lags(output)[-1:] == ["1"])
        run("produce", topic, given="5\n6\n")
        watch.read_until(lambda output: _lags(output)[-1] == "3")
        assert watch.interrupt() == 0
        assert "Traceback" not in watch.output
        assert watch.output.rindex(_SHOW_CURSOR) > watch.output.rindex("lag")


def test_each_view_is_printed_at_once_into_a_pipe(run: Run, broker: Broker, topic: str) -> None:
    group = _make_group(run, topic)
    with _watching(broker, group, on_terminal=False) as watch:
        watch.read_until(lambda output: _lags(output).count("1") >= 2)
        run("produce", topic, given="5\n6\n")
        watch.read_until(lambda output: "3" in _lags(output))
        assert watch.interrupt() == 0
        assert "Traceback" not in watch.output
        assert "\x1b" not in watch.output


def test_each_view_is_a_line_of_json(run: Run, broker: Broker, topic: str) -> None:
    group = _make_group(run, topic)
    with _watching(broker, group, "--json", on_terminal=False) as watch:
        watch.read_until(lambda output: output.count("\n") >= 2)
        run("produce", topic, given="5\n6\n")
        watch.read_until(lambda output: '"lag": 3' in output)
        assert watch.interrupt() == 0
        views = [json.loads(line) for line in watch.output.splitlines()]
    assert [view["lag"] for view in views] == sorted(view["lag"] for view in views)
    assert {view["group"] for view in views} == {group}


def test_a_group_that_does_not_exist_is_not_watched(run: Run) -> None:
    done = run("group", "describe", "nobody", "--watch", status=3)
    assert done.stderr == "error: the group nobody does not exist\n"


def _lags(output: str) -> list[str]:
    """The lag in the head line of each view so far, as shown to a reader."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    return re.findall(r"members  lag ([0-9,]+)", plain)
