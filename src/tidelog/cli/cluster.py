"""`tidelog cluster`: run the nodes of this machine, and show how a cluster is."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import bootstrap_option, json_option, parse_pairs

if TYPE_CHECKING:
    from tidelog.supervision.supervisor import NodePlan

_PORT_MAX = 65_535


@click.group(name="cluster")
def command() -> None:
    """Run a cluster on this machine; show how a cluster is."""


@command.command()
@click.option("--nodes", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tidelog-cluster"),
    show_default=True,
    help="The folder for data and logs: node-1, node-1.log and so on.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the nodes listen.")
@click.option(
    "--port",
    type=click.IntRange(1, _PORT_MAX),
    default=9092,
    show_default=True,
    help="The first node's port; the others count up.",
)
@click.option(
    "--join",
    "join_addresses",
    multiple=True,
    metavar="HOST:PORT[,...]",
    help="Make these nodes part of a cluster that runs elsewhere.",
)
@click.option("--voters", type=click.IntRange(1), help="How many nodes vote at most (3).")
@click.option("--rack", help="Where all of them stand; the name of this machine unless given.")
@click.option(
    "--set", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of every node."
)
@click.option("--plain", is_flag=True, help="Print lines, no table that changes in place.")
def up(
    nodes: int,
    data: Path,
    host: str,
    port: int,
    join_addresses: tuple[str, ...],
    voters: int | None,
    rack: str | None,
    settings: tuple[str, ...],
    plain: bool,
) -> None:
    """Run several nodes on this machine, one process for each, until Ctrl-C or SIGTERM.

    A node that crashes is started again. Topics have three replicas, of which two have to
    acknowledge, where there are as many nodes.
    """
    from tidelog.cli.supervised_cluster import run_supervised

    if port + nodes - 1 > _PORT_MAX:
        raise click.UsageError(f"--port {port} leaves no ports for {nodes} nodes.")
    given = parse_pairs(settings, option="--set")
    for name in ("node.id", "listeners", "log.dirs"):
        if name in given:
            raise click.UsageError(f"--set {name}: every node has its own; leave it out.")
    if voters is not None:
        given.setdefault("controller.quorum.voters.max", str(voters))
    plans = _plans(nodes, data, host, port, rack, given, has_own_ids=not join_addresses)
    run_supervised(plans, join=",".join(join_addresses), is_plain=plain)


@command.command()
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until interrupted.")
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True)
@bootstrap_option
@json_option
def status(watch: bool, interval: float, bootstrap: str, as_json: bool) -> None:
    """Show the quorum, the nodes, and the partitions that lack replicas.

    Exit code: 0 healthy, 3 degraded (replicas or nodes are missing, everything is served),
    4 unavailable (partitions without a leader or with too few replicas to be written, or no
    controller), 1 no answer.
    """
    from tidelog.cli.cluster_status import show_status, watch_status

    if watch:
        watch_status(bootstrap, interval, as_json=as_json)
    else:
        show_status(bootstrap, as_json=as_json)


def _plans(
    count: int,
    data: Path,
    host: str,
    port: int,
    rack: str | None,
    given: dict[str, str],
    *,
    has_own_ids: bool,
) -> list[NodePlan]:
    from tidelog.supervision.replicated_defaults import replicated_defaults
    from tidelog.supervision.supervisor import NodePlan

    data.mkdir(parents=True, exist_ok=True)
    address_host = f"[{host}]" if ":" in host else host
    plans = []
    for number in range(1, count + 1):
        folder = data / f"node-{number}"
        settings = {
            **replicated_defaults(count),
            "broker.rack": rack or socket.gethostname(),
            **given,
            "listeners": f"PLAINTEXT://{address_host}:{port + number - 1}",
            "log.dirs": str(folder),
        }
        if has_own_ids:
            settings["node.id"] = str(number)
        plans.append(
            NodePlan(
                number, (host, port + number - 1), folder, data / f"node-{number}.log", settings
            )
        )
    return plans
