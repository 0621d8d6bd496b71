"""Where the controllers of the quorum are: `controller.quorum.voters` and its bootstrap servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.world.network import ANY_HOST

VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"

_PORT_MAX = 65_535
_NODE_ID_MAX = (1 << 31) - 1


class StaticVoter(NamedTuple):
    """A voter of a quorum whose members are fixed by the settings of its nodes."""

    node_id: int
    host: str
    port: int


def parse_voters(entries: Sequence[str]) -> tuple[StaticVoter, ...]:
    """The voters of `id@host:port` entries; ValueError says what is wrong with one."""
    voters: dict[int, StaticVoter] = {}
    for entry in entries:
        id_text, mark, address = entry.partition("@")
        parsed = _parse_address(address)
        if not mark or not id_text.isdecimal() or parsed is None:
            raise ValueError(f"{entry!r} is not ID@HOST:PORT, such as 1@node-1:9093")
        node_id = int(id_text)
        if node_id > _NODE_ID_MAX:
            raise ValueError(f"{entry!r} has a node id above {_NODE_ID_MAX}")
        if node_id in voters:
            raise ValueError(f"node {node_id} is there twice; each voter is named once")
        if parsed[0] in ANY_HOST:
            raise ValueError(f"{entry!r} has no address that other nodes could connect to")
        voters[node_id] = StaticVoter(node_id, *parsed)
    return tuple(voters.values())


def parse_addresses(entries: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The addresses of `host:port` entries; ValueError says what is wrong with one."""
    addresses = []
    for entry in entries:
        parsed = _parse_address(entry)
        if parsed is None or parsed[0] in ANY_HOST:
            raise ValueError(f"{entry!r} is not HOST:PORT, such as node-1:9092")
        addresses.append(parsed)
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str) -> tuple[str, int] | None:
    host, colon, port_text = text.strip().rpartition(":")
    host = host.rpartition("://")[2]
    if not colon or not port_text.isdecimal() or not 0 < int(port_text) <= _PORT_MAX:
        return None
    if host.startswith("[") != host.endswith("]") or "@" in host or any(map(str.isspace, host)):
        return None
    if ":" in host and not host.startswith("["):
        return None
    return host.strip("[]"), int(port_text)
