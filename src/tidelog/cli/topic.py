"""`tidelog topic`: create, list, describe, alter and delete topics."""

from typing import Any

import click
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tidelog.cli.admin_client import CALL_TIMEOUT_S, list_offsets, open_admin, wait_for
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import (
    bootstrap_option,
    client_settings_option,
    json_option,
    parse_pairs,
)
from tidelog.cli.output import console, print_json, print_rows, table


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
@client_settings_option
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
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    existing = set(admin.list_topics(timeout=CALL_TIMEOUT_S).topics) if if_not_exists else set()
    wanted = [name for name in names if name not in existing]
    new = [
        NewTopic(
            name, num_partitions=partitions, replication_factor=replication_factor, config=config
        )
        for name in wanted
    ]
    futures = admin.create_topics(new, operation_timeout=CALL_TIMEOUT_S) if new else {}
    for name in wanted:
        wait_for(futures[name], f"cannot create {name}")
    if as_json:
        print_json([{"topic": name, "created": name in wanted} for name in names])
        return
    for name in names:
        click.echo(f"created {name}" if name in wanted else f"{name} exists already")


@command.command(name="list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@bootstrap_option
@client_settings_option
@json_option
def list_topics(
    internal: bool, bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """List the topics of a cluster."""
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    topics = admin.list_topics(timeout=CALL_TIMEOUT_S).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
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
@client_settings_option
@json_option
def describe(
    name: str, all_settings: bool, bootstrap: str, client_settings: tuple[str, ...], as_json: bool
) -> None:
    """Show the partitions, offsets and settings of a topic."""
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    description = wait_for(
        admin.describe_topics(TopicCollection([name]), request_timeout=CALL_TIMEOUT_S)[name],
        f"cannot describe {name}",
    )
    places = [(name, each.id) for each in description.partitions]
    starts = list_offsets(admin, places, OffsetSpec.earliest())
    ends = list_offsets(admin, places, OffsetSpec.latest())
    partitions = [
        {
            "partition": each.id,
            "leader": each.leader.id if each.leader is not None else None,
            "replicas": [node.id for node in each.replicas],
            "in_sync": [node.id for node in each.isr],
            "start_offset": starts[name, each.id],
            "end_offset": ends[name, each.id],
        }
        for each in description.partitions
    ]
    entries = _settings(admin, name)
    settings = [
        {"setting": entry.name, "value": entry.value, "source": ConfigSource(entry.source).name}
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if all_settings or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    ]
    if as_json:
        print_json(
            {
                "topic": name,
                "topic_id": str(description.topic_id),
                "internal": description.is_internal,
                "partitions": partitions,
                "settings": {row["setting"]: row["value"] for row in settings},
            }
        )
        return
    out = console()
    out.print(f"{name}  id {description.topic_id}  {len(partitions)} partitions")
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
@client_settings_option
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
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    if entries:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        futures = admin.incremental_alter_configs([resource], request_timeout=CALL_TIMEOUT_S)
        wait_for(futures[resource], f"cannot change {name}")
    if partitions is not None:
        grown = admin.create_partitions(
            [NewPartitions(name, partitions)], operation_timeout=CALL_TIMEOUT_S
        )
        wait_for(grown[name], f"cannot add partitions to {name}")
    if as_json:
        print_json({"topic": name, "set": changes, "unset": list(unset), "partitions": partitions})
        return
    click.echo(f"changed {name}")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@bootstrap_option
@client_settings_option
@json_option
def delete(
    names: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Delete topics and all their records."""
    admin = open_admin(bootstrap, parse_pairs(client_settings, option="--client"))
    existing = admin.list_topics(timeout=CALL_TIMEOUT_S).topics
    for name in names:
        if name not in existing:
            fail(f"the topic {name} does not exist", exit_code=EXIT_NOT_FOUND)
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all records?", abort=True, err=True)
    futures = admin.delete_topics(list(names), operation_timeout=CALL_TIMEOUT_S)
    for name in names:
        wait_for(futures[name], f"cannot delete {name}")
    if as_json:
        print_json([{"topic": name, "deleted": True} for name in names])
        return
    for name in names:
        click.echo(f"deleted {name}")


def _settings(admin: Any, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = admin.describe_configs([resource], request_timeout=CALL_TIMEOUT_S)
    return dict(wait_for(futures[resource], f"cannot read the settings of {topic}"))
