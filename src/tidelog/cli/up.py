"""`tidelog up`: start one node and say where clients connect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidelog.server.node import Node

# Variables of the client commands, of pipelines and of tests, not settings of the node.
NOT_SETTINGS = {"TIDELOG_BOOTSTRAP", "TIDELOG_STATE_DIR", "TIDELOG_UNCOMPILED"}


@click.command(name="up")
@click.option("--data", type=click.Path(file_okay=False), help="The folder for the data.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is any free one.")
@click.option(
    "--join",
    "join_addresses",
    multiple=True,
    metavar="HOST:PORT[,...]",
    help="Join the cluster that has nodes at these addresses. Remembered for the next start.",
)
@click.option(
    "--node-id", type=click.IntRange(0), help="The node's number; a free one unless given."
)
@click.option(
    "--voters",
    type=click.IntRange(1),
    help="With --join: vote in the metadata quorum while it has fewer voters than this (3).",
)
@click.option("--rack", help="Where the node stands; replicas go to different racks.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with settings: TOML, or a server.properties of Kafka.",
)
@click.option(
    "--set", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the node."
)
@click.option(
    "--metadata-version",
    metavar="VERSION",
    help="First start only: the metadata.version of the new cluster, such as 4.1-IV1, 4.1 or 27.",
)
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="First start only: the level of another feature, such as group.version=0.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no greeting.")
@click.option("--supervised", is_flag=True, hidden=True)
def command(
    data: str | None,
    listen: str | None,
    join_addresses: tuple[str, ...],
    node_id: int | None,
    voters: int | None,
    rack: str | None,
    config_file: Path | None,
    settings: tuple[str, ...],
    metadata_version: str | None,
    features: tuple[str, ...],
    quiet: bool,
    supervised: bool,
) -> None:
    """Start one node. SIGTERM or Ctrl-C shuts it down cleanly.

    Without --join it is a cluster of its own, or again the node that its data directory says.
    """
    from tidelog.cli.node_start import run
    from tidelog.server.configuration.node_config import merge_settings
    from tidelog.supervision.parent import end_with_parent, tell_ready

    flags = list(settings)
    if data is not None:
        flags.append(f"log.dirs={data}")
    if listen is not None:
        if any(flag.partition("=")[0].strip() == "listeners" for flag in settings):
            raise click.UsageError(
                "--listen and --set listeners=... both say where to listen; give one of them."
            )
        flags.append(f"listeners=PLAINTEXT://{listen}")
    if node_id is not None:
        flags.append(f"node.id={node_id}")
    if voters is not None:
        flags.append(f"controller.quorum.voters.max={voters}")
    if rack is not None:
        flags.append(f"broker.rack={rack}")
    if metadata_version is not None:
        flags.append(f"initial.metadata.version={metadata_version}")
    if features:
        flags.append(f"initial.feature.levels={','.join(features)}")
    environment = {name: text for name, text in os.environ.items() if name not in NOT_SETTINGS}
    merged = merge_settings(file=config_file, environment=environment, flags=flags)

    def serves(node: Node) -> None:
        if supervised:
            tell_ready()
        if not quiet:
            _greet(node)

    if supervised:
        end_with_parent()
    run(merged, join=",".join(join_addresses), on_ready=serves)


def _greet(node: Node) -> None:
    from tidelog.server.network.listener import DEFAULT_PORT
    from tidelog.world.network import ANY_HOST

    listener, address = node.listeners[0], node.advertised_addresses[0]
    config = node.config
    is_usual = listener.port == DEFAULT_PORT and listener.host in (*ANY_HOST, "127.0.0.1")
    option = "" if is_usual else f" -b {address}"
    click.echo(
        f"""
Tidelog is ready. Kafka clients connect to {address}.
  node        {config.node_id} of cluster {node.cluster_id}
  data        {", ".join(os.path.abspath(folder) for folder in config.log_dirs)}
  durability  {config.durability}
Try in another terminal:
  tidelog topic create hello{option}
  echo 'hello, log' | tidelog produce hello{option}
  tidelog consume hello{option}
Ctrl-C ends it.
"""
    )
