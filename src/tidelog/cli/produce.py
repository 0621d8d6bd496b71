"""`tidelog produce`: lines or JSON from standard input into a topic."""

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from tidelog.cli.failures import fail
from tidelog.cli.options import (
    bootstrap_option,
    client_settings_option,
    json_option,
    parse_pairs,
)
from tidelog.cli.output import print_json
from tidelog.client import ClientError, connect
from tidelog.client.partitioners import (
    HotKeySplitting,
    KeyHash,
    Partitioner,
    RackAware,
    Random,
    RoundRobin,
)

_PARTITIONERS = ("key-hash", "round-robin", "random", "rack-aware", "hot-key")

# What `tidelog consume --json` prints can be piped in again: topic and offset are then ignored.
_JSON_FIELDS = frozenset(
    ("value", "key", "headers", "partition", "timestamp", "encoding", "topic", "offset")
)


@dataclass(slots=True)
class _Line:
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


@click.command(name="produce")
@click.argument("topic")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="lines: each line is a value. json: each line is an object with value, key, headers, "
    "partition, timestamp.",
)
@click.option("--key", "-k", help="The key of every record.")
@click.option("--key-separator", "-K", help="Split each line into key and value at this text.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("--partition", "-p", type=int, help="This partition, whatever the partitioner says.")
@click.option(
    "--partitioner", type=click.Choice(_PARTITIONERS), default="key-hash", show_default=True
)
@click.option("--rack", help="The rack that --partitioner rack-aware prefers.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--null", "null_text", metavar="TEXT", help="A value equal to this is a tombstone.")
@bootstrap_option
@client_settings_option
@json_option
def command(
    topic: str,
    format_: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    partitioner: str,
    rack: str | None,
    compression: str,
    acks: str,
    null_text: str | None,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish lines or JSON from standard input."""
    shared = [(name, value.encode()) for name, value in parse_pairs(headers, option="-H").items()]
    settings: dict[str, Any] = {
        "compression.type": compression,
        "acks": acks,
        "enable.idempotence": acks == "all",
        **parse_pairs(client_settings, option="--client"),
    }
    lines = _read_json(sys.stdin.buffer) if format_ == "json" else _read_lines(key_separator)
    count = 0
    try:
        with connect(
            bootstrap,
            client_id="tidelog-produce",
            partitioner=_partitioner(partitioner, rack),
            settings=settings,
        ) as client:
            for line in lines:
                value = line.value
                if null_text is not None and value == null_text.encode():
                    value = None
                client.publish(
                    topic,
                    line.key if line.key is not None else key,
                    value,
                    [*shared, *line.headers],
                    partition=partition if line.partition is None else line.partition,
                    timestamp_ms=line.timestamp_ms,
                )
                count += 1
            client.flush()
    except ClientError as error:
        fail(str(error))
    if as_json:
        print_json({"topic": topic, "records": count})
    else:
        click.echo(f"{count:,} records to {topic}", err=True)


def _partitioner(name: str, rack: str | None) -> Partitioner:
    if name == "rack-aware":
        if rack is None:
            raise click.UsageError("--partitioner rack-aware needs --rack")
        return RackAware(rack)
    made: dict[str, type[KeyHash | RoundRobin | Random | HotKeySplitting]] = {
        "key-hash": KeyHash,
        "round-robin": RoundRobin,
        "random": Random,
        "hot-key": HotKeySplitting,
    }
    return made[name]()


def _read_lines(key_separator: str | None) -> Iterator[_Line]:
    separator = key_separator.encode() if key_separator else None
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.removesuffix(b"\n")
        if separator is None:
            yield _Line(text)
            continue
        key, found, value = text.partition(separator)
        if not found:
            fail(f"line {number}: there is no {key_separator!r} between key and value")
        yield _Line(value, key)


def _read_json(stream: Any) -> Iterator[_Line]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or "value" not in entry:
                raise ValueError('it is not an object with a "value"')
            if unknown := set(entry) - _JSON_FIELDS:
                raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
            as_bytes = _from_base64 if entry.get("encoding") == "base64" else _from_text
            yield _Line(
                as_bytes(entry["value"]),
                as_bytes(entry.get("key")),
                [(name, as_bytes(value)) for name, value in _pairs(entry.get("headers"))],
                entry.get("partition"),
                entry.get("timestamp"),
            )
        except ValueError as error:
            fail(f"line {number}: {error}")


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return list(headers.items())
    if isinstance(headers, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in headers
    ):
        return [(str(name), value) for name, value in headers]
    raise ValueError("headers are an object or a list of [name, value]")


def _from_text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":")).encode()


def _from_base64(value: Any) -> bytes | None:
    if value is None:
        return None
    return base64.b64decode(value, validate=True)
