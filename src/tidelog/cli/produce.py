"""`tidelog produce`: lines or JSON from standard input into a topic."""

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from tidelog.cli.client_settings import boolean, count, read_settings, seconds
from tidelog.cli.cluster_client import cluster_client
from tidelog.cli.failures import fail
from tidelog.cli.input_lines import LineTooLong, read_lines
from tidelog.cli.options import bootstrap_option, client_settings_of, json_option, parse_pairs
from tidelog.cli.output import print_json
from tidelog.client.cluster.producer import Producer, ProducerSettings
from tidelog.client.errors import PublishError
from tidelog.client.partitioners import (
    HotKeySplitting,
    KeyHash,
    Partitioner,
    RackAware,
    Random,
    RoundRobin,
)
from tidelog.errors import TidelogError
from tidelog.protocol.compression import Compression
from tidelog.protocol.topic_partition import TopicPartition

_ACKS = {"0": 0, "1": 1, "all": -1}
_SETTINGS = {
    "batch.size": ("batch_bytes", count),
    "delivery.timeout.ms": ("delivery_timeout_s", seconds),
    "enable.idempotence": ("is_idempotent", boolean),
}
_PARTITIONERS = ("key-hash", "round-robin", "random", "rack-aware", "hot-key")

# What `tidelog consume --json` prints can be piped in again: topic and offset are then ignored.
_JSON_FIELDS = frozenset(
    ("value", "key", "headers", "partition", "timestamp", "encoding", "topic", "offset")
)


class _MalformedLine(TidelogError):
    """A line is not what the options say."""


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
    type=click.Choice([each.name.lower() for each in Compression]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True)
@click.option("--null", "null_text", metavar="TEXT", help="A value equal to this is a tombstone.")
@bootstrap_option
@client_settings_of(_SETTINGS)
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
    values, common = read_settings(client_settings, _SETTINGS)
    made = _partitioner(partitioner, rack)
    number = 0
    with cluster_client(bootstrap, {"client.id": "tidelog-produce", **common}) as client:
        settings = ProducerSettings(
            acks=_ACKS[acks],
            compression=Compression[compression.upper()],
            **{"is_idempotent": acks == "all", **values},
        )
        with Producer(client, settings) as producer:
            # What was read is on its way whenever there is nothing more to read for the moment.
            texts = read_lines(sys.stdin.fileno(), producer.flush)
            lines = _parse_json(texts) if format_ == "json" else _parse_text(texts, key_separator)
            publisher = _Publisher(producer, topic, made, partition)
            try:
                for line in lines:
                    if line.key is None and key is not None:
                        line.key = key.encode()
                    if null_text is not None and line.value == null_text.encode():
                        line.value = None
                    line.headers[:0] = shared
                    publisher.publish(line)
                    number += 1
            except (_MalformedLine, LineTooLong) as error:
                producer.flush()
                fail(str(error))
            producer.flush()
    if as_json:
        print_json({"topic": topic, "records": number})
    else:
        click.echo(f"{number:,} records to {topic}", err=True)


class _Publisher:
    """Lines to the partitions of one topic."""

    def __init__(
        self, producer: Producer, topic: str, partitioner: Partitioner, partition: int | None
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partitioner = partitioner
        self._partition = partition

    def publish(self, line: _Line) -> None:
        layout = self._producer.layout(self._topic)
        number = self._partition if line.partition is None else line.partition
        if number is None:
            choice = self._partitioner.choose(layout, line.key)
            number = choice.partition
            line.headers.extend(choice.headers)
        elif not 0 <= number < layout.partition_count:
            raise PublishError(
                f"{self._topic} has no partition {number}, it has {layout.partition_count}"
            )
        self._producer.send(
            TopicPartition(self._topic, number),
            line.key,
            line.value,
            line.headers,
            timestamp_ms=line.timestamp_ms,
        )


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


def _parse_text(texts: Iterable[bytes], key_separator: str | None) -> Iterator[_Line]:
    separator = key_separator.encode() if key_separator else None
    for number, text in enumerate(texts, start=1):
        if separator is None:
            yield _Line(text)
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise _MalformedLine(
                f"line {number}: there is no {key_separator!r} between key and value"
            )
        yield _Line(value, key)


def _parse_json(texts: Iterable[bytes]) -> Iterator[_Line]:
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
            if not isinstance(entry, dict) or "value" not in entry:
                raise ValueError('it is not an object with a "value"')
            if unknown := set(entry) - _JSON_FIELDS:
                raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
            as_bytes = _from_base64 if entry.get("encoding") == "base64" else _from_text
            line = _Line(
                as_bytes(entry["value"]),
                as_bytes(entry.get("key")),
                [(name, as_bytes(value)) for name, value in _pairs(entry.get("headers"))],
                _whole_number(entry, "partition"),
                _whole_number(entry, "timestamp"),
            )
        except ValueError as error:
            raise _MalformedLine(f"line {number}: {error}") from None
        yield line


def _whole_number(entry: dict[str, Any], name: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{name} is a number from 0 on, not {value!r}")
    return value


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
    if not isinstance(value, str):
        raise ValueError(f"base64 is a text, not {value!r}")
    return base64.b64decode(value, validate=True)
