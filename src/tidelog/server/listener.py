"""Listeners: the named addresses a node is reached at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.errors import TidelogError

DEFAULT_NAME = "PLAINTEXT"
DEFAULT_PORT = 9092


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
    security_protocol: str = "PLAINTEXT"


def parse_listeners(listeners: tuple[str, ...], advertised: tuple[str, ...]) -> list[Listener]:
    """The listeners of `listeners`, with the addresses of `advertised.listeners` put to them."""
    parsed: dict[str, Listener] = {}
    for text in listeners:
        name, host, port = _parse_address(text, "listeners")
        if name in parsed:
            raise ListenerError(f"listeners: the name {name} is there twice; names are unique")
        parsed[name] = Listener(name, host, port)
    for text in advertised:
        name, host, port = _parse_address(text, "advertised.listeners")
        if name not in parsed:
            raise ListenerError(
                f"advertised.listeners: {name} is not one of listeners ({', '.join(parsed)})"
            )
        if host in ("", "0.0.0.0", "::"):
            raise ListenerError(
                f"advertised.listeners: {text} has no address that clients could connect to"
            )
        parsed[name] = replace(parsed[name], advertised_host=host, advertised_port=port)
    if not parsed:
        raise ListenerError("listeners: none; give one such as PLAINTEXT://127.0.0.1:9092")
    return list(parsed.values())


def _parse_address(text: str, setting: str) -> tuple[str, str, int]:
    name, mark, address = text.rpartition("://")
    host, colon, port_text = address.rpartition(":")
    if not colon:
        host, port_text = port_text, str(DEFAULT_PORT)
    port = int(port_text) if port_text.isdigit() else -1
    if not 0 <= port <= 65535 or (mark and not name):
        raise ListenerError(f"{setting}: {text!r} is not NAME://HOST:PORT or HOST:PORT")
    return name or DEFAULT_NAME, host.strip("[]"), port
