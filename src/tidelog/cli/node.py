"""`tidelog node`: list, describe and remove the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.cluster_client import check, cluster_client
from tidelog.cli.cluster_status import node_rows, node_table
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import console, print_json, table
from tidelog.client.cluster import ClusterClient
from tidelog.client.cluster.cluster_state import ClusterState, QuorumReplica, cluster_state
from tidelog.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tidelog.protocol.apis.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@click.group(name="node")
def command() -> None:
    """List, describe and remove the nodes of a cluster."""


@command.command(name="list")
@bootstrap_option
@json_option
def list_nodes(bootstrap: str, as_json: bool) -> None:
    """List the nodes: brokers, fenced ones too, and controllers."""
    with cluster_client(bootstrap) as client:
        state = cluster_state(client)
    rows = node_rows(state)
    if as_json:
        print_json(rows)
    else:
        console().print(node_table(rows))


@command.command()
@click.argument("node_id", type=int)
@bootstrap_option
@json_option
def describe(node_id: int, bootstrap: str, as_json: bool) -> None:
    """Show one node and the partitions that it holds."""
    with cluster_client(bootstrap) as client:
        state = cluster_state(client)
    _check_exists(state, node_id)
    (row,) = [each for each in node_rows(state) if each["node"] == node_id]
    listeners = {
        name: f"{host}:{port}"
        for name, (host, port) in state.members.quorum.addresses.get(node_id, {}).items()
    }
    partitions = _partition_rows(state, node_id)
    if as_json:
        print_json({**row, "quorum_listeners": listeners, "partitions": partitions})
        return
    console().print(node_table([row]))
    if partitions:
        console().print(table(partitions, list(partitions[0])))


@command.command()
@click.argument("node_id", type=int)
@click.option(
    "--voter-only",
    is_flag=True,
    help="Only take its vote away; for a node whose disk was lost and that comes back.",
)
@bootstrap_option
def remove(node_id: int, voter_only: bool, bootstrap: str) -> None:
    """Remove a node that has been stopped, from the quorum and from the brokers."""
    with cluster_client(bootstrap) as client:
        state = cluster_state(client)
        _check_exists(state, node_id)
        broker, replica = state.members.broker(node_id), state.members.quorum_replica(node_id)
        if broker is not None and not broker.is_fenced:
            fail(f"node {node_id} serves at {broker.host}:{broker.port}; stop it first")
        if broker is not None and broker.replicas and not voter_only:
            fail(
                f"node {node_id} is to hold replicas of {broker.replicas} partitions; move them to "
                "other nodes first (kafka-reassign-partitions), or bring it back on an empty "
                f"directory after `tidelog node remove {node_id} --voter-only`"
            )
        done = []
        if replica is not None and replica.is_voter:
            _remove_voter(client, state, replica)
            done.append("the voters")
        if broker is not None and not voter_only:
            _unregister(client, node_id)
            done.append("the brokers")
    if done:
        click.echo(f"removed node {node_id} from {' and '.join(done)}")
    else:
        click.echo(f"node {node_id} has no vote")


def _remove_voter(client: ClusterClient, state: ClusterState, voter: QuorumReplica) -> None:
    answer = client.change(
        RemoveRaftVoterRequest(
            cluster_id=state.members.cluster_id,
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
        ),
        RemoveRaftVoterResponse,
        lambda response: response.error_code,
    )
    doing = f"cannot remove node {voter.node_id} from the voters"
    check(answer.error_code, doing, answer.error_message)


def _unregister(client: ClusterClient, node_id: int) -> None:
    answer = client.change(
        UnregisterBrokerRequest(broker_id=node_id),
        UnregisterBrokerResponse,
        lambda response: response.error_code,
    )
    doing = f"cannot remove node {node_id} from the brokers"
    check(answer.error_code, doing, answer.error_message)


def _check_exists(state: ClusterState, node_id: int) -> None:
    if node_id not in state.members.node_ids:
        known = ", ".join(map(str, state.members.node_ids))
        fail(f"there is no node {node_id} in the cluster; it has {known}", exit_code=EXIT_NOT_FOUND)


def _partition_rows(state: ClusterState, node_id: int) -> list[dict[str, Any]]:
    return [
        {
            "partition": str(each.partition),
            "role": "leader" if each.leader_id == node_id else "follower",
            "in_sync": node_id in each.isr,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
        }
        for each in state.partitions
        if node_id in each.replicas
    ]
