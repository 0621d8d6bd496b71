"""A worker that Spark has dropped ends without a traceback."""

import subprocess
import sys

import pytest

# A daemon of Spark is a module that is run, and prints what ends the worker that it forked.
_DROPPED = """
import socket, sys, traceback
main = sys.modules["__main__"]
main.__spec__ = type("Spec", (), {"name": sys.argv[1]})

def worker(sock):
    __import__(sys.argv[2])
    sock.sendall(b"last words")

ours, sparks = socket.socketpair()
sparks.close()
try:
    worker(ours)
except BaseException:
    traceback.print_exc()
try:
    [][0]
except BaseException:
    traceback.print_exc()
"""


def _dropped(daemon: str, module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _DROPPED, daemon, module], capture_output=True, text=True, check=True
    )
    # Any other trouble is told.
    assert "IndexError" in done.stderr
    return done.stderr


@pytest.mark.parametrize("module", ["pyspark_tidelog", "tidelog.spark.lake.archiving"])
def test_a_worker_that_has_to_do_with_us_is_quiet(module: str) -> None:
    assert "BrokenPipeError" not in _dropped("pyspark.daemon", module)


def test_other_programs_are_left_alone() -> None:
    assert "BrokenPipeError" in _dropped("somebody.else", "pyspark_tidelog")


# The process of a query's source is such a module too, and ends by what it meets.
_ENDED = """
import socket, sys
main = sys.modules["__main__"]
main.__spec__ = type("Spec", (), {"name": sys.argv[1]})
import pyspark_tidelog

ours, sparks = socket.socketpair()
sparks.close()
try:
    raise EOFError
except EOFError:
    ours.sendall(b"last words") if sys.argv[2] == "dropped" else [][0]
"""
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


@pytest.mark.parametrize(
    ("program", "trouble", "told"),
    [
        (_RUNNER, "dropped", None),
        (_RUNNER, "another", "IndexError"),
        ("somebody.else", "dropped", "BrokenPipeError"),
    ],
)
def test_a_source_whose_query_was_stopped_is_quiet(
    program: str, trouble: str, told: str | None
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENDED, program, trouble], capture_output=True, text=True
    )
    assert done.returncode == 1
    if told is None:
        assert done.stderr == ""
    else:
        assert told in done.stderr


def test_an_executors_daemon_is_quiet() -> None:
    script = (
        "import runpy, pyspark.daemon as daemon\n"
        "daemon.manager = lambda: print(type(daemon.traceback).__name__)\n"
        "runpy.run_module('tidelog.spark.runtime.python_daemon', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "_Tracebacks\n"
