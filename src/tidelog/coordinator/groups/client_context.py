"""Who sent a request, as far as a group cares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ClientContext:
    """`client_host` is written as Java prints an address ("/10.0.0.7"): tools show it verbatim."""

    client_id: str
    client_host: str
    api_version: int
