"""What a data directory knows of its node: its id, and the cluster that it was sent to.

`tidelog up --join` writes the addresses of the cluster into `joined.properties`, in the first of
the node's directories, so that the next start needs no --join. They stand there as settings: what
is said in a file, in the environment or by flags wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.server.configuration.config_file import read_file
from tidelog.storage.directories.meta_properties import (
    JOINED_CLUSTER,
    MetaProperties,
    read_meta_properties,
)
from tidelog.storage.files import replace_file
from tidelog.world.operating_system.files import OsFiles

_HEAD = """\
# The cluster that this node joined: written by `tidelog up --join`, read at each start.
"""


class Remembered(NamedTuple):
    """`identity` is None in a directory that no node has used yet; `cluster` has settings."""

    identity: MetaProperties | None
    cluster: dict[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """What goes below the settings of the operator."""
        if self.identity is None:
            return self.cluster
        return {"node.id": str(self.identity.node_id), **self.cluster}


def recall(directories: Sequence[str]) -> Remembered:
    """What the first directory that knows something tells."""
    files = OsFiles()
    identity: MetaProperties | None = None
    cluster: dict[str, str] = {}
    for directory in map(Path, directories):
        try:
            identity = identity or read_meta_properties(files, directory)
        except OSError:
            # A disk that fails: the node finds it out when it takes its directories, and tells.
            continue
        path = directory / JOINED_CLUSTER
        if not cluster and path.exists():
            cluster = read_file(path)
    return Remembered(identity, cluster)


def remember(directory: str, settings: Mapping[str, str]) -> None:
    """Write the cluster's settings down; durable when it returns."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    text = _HEAD + "".join(f"{name}={value}\n" for name, value in settings.items())
    replace_file(OsFiles(), path / JOINED_CLUSTER, text.encode())
