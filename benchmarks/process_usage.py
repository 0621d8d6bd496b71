"""What a process used so far, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, frozen=True)
class Usage:
    """CPU seconds since the start, and memory now."""

    cpu_s: float
    resident_mb: float


def usage_of(pid: int) -> Usage:
    """The usage of a process and of its living children."""
    cpu_s = resident_mb = 0.0
    for each in (pid, *_children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        cpu_s += (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        status = Path(f"/proc/{each}/status").read_text()
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                resident_mb += int(line.split()[1]) / 1024
    return Usage(cpu_s, resident_mb)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []
