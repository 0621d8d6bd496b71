"""A worker that Spark has dropped ends without a traceback."""

import subprocess
import sys

# A daemon of Spark is a module that is run, and calls `worker` by its name for each task.
_DROPPED = """
import socket, sys
main = sys.modules["__main__"]
main.__spec__ = type("Spec", (), {"name": sys.argv[1]})

def worker(sock, authenticated):
    sock.sendall(b"last words")

import pyspark_tidelog
ours, sparks = socket.socketpair()
sparks.close()
print(main.worker(ours, True))
"""


def _dropped(module: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", _DROPPED, module], capture_output=True, text=True, check=False
    )


def test_a_planner_that_knows_our_source_is_quiet() -> None:
    done = _dropped("pyspark.daemon")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_other_programs_are_left_alone() -> None:
    done = _dropped("somebody.else")
    assert done.returncode == 1
    assert "BrokenPipeError" in done.stderr
