"""Ids of log directories, and those that Kafka keeps for replicas without a known directory."""

from __future__ import annotations

from collections.abc import Sequence

MIGRATING = bytes(16)
"""The broker has not said yet: its registration is older than directory ids."""
UNASSIGNED = bytes(15) + b"\x01"
"""A new replica, whose directory the broker chooses and then tells."""
LOST = bytes(15) + b"\x02"
"""One of the broker's directories that failed, not known which."""

_FIRST_FREE = bytes(15) + b"\x64"


def is_reserved(directory: bytes) -> bool:
    """Whether no directory can have this id."""
    return directory < _FIRST_FREE


def is_online(directory: bytes, online: Sequence[bytes]) -> bool:
    """Whether a broker that serves from the directories `online` can serve from this one.

    A broker without any registered before directories had ids; it stops when all of them fail.
    """
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not online or directory in online)
