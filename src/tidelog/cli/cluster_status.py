"""What `tidelog cluster status` shows: the quorum, the nodes, partitions that lack replicas."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from tidelog.cli.cluster_client import CALL_TIMEOUT_S, cluster_client
from tidelog.cli.output import console, print_json, table
from tidelog.client.cluster import ClusterClient
from tidelog.client.cluster.cluster_state import ClusterState, Health, cluster_state
from tidelog.client.errors import ClientError
from tidelog.protocol.topic_partition import TopicPartition

EXIT_CODES = {Health.HEALTHY: 0, Health.DEGRADED: 3, Health.UNAVAILABLE: 4}

_COLOURS = {Health.HEALTHY: "green", Health.DEGRADED: "yellow", Health.UNAVAILABLE: "red"}
NODE_COLUMNS = ("node", "address", "rack", "state", "quorum", "lag", "leaders", "in_sync")
_NAMED_PARTITIONS_MAX = 10


def show_status(bootstrap: str, *, as_json: bool) -> None:
    """Print the state once; the command's exit code tells the health."""
    with cluster_client(bootstrap) as client:
        state = cluster_state(client)
    if as_json:
        print_json(describe(state))
    else:
        for part in _render(state):
            console().print(part)
    raise click.exceptions.Exit(EXIT_CODES[state.health])


def watch_status(bootstrap: str, interval_s: float, *, as_json: bool) -> None:
    """Print the state again and again; a cluster that does not answer is waited for."""
    with cluster_client(bootstrap) as client:
        patient = ClusterClient(client.cluster, min(CALL_TIMEOUT_S, max(interval_s, 2.0)))
        try:
            if sys.stdout.isatty() and not as_json:
                _watch_live(patient, interval_s)
            while True:
                _print_again(patient, as_json=as_json)
                time.sleep(interval_s)
        except KeyboardInterrupt:
            pass


def describe(state: ClusterState) -> dict[str, Any]:
    """The state for programs."""
    members, quorum = state.members, state.members.quorum
    return {
        "health": state.health.value,
        "cluster_id": members.cluster_id,
        "quorum": {
            "leader": quorum.leader_id,
            "epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "voters": quorum.voter_ids,
            "observers": [each.node_id for each in quorum.replicas if not each.is_voter],
        },
        "nodes": node_rows(state),
        "partitions": {
            "total": len(state.partitions),
            "under_replicated": list(map(str, state.under_replicated)),
            "offline": list(map(str, state.offline)),
            "under_min_isr": list(map(str, state.under_min_isr)),
        },
    }


def node_rows(state: ClusterState) -> list[dict[str, Any]]:
    """One row for each node: brokers, and controllers that are no brokers."""
    return [_node_row(state, node_id) for node_id in state.members.node_ids]


def node_table(rows: Sequence[dict[str, Any]]) -> Any:
    """The rows as a rich table that fits a terminal of 80 characters."""
    shown = []
    for row in rows:
        in_sync = None
        if row["replicas"] is not None:
            in_sync = f"{row['replicas'] - row['out_of_sync']}/{row['replicas']}"
        shown.append({**row, "lag": row["metadata_lag"], "in_sync": in_sync})
    made = table(shown, NODE_COLUMNS)
    made.columns[-1].justify = "right"
    return made


def _node_row(state: ClusterState, node_id: int) -> dict[str, Any]:
    broker = state.members.broker(node_id)
    replica = state.members.quorum_replica(node_id)
    quorum = state.members.quorum
    if broker is not None:
        address: str | None = f"{broker.host}:{broker.port}"
        word = "fenced" if broker.is_fenced else "serving"
    else:
        listeners = quorum.addresses.get(node_id, {})
        address = next((f"{host}:{port}" for host, port in listeners.values()), None)
        word = "controller"
    part = None
    if replica is not None:
        part = "voter" if replica.is_voter else "observer"
        part = "leader" if node_id == quorum.leader_id else part
    return {
        "node": node_id,
        "address": address,
        "rack": None if broker is None else broker.rack,
        "state": word,
        "quorum": part,
        "metadata_offset": None if replica is None else replica.log_end_offset,
        "metadata_lag": None if replica is None else replica.lag,
        "metadata_behind_ms": None if replica is None else replica.behind_ms,
        "leaders": None if broker is None else broker.leaders,
        "replicas": None if broker is None else broker.replicas,
        "out_of_sync": None if broker is None else broker.out_of_sync,
    }


def _render(state: ClusterState) -> list[Any]:
    from rich.text import Text

    members, quorum, health = state.members, state.members.quorum, state.health
    leader = "no leader" if quorum.leader_id is None else f"leader {quorum.leader_id}"
    head = Text.assemble(
        f"cluster {members.cluster_id}  ",
        (health.value, f"bold {_COLOURS[health]}"),
        f"\nquorum  {leader}, epoch {quorum.leader_epoch}, "
        f"voters {', '.join(map(str, quorum.voter_ids))}, offset {quorum.high_watermark}",
    )
    counts = Text(f"partitions  {len(state.partitions)}")
    for word, partitions in (
        ("under-replicated", state.under_replicated),
        ("offline", state.offline),
        ("under min ISR", state.under_min_isr),
    ):
        counts.append(f", {word} {len(partitions)}{_names(partitions)}")
    return [head, node_table(node_rows(state)), counts]


def _names(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return ""
    names = [str(each) for each in partitions[:_NAMED_PARTITIONS_MAX]]
    more = len(partitions) - len(names)
    return f" ({', '.join(names)}{f' and {more} more' if more else ''})"


def _watch_live(client: ClusterClient, interval_s: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    shown: list[Any] = []
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            try:
                shown = _render(cluster_state(client))
                note = []
            except ClientError as error:
                note = [Text(f"no answer: {error}", style="bold red")]
            live.update(Group(*shown, *note), refresh=True)
            time.sleep(interval_s)


def _print_again(client: ClusterClient, *, as_json: bool) -> None:
    try:
        state = cluster_state(client)
    except ClientError as error:
        if as_json:
            click.echo(json.dumps({"health": "unknown", "error": str(error)}))
        else:
            click.echo(f"no answer: {error}")
        return
    if as_json:
        click.echo(json.dumps(describe(state)))
    else:
        for part in _render(state):
            console().print(part)
