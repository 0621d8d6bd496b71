"""`tidelog group`: list, describe, reset and delete consumer groups."""

import sys
import time
from typing import Any, NoReturn

import click

from tidelog.cli.cluster_client import cluster_client
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import (
    bootstrap_option,
    json_option,
    own_client_settings_option,
    parse_pairs,
)
from tidelog.cli.output import console, print_json, print_rows, table
from tidelog.cli.positions import Position, parse_position
from tidelog.client.cluster import EARLIEST, LATEST, ClusterClient, Groups, Topics
from tidelog.protocol.topic_partition import TopicPartition

# What this command has always called them.
_STATES = {
    "PreparingRebalance": "preparing_rebalancing",
    "CompletingRebalance": "completing_rebalancing",
}
_COLUMNS = ["topic", "partition", "committed", "end_offset", "lag", "member", "host"]


@click.group(name="group")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command(name="list")
@bootstrap_option
@own_client_settings_option
@json_option
def list_groups(bootstrap: str, client_settings: tuple[str, ...], as_json: bool) -> None:
    """List the groups of a cluster."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        groups = Groups(client).all()
    rows = [
        {
            "group": each.group_id,
            "state": _state(each.group_state),
            "type": each.group_type.lower() or None,
            "simple": not each.protocol_type,
        }
        for each in groups
    ]
    print_rows(rows, ["group", "state", "type"], as_json=as_json, empty="no groups yet")


@command.command()
@click.argument("group")
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until interrupted.")
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True)
@bootstrap_option
@own_client_settings_option
@json_option
def describe(
    group: str,
    watch: bool,
    interval: float,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the members of a group and its lag per partition."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        if not watch:
            _print_view(_view(client, group), as_json=as_json)
            return
        try:
            if sys.stdout.isatty() and not as_json:
                _watch_live(client, group, interval)
            while True:
                _print_view(_view(client, group), as_json=as_json)
                time.sleep(interval)
        except KeyboardInterrupt:
            pass


@command.command(name="reset-offsets")
@click.argument("group")
@click.option("--topic", "-t", "topics", multiple=True, help="Only these; default all committed.")
@click.option("--partition", "-p", "partitions", type=int, multiple=True, help="Only these.")
@click.option(
    "--to",
    "position",
    callback=parse_position,
    required=True,
    help="beginning, end, an offset, ~N before the end, a date, @milliseconds or -15m.",
)
@click.option("--execute", is_flag=True, help="Do it; without this the plan is only shown.")
@bootstrap_option
@own_client_settings_option
@json_option
def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    position: Position,
    execute: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Move the committed offsets of a group that has no members."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        committed = Groups(client).committed(group)
        places = [place for place in committed if not topics or place.topic in topics]
        existing = Topics(client).all()
        for topic in topics:
            if topic not in existing:
                fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
            rows_of = existing[topic].partitions
            places += [TopicPartition(topic, row.partition_index) for row in rows_of]
        places = sorted({each for each in places if not partitions or each.partition in partitions})
        if not places:
            fail(f"{group} has no committed offsets: name a --topic", exit_code=EXIT_NOT_FOUND)
        targets = _targets(client, places, position)
        for place in places:
            if place not in targets:
                fail(f"there is no partition {place}", exit_code=EXIT_NOT_FOUND)
        if execute:
            Groups(client).commit(group, targets)
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "committed": committed.get(place),
            "new": targets[place],
        }
        for place in places
    ]
    print_rows(
        rows, ["topic", "partition", "committed", "new"], as_json=as_json, empty="nothing to do"
    )
    if not execute and not as_json:
        click.echo("this is the plan; give --execute to do it", err=True)


@command.command()
@click.argument("groups", nargs=-1, required=True)
@bootstrap_option
@own_client_settings_option
@json_option
def delete(
    groups: tuple[str, ...], bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """Delete groups that have no members, with their offsets."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        for group in groups:
            Groups(client).delete(group)
    if as_json:
        print_json([{"group": group, "deleted": True} for group in groups])
        return
    for group in groups:
        click.echo(f"deleted {group}")


def _view(client: ClusterClient, group: str) -> dict[str, Any]:
    description = Groups(client).describe(group)
    committed = Groups(client).committed(group)
    state = _state(description.state)
    if state == "dead" and not committed:
        fail(f"the group {group} does not exist", exit_code=EXIT_NOT_FOUND)
    owners = {place: member for member in description.members for place in member.partitions}
    places = sorted(set(committed) | set(owners))
    ends = _targets(client, places, Position(word="end"))
    rows = []
    for place in places:
        owner = owners.get(place)
        offset, end = committed.get(place), ends.get(place)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": owner.member_id if owner is not None else None,
                "host": owner.host if owner is not None else None,
            }
        )
    return {
        "group": group,
        "state": state,
        "type": description.kind,
        "assignor": description.assignor,
        "coordinator": description.coordinator_id,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.instance_id,
            }
            for member in description.members
        ],
        "partitions": rows,
        "lag": sum(row["lag"] or 0 for row in rows),
    }


def _state(text: str) -> str:
    return _STATES.get(text, text.lower())


def _print_view(view: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    for part in _render(view):
        console().print(part)


def _render(view: dict[str, Any]) -> list[Any]:
    from rich.text import Text

    members = len(view["members"])
    head = f"{view['group']}  {view['state']}  {members} members  lag {view['lag']:,}"
    return [Text(head), table(view["partitions"], _COLUMNS)]


def _watch_live(client: ClusterClient, group: str, interval: float) -> NoReturn:
    """Shows the view in place; on anything but a terminal nothing would come out of it."""
    from rich.console import Group
    from rich.live import Live

    with Live(Group(*_render(_view(client, group))), console=console()) as live:
        while True:
            time.sleep(interval)
            live.update(Group(*_render(_view(client, group))))


def _targets(
    client: ClusterClient, places: list[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """The offset that a position means in each partition, kept within what the log holds.

    Partitions that do not exist are left out.
    """
    by_time = {} if position.timestamp_ms is None else dict.fromkeys(places, position.timestamp_ms)
    starts, ends, found = client.list_offsets(
        [dict.fromkeys(places, EARLIEST), dict.fromkeys(places, LATEST), by_time]
    )
    if position.timestamp_ms is not None:
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}
    if position.tail is not None:
        return {place: max(starts[place], end - position.tail) for place, end in ends.items()}
    if position.offset is not None:
        wanted = position.offset
        return {place: min(max(wanted, starts[place]), end) for place, end in ends.items()}
    return starts if position.word == "beginning" else ends
