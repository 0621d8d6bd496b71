"""Listeners: the named addresses a node is reached at."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tidelog.errors import TidelogError
from tidelog.world.network import ANY_HOST

DEFAULT_NAME = "PLAINTEXT"
DEFAULT_PORT = 9092

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Where one listens for connections to any address of the machine; nobody can connect to it.


class ListenerError(TidelogError):
    """An address is not one, or cannot be listened on."""


@dataclass(slots=True, frozen=True)
class Listener:
    """A named address to listen on, with the address that clients are told.

    Port 0 is any free one; an empty advertised host and a port of -1 follow the address itself.
    """

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = -1
    security_protocol: str = PLAINTEXT
    is_controller: bool = False
    """Serves the controller and the quorum, and no clients of a broker."""


def parse_listeners(
    listeners: Collection[str],
    advertised: Collection[str],
    protocols: Mapping[str, str] | None = None,
    controller_names: Collection[str] = (),
) -> list[Listener]:
    """The listeners of `listeners`, with the addresses of `advertised.listeners` put to them.

    `protocols` has the security protocol of each listener name; None: a name that is a protocol
    means it, and others mean PLAINTEXT. Those of `controller_names` come last.
    """
    parsed: dict[str, Listener] = {}
    controllers = {name.upper() for name in controller_names}
    for text in listeners:
        name, host, port = _parse_address(text, "listeners")
        if name in parsed:
            raise ListenerError(f"listeners: the name {name} is there twice; names are unique")
        protocol = _security_protocol(name, protocols, "listeners")
        _refuse_security(text, protocol, "listeners")
        is_controller = name.upper() in controllers
        parsed[name] = Listener(
            name, host, port, security_protocol=protocol, is_controller=is_controller
        )
    for text in advertised:
        name, host, port = _parse_address(text, "advertised.listeners")
        if name not in parsed:
            raise ListenerError(
                f"advertised.listeners: {name} is not one of listeners ({', '.join(parsed)})"
            )
        if host in ANY_HOST[1:]:
            raise ListenerError(
                f"advertised.listeners: {text} has no address that clients could connect to"
            )
        parsed[name] = replace(parsed[name], advertised_host=host, advertised_port=port)
    if not parsed:
        raise ListenerError("listeners: none; give one such as PLAINTEXT://127.0.0.1:9092")
    return sorted(parsed.values(), key=lambda listener: listener.is_controller)


def check_protocol(name: str, protocols: Mapping[str, str] | None, setting: str) -> None:
    """Refuse a listener's name whose security protocol is unknown or not to be had."""
    _refuse_security(name, _security_protocol(name, protocols, setting), setting)


def parse_protocols(pairs: Collection[str]) -> dict[str, str]:
    """The security protocols of `listener.security.protocol.map` by listener name."""
    protocols = {}
    for pair in pairs:
        name, _, protocol = (part.strip() for part in pair.partition(":"))
        if not name or protocol.upper() not in SECURITY_PROTOCOLS:
            raise ListenerError(
                f"listener.security.protocol.map: {pair} is not NAME:PROTOCOL; the protocols are "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _security_protocol(name: str, protocols: Mapping[str, str] | None, setting: str) -> str:
    upper = name.upper()
    if protocols is None:
        return upper if upper in SECURITY_PROTOCOLS else PLAINTEXT
    if upper not in protocols:
        raise ListenerError(
            f"{setting}: {name} has no security protocol; add {name}:PLAINTEXT to "
            "listener.security.protocol.map"
        )
    return protocols[upper]


def _refuse_security(text: str, protocol: str, setting: str) -> None:
    if protocol != PLAINTEXT:
        raise ListenerError(
            f"{setting}: {text} asks for {protocol}, which this node does not have yet: it would "
            "serve everybody in the clear. Use PLAINTEXT on a network that you trust, or put a "
            "proxy in front that encrypts and authenticates."
        )


def format_address(host: str, port: int) -> str:
    """An address as people write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def _parse_address(text: str, setting: str) -> tuple[str, str, int]:
    name, mark, address = text.rpartition("://")
    host, colon, port_text = address.rpartition(":")
    if not colon:
        host, port_text = port_text, str(DEFAULT_PORT)
    port = int(port_text) if port_text.isdigit() else -1
    if not 0 <= port <= 65535 or (mark and not name):
        raise ListenerError(f"{setting}: {text!r} is not NAME://HOST:PORT or HOST:PORT")
    return name or DEFAULT_NAME, host.strip("[]"), port
