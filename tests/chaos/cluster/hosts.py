"""Hosts in network namespaces: each has one link to a bridge, and rules for what it hears.

    clients and runner 10.77.0.254 ── bridge ──┬── host 1, 10.77.0.1
                                               ├── host 2, 10.77.0.2
                                               └── …

A packet is dropped or held up where it arrives, by its source. So "1 does not hear 2" is one rule,
and every partition of a network is a set of such pairs. Nobody is told: connections stay open.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

CLIENTS = 254
"""The number of the host in which the runner and all clients are."""

SLOW_QUEUE = 7

Cut = tuple[int, int]
"""(who does not hear, whom)"""


def address_of(host: int) -> str:
    return f"10.77.0.{host}"


@dataclass(frozen=True, slots=True)
class SlowLink:
    """What happens to the packets that a host gets: each is held up by itself, so that they may
    overtake one another, and some are lost."""

    delay_ms: int
    jitter_ms: int
    loss_percent: float
    seed: int


@dataclass(slots=True)
class Host:
    """A network namespace; commands with `prefix` before them run in it."""

    number: int
    holder: subprocess.Popen[bytes] | None
    slow_link: subprocess.Popen[bytes] | None = None
    slow: SlowLink | None = None
    deaf_to: set[int] = field(default_factory=set)

    @property
    def address(self) -> str:
        return address_of(self.number)

    @property
    def prefix(self) -> list[str]:
        if self.holder is None:
            return []
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]


class Network:
    """The hosts 1 to `count` and the host of the clients, on one bridge of this namespace."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "hosts", "type", "bridge")
        _run("ip", "address", "add", f"{address_of(CLIENTS)}/24", "dev", "hosts")
        _run("ip", "link", "set", "hosts", "up")
        self.hosts = {number: self._add(number) for number in range(1, count + 1)}
        self.hosts[CLIENTS] = Host(CLIENTS, None)

    def _add(self, number: int) -> Host:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo && exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        holder.stdout.readline()  # the namespace is there
        host = Host(number, holder)
        outside, inside = f"host-{number}", "eth0"
        _run(
            *("ip", "link", "add", outside, "type", "veth"),
            *("peer", "name", inside, "netns", str(holder.pid)),
        )
        _run("ip", "link", "set", outside, "master", "hosts", "up")
        _run(*host.prefix, "ip", "link", "set", "lo", "up")
        _run(*host.prefix, "ip", "address", "add", f"{host.address}/24", "dev", inside)
        _run(*host.prefix, "ip", "link", "set", inside, "up")
        return host

    # Partitions

    def cut(self, cuts: Iterable[Cut]) -> None:
        """From now on each first host of a pair does not hear the second."""
        with self._lock:
            for deaf, speaker in cuts:
                self.hosts[deaf].deaf_to.add(speaker)
            self._apply()

    def mend(self, cuts: Iterable[Cut]) -> None:
        with self._lock:
            for deaf, speaker in cuts:
                self.hosts[deaf].deaf_to.discard(speaker)
            self._apply()

    def slow_down(self, number: int, slow: SlowLink) -> None:
        """Hold up and lose packets that this host gets."""
        with self._lock:
            host = self.hosts[number]
            host.slow = slow
            host.slow_link = subprocess.Popen(
                [
                    *host.prefix,
                    *(sys.executable, "-m", "tests.chaos.cluster.slow_link"),
                    *(str(SLOW_QUEUE), str(slow.delay_ms), str(slow.jitter_ms), str(slow.seed)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            assert host.slow_link.stdout is not None
            host.slow_link.stdout.readline()  # it holds the queue
            self._apply()

    def speed_up(self, number: int) -> None:
        with self._lock:
            host = self.hosts[number]
            host.slow = None
            self._apply()
            if host.slow_link is not None:
                host.slow_link.kill()
                host.slow_link.wait()
                host.slow_link = None

    def heal(self) -> None:
        """Everybody hears everybody, at once."""
        for number, host in self.hosts.items():
            self.speed_up(number)
            with self._lock:
                host.deaf_to.clear()
        with self._lock:
            self._apply()

    def _apply(self) -> None:
        for host in self.hosts.values():
            rules = [f"-A INPUT -s {address_of(each)} -j DROP" for each in sorted(host.deaf_to)]
            if host.slow is not None:
                rules += [
                    "-A INPUT -i eth0 -m statistic --mode random "
                    f"--probability {host.slow.loss_percent / 100:.4f} -j DROP",
                    f"-A INPUT -i eth0 -j NFQUEUE --queue-num {SLOW_QUEUE} --queue-bypass",
                ]
            table = "\n".join(["*filter", ":INPUT ACCEPT", *rules, "COMMIT", ""])
            _run(*host.prefix, "iptables-restore", text=table)


# Partitions by their kinds, over the hosts that are to be parted


def both_ways(one: Iterable[int], other: Sequence[int]) -> set[Cut]:
    return {pair for a in one for b in other if a != b for pair in ((a, b), (b, a))}


def isolate(host: int, hosts: Sequence[int]) -> set[Cut]:
    """One that nobody hears and that hears nobody."""
    return both_ways([host], hosts)


def split(part: Sequence[int], hosts: Sequence[int]) -> set[Cut]:
    """Two parts that do not hear each other."""
    return both_ways(part, [host for host in hosts if host not in part])


def one_way(host: int, hosts: Sequence[int]) -> set[Cut]:
    """One that hears nobody and that all others hear."""
    return {(host, other) for other in hosts if other != host}


def bridge(middle: int, part: Sequence[int], hosts: Sequence[int]) -> set[Cut]:
    """Two parts that do not hear each other, and one host that both hear."""
    return split(part, [host for host in hosts if host != middle])


def _run(*command: str, text: str | None = None) -> None:
    subprocess.run(command, input=text, text=True, check=True, capture_output=text is not None)
