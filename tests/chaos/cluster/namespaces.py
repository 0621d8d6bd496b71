"""A world of its own for a run: namespaces for its network, mounts and processes.

Everything that a run makes (interfaces, rules, mounts, processes) is in them and ends with the run,
also when that is killed. So two runs side by side have the same addresses and do not meet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Without root the namespaces of a user of one's own have all but loop devices.
_AS_ROOT_OF_ONES_OWN = ["--user", "--map-root-user"]
_TOOLS = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "iptables": "iptables",
    "iptables-restore": "iptables",
}
_INSIDE = "CHAOS_NAMESPACES"
_TRIAL = (
    "ip link set lo up && ip link add trial type bridge && "
    "ip link add trial-a type veth peer name trial-b && ip link set trial-a master trial && "
    "iptables -A INPUT -s 10.77.0.1 -j DROP && mount -t tmpfs trial /mnt"
)


def is_inside() -> bool:
    """Whether this process was started by `enter`."""
    return _INSIDE in os.environ


def missing() -> str | None:
    """What keeps a run from having namespaces here, as a sentence; None when nothing does."""
    packages = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if packages:
        return f"Network namespaces need the packages {', '.join(sorted(packages))}."
    trial = subprocess.run(
        [*_unshare(), "sh", "-c", _TRIAL], capture_output=True, text=True, check=False
    )
    if trial.returncode:
        reason = (trial.stderr.strip().splitlines() or ["no reason was given"])[-1]
        return f"Network namespaces with bridges and iptables are not allowed here: {reason}"
    return None


def enter(module: str, arguments: Sequence[str]) -> int:
    """Run a module of this Python in new namespaces; returns its exit code."""
    # Out here nothing is mounted in the folder, so that all of it can be removed.
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-run-") as folder:
        return subprocess.run(
            [
                # Whoever ends this process ends all that is in the namespaces.
                *("setpriv", "--pdeathsig", "KILL"),
                *_unshare(),
                *(sys.executable, "-m", module, *arguments),
            ],
            check=False,
            env={**os.environ, _INSIDE: folder},
        ).returncode


def folder() -> Path:
    """Where a run inside has its disks and logs; removed after it."""
    return Path(os.environ[_INSIDE])


def has_loop_devices() -> bool:
    """Whether a file can be mounted as a disk here."""
    return (
        os.geteuid() == 0
        and os.path.exists("/dev/loop-control")
        and shutil.which("mkfs.ext4") is not None
        and not _is_in_user_namespace()
    )


def _is_in_user_namespace() -> bool:
    with open("/proc/self/uid_map") as file:
        return file.read().split() != ["0", "0", "4294967295"]


def _unshare() -> list[str]:
    return _UNSHARE if os.geteuid() == 0 else [*_UNSHARE, *_AS_ROOT_OF_ONES_OWN]
