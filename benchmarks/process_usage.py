"""What a process used so far, from its CPU clock and /proc."""

import time
from dataclasses import dataclass
from pathlib import Path

# A process's CPU clock as clock_getcpuclockid(3) makes it: the inverted pid over three bits that
# stand for "scheduled time of the whole process".
_PROCESS_CLOCK = 2


@dataclass(slots=True, frozen=True)
class Usage:
    """CPU seconds since the start, and memory now."""

    cpu_s: float
    resident_mb: float


def usage_of(pid: int) -> Usage:
    """The usage of a process, its ended threads included, and of its living children."""
    processes = (pid, *_children(pid))
    return Usage(sum(map(_cpu_s, processes)), sum(map(_resident_mb, processes)))


def _cpu_s(pid: int) -> float:
    # In nanoseconds, where /proc has ticks of 10 ms: a tenth of a short measurement.
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []
