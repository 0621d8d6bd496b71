"""What a process used is read from outside of it."""

import subprocess
import sys

from benchmarks.process_usage import usage_of


def test_cpu_time_is_that_of_the_process_with_its_ended_threads() -> None:
    program = (
        "import sys, threading, time\n"
        "thread = threading.Thread(target=lambda: sum(range(2_000_000)))\n"
        "thread.start(); thread.join()\n"
        "print(time.process_time(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        own_s = float(process.stdout.readline())
        usage = usage_of(process.pid)
        process.communicate(b"")
    assert own_s <= usage.cpu_s < own_s + 0.1
    assert usage.resident_mb > 1
