"""`tidelog topic`: create, list, describe, alter and delete topics."""

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
from tidelog.client.cluster import EARLIEST, LATEST, Topics
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import format_uuid

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
_OF_THE_TOPIC = 1


@click.group(name="topic")
def command() -> None:
    """Create, list, describe, alter and delete topics."""


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--partitions", "-p", type=int, default=-1, help="Default: the broker's.")
@click.option("--replication-factor", "-r", type=int, default=-1, help="Default: the broker's.")
@click.option(
    "--set", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="A topic setting."
)
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
@bootstrap_option
@own_client_settings_option
@json_option
def create(
    names: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create topics."""
    config = parse_pairs(settings, option="--set")
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        topics = Topics(client)
        existing = topics.all() if if_not_exists else {}
        wanted = [name for name in names if name not in existing]
        if wanted:
            topics.create(
                wanted,
                partitions=partitions,
                replication_factor=replication_factor,
                settings=config,
            )
    if as_json:
        print_json([{"topic": name, "created": name in wanted} for name in names])
        return
    for name in names:
        click.echo(f"created {name}" if name in wanted else f"{name} exists already")


@command.command(name="list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@bootstrap_option
@own_client_settings_option
@json_option
def list_topics(
    internal: bool, bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """List the topics of a cluster."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        topics = Topics(client).all()
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
            "internal": name.startswith("__"),
        }
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    print_rows(rows, ["topic", "partitions", "replicas"], as_json=as_json, empty="no topics yet")


@command.command()
@click.argument("name")
@click.option("--all-settings", is_flag=True, help="Show settings that have their default too.")
@bootstrap_option
@own_client_settings_option
@json_option
def describe(
    name: str, all_settings: bool, bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """Show the partitions, offsets and settings of a topic."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        topic = Topics(client).describe(name)
        entries = Topics(client).settings(name)
        rows = sorted(topic.partitions, key=lambda row: row.partition_index)
        # Leaders that are not there are not waited for: that there is none is worth showing.
        led = [TopicPartition(name, each.partition_index) for each in rows if each.leader_id >= 0]
        starts, ends = client.list_offsets(
            [dict.fromkeys(led, EARLIEST), dict.fromkeys(led, LATEST)]
        )
    partitions = [
        {
            "partition": each.partition_index,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "replicas": each.replica_nodes,
            "in_sync": each.isr_nodes,
            "start_offset": starts.get(TopicPartition(name, each.partition_index)),
            "end_offset": ends.get(TopicPartition(name, each.partition_index)),
        }
        for each in rows
    ]
    settings = [
        {
            "setting": entry.name,
            "value": entry.value,
            "source": _SOURCES.get(entry.config_source, "UNKNOWN_CONFIG"),
        }
        for entry in sorted(entries, key=lambda entry: entry.name)
        if all_settings or entry.config_source == _OF_THE_TOPIC
    ]
    topic_id = format_uuid(topic.topic_id)
    if as_json:
        print_json(
            {
                "topic": name,
                "topic_id": topic_id,
                "internal": topic.is_internal,
                "partitions": partitions,
                "settings": {row["setting"]: row["value"] for row in settings},
            }
        )
        return
    out = console()
    out.print(f"{name}  id {topic_id}  {len(partitions)} partitions")
    columns = ["partition", "leader", "replicas", "in_sync", "start_offset", "end_offset"]
    out.print(table(partitions, columns))
    if settings:
        out.print(table(settings, ["setting", "value", "source"]))


@command.command()
@click.argument("name")
@click.option("--partitions", "-p", type=int, help="The new number of partitions; only upwards.")
@click.option(
    "--set", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting."
)
@click.option("--unset", "-u", "unset", multiple=True, metavar="NAME", help="Back to the default.")
@bootstrap_option
@own_client_settings_option
@json_option
def alter(
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change the settings of a topic or give it more partitions."""
    changes = parse_pairs(settings, option="--set")
    if partitions is None and not changes and not unset:
        raise click.UsageError("nothing to change: give --partitions, --set or --unset")
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        topics = Topics(client)
        if changes or unset:
            topics.alter_settings(name, changes, unset)
        if partitions is not None:
            topics.add_partitions(name, partitions)
    if as_json:
        print_json({"topic": name, "set": changes, "unset": list(unset), "partitions": partitions})
        return
    click.echo(f"changed {name}")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@bootstrap_option
@own_client_settings_option
@json_option
def delete(
    names: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Delete topics and all their records."""
    with cluster_client(bootstrap, parse_pairs(client_settings, option="--client")) as client:
        topics = Topics(client)
        existing = topics.all()
        for name in names:
            if name not in existing:
                fail(f"the topic {name} does not exist", exit_code=EXIT_NOT_FOUND)
        if not yes:
            click.confirm(f"Delete {', '.join(names)} and all records?", abort=True, err=True)
        topics.delete(names)
    if as_json:
        print_json([{"topic": name, "deleted": True} for name in names])
        return
    for name in names:
        click.echo(f"deleted {name}")
