"""Which address of this machine clients can connect to."""

from __future__ import annotations

import socket

from tidelog.world.network import ANY_HOST


def reachable_host(host: str) -> str:
    """What to advertise for a listener that has no advertised address of its own.

    For one that listens on any address this is the machine's name, if that leads back to the
    machine; else the address that it sends from, else the loopback address.
    """
    if host not in ANY_HOST:
        return host
    name = socket.gethostname()
    if _leads_here(name):
        return name
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: this only asks which way a packet would take.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _leads_here(name: str) -> bool:
    """Whether a name stands for an address of this machine: one that can be listened on."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, _protocol, _name, address in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False
