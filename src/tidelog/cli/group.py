"""`tidelog group`: list, describe, reset and delete consumer groups."""

import sys
import time
from typing import Any, NoReturn

import click
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidelog.cli.admin_client import CALL_TIMEOUT_S, list_offsets, open_admin, wait_for
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import (
    bootstrap_option,
    client_settings_option,
    json_option,
    parse_pairs,
)
from tidelog.cli.output import console, print_json, print_rows, table
from tidelog.cli.positions import Position, parse_position

_COLUMNS = ["topic", "partition", "committed", "end_offset", "lag", "member", "host"]


@click.group(name="group")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command(name="list")
@bootstrap_option
@client_settings_option
@json_option
def list_groups(bootstrap: str, client_settings: tuple[str, ...], as_json: bool) -> None:
    """List the groups of a cluster."""
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    listing = wait_for(
        admin.list_consumer_groups(request_timeout=CALL_TIMEOUT_S), "cannot list groups"
    )
    if listing.errors:
        fail(f"cannot list groups: {listing.errors[0]}")
    rows = [
        {
            "group": each.group_id,
            "state": each.state.name.lower(),
            "type": each.type.name.lower() if each.type is not None else None,
            "simple": each.is_simple_consumer_group,
        }
        for each in sorted(listing.valid, key=lambda each: each.group_id)
    ]
    print_rows(rows, ["group", "state", "type"], as_json=as_json, empty="no groups yet")


@command.command()
@click.argument("group")
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until interrupted.")
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True)
@bootstrap_option
@client_settings_option
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
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    if not watch:
        _print_view(_view(admin, group), as_json=as_json)
        return
    try:
        if sys.stdout.isatty() and not as_json:
            _watch_live(admin, group, interval)
        while True:
            _print_view(_view(admin, group), as_json=as_json)
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
@client_settings_option
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
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    committed = _committed(admin, group)
    metadata = admin.list_topics(timeout=CALL_TIMEOUT_S).topics
    places = [place for place in committed if not topics or place[0] in topics]
    for topic in topics:
        if topic not in metadata:
            fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
        places += [(topic, number) for number in metadata[topic].partitions]
    places = sorted({place for place in places if not partitions or place[1] in partitions})
    if not places:
        fail(f"{group} has no committed offsets: name a --topic", exit_code=EXIT_NOT_FOUND)
    targets = _targets(admin, places, position)
    rows = [
        {
            "topic": topic,
            "partition": number,
            "committed": committed.get((topic, number)),
            "new": targets[topic, number],
        }
        for topic, number in places
    ]
    if execute:
        offsets = [TopicPartition(*place, offset) for place, offset in targets.items()]
        asked = [ConsumerGroupTopicPartitions(group, offsets)]
        futures = admin.alter_consumer_group_offsets(asked, request_timeout=CALL_TIMEOUT_S)
        answer = wait_for(futures[group], f"cannot move the offsets of {group}")
        for place in answer.topic_partitions:
            if place.error is not None:
                fail(f"{place.topic}-{place.partition}: {place.error.str()}")
    print_rows(
        rows, ["topic", "partition", "committed", "new"], as_json=as_json, empty="nothing to do"
    )
    if not execute and not as_json:
        click.echo("this is the plan; give --execute to do it", err=True)


@command.command()
@click.argument("groups", nargs=-1, required=True)
@bootstrap_option
@client_settings_option
@json_option
def delete(
    groups: tuple[str, ...], bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """Delete groups that have no members, with their offsets."""
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    futures = admin.delete_consumer_groups(list(groups), request_timeout=CALL_TIMEOUT_S)
    for group in groups:
        wait_for(futures[group], f"cannot delete {group}")
    if as_json:
        print_json([{"group": group, "deleted": True} for group in groups])
        return
    for group in groups:
        click.echo(f"deleted {group}")


def _view(admin: AdminClient, group: str) -> dict[str, Any]:
    futures = admin.describe_consumer_groups([group], request_timeout=CALL_TIMEOUT_S)
    description = wait_for(futures[group], f"cannot describe {group}")
    committed = _committed(admin, group)
    state = description.state.name.lower()
    if state == "dead" and not committed:
        fail(f"the group {group} does not exist", exit_code=EXIT_NOT_FOUND)
    owners = {
        (place.topic, place.partition): member
        for member in description.members
        for place in member.assignment.topic_partitions
    }
    places = sorted(set(committed) | set(owners))
    ends = _targets(admin, places, Position(word="end")) if places else {}
    rows = []
    for place in places:
        owner = owners.get(place)
        offset = committed.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": offset,
                "end_offset": ends[place],
                "lag": None if offset is None else max(0, ends[place] - offset),
                "member": owner.member_id if owner is not None else None,
                "host": owner.host if owner is not None else None,
            }
        )
    return {
        "group": group,
        "state": state,
        "type": description.type.name.lower() if description.type is not None else None,
        "assignor": description.partition_assignor or None,
        "coordinator": description.coordinator.id if description.coordinator else None,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.group_instance_id,
            }
            for member in description.members
        ],
        "partitions": rows,
        "lag": sum(row["lag"] or 0 for row in rows),
    }


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


def _watch_live(admin: AdminClient, group: str, interval: float) -> NoReturn:
    """Shows the view in place; on anything but a terminal nothing would come out of it."""
    from rich.console import Group
    from rich.live import Live

    with Live(Group(*_render(_view(admin, group))), console=console()) as live:
        while True:
            time.sleep(interval)
            live.update(Group(*_render(_view(admin, group))))


def _committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    futures = admin.list_consumer_group_offsets(asked, request_timeout=CALL_TIMEOUT_S)
    answer = wait_for(futures[group], f"cannot read the offsets of {group}")
    return {
        (place.topic, place.partition): place.offset
        for place in answer.topic_partitions
        if place.offset >= 0
    }


def _targets(
    admin: AdminClient, places: list[tuple[str, int]], position: Position
) -> dict[tuple[str, int], int]:
    """The offset that a position means in each partition, kept within what the log holds."""
    starts = list_offsets(admin, places, OffsetSpec.earliest())
    ends = list_offsets(admin, places, OffsetSpec.latest())
    if position.timestamp_ms is not None:
        found = list_offsets(admin, places, OffsetSpec.for_timestamp(position.timestamp_ms))
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}
    if position.tail is not None:
        return {place: max(starts[place], ends[place] - position.tail) for place in places}
    if position.offset is not None:
        wanted = position.offset
        return {place: min(max(wanted, starts[place]), ends[place]) for place in places}
    return starts if position.word == "beginning" else ends
