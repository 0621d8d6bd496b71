"""`tidelog consume`: print the records of a topic."""

import base64
import json
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from tidelog.cli.client_settings import count, read_settings, seconds
from tidelog.cli.cluster_client import cluster_client
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import bootstrap_option, client_settings_of
from tidelog.cli.positions import Position, parse_position
from tidelog.client.cluster import EARLIEST, LATEST, ClusterClient
from tidelog.client.cluster.fetcher import Fetched, Fetcher, FetchSettings
from tidelog.client.cluster.group_consumer import GroupConsumer
from tidelog.client.cluster.membership import MembershipSettings
from tidelog.protocol.records import Record
from tidelog.protocol.topic_partition import TopicPartition

_POLL_S = 0.2
# A reader that follows a topic waits for brokers as long as it takes.
_AWAY_S_MAX = 60.0
_RESETS = {"earliest": EARLIEST, "latest": LATEST, "error": None}


def _reset(text: str) -> int | None:
    if text not in _RESETS:
        raise ValueError(f"one of {', '.join(_RESETS)} is expected")
    return _RESETS[text]


_FETCH_SETTINGS = {
    "auto.offset.reset": ("reset", _reset),
    "fetch.max.bytes": ("max_bytes", count),
    "max.partition.fetch.bytes": ("partition_max_bytes", count),
}
_GROUP_SETTINGS = {
    "session.timeout.ms": ("session_timeout_s", seconds),
    "heartbeat.interval.ms": ("heartbeat_interval_s", seconds),
    "max.poll.interval.ms": ("poll_interval_max_s", seconds),
}
_SETTINGS = {**_FETCH_SETTINGS, **_GROUP_SETTINGS}

Offsets = dict[TopicPartition, int]


@click.command(name="consume")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    callback=parse_position,
    default="beginning",
    show_default=True,
    help="beginning, end, an offset, ~N records before the end, a date, @milliseconds or -15m.",
)
@click.option("--until", "end", callback=parse_position, help="Stop before this; as for --from.")
@click.option("--partition", "-p", "partitions", type=int, multiple=True, help="Only these.")
@click.option("--max", "-n", "maximum", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--follow", "-f", is_flag=True, help="Wait for new records instead of ending.")
@click.option("--group", "-g", help="Read as a member of this group and commit what was printed.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["value", "key-value", "full", "json"]),
    default="value",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--encoding",
    type=click.Choice(["text", "base64", "hex"]),
    default="text",
    show_default=True,
    help="How keys, values and headers are shown in JSON; bytes that are not text are base64.",
)
@click.option("--uncommitted", is_flag=True, help="Show records of open and aborted transactions.")
@bootstrap_option
@client_settings_of(_SETTINGS)
def command(
    topic: str,
    start: Position,
    end: Position | None,
    partitions: tuple[int, ...],
    maximum: int | None,
    follow: bool,
    group: str | None,
    format_: str,
    as_json: bool,
    encoding: str,
    uncommitted: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
) -> None:
    """Print the records of a topic."""
    values, common = read_settings(client_settings, _SETTINGS)
    away_s = math.inf if follow else _AWAY_S_MAX
    fetch_values = _chosen(values, _FETCH_SETTINGS)
    fetching = FetchSettings(read_committed=not uncommitted, timeout_s=away_s, **fetch_values)
    membership = MembershipSettings(timeout_s=away_s, **_chosen(values, _GROUP_SETTINGS))
    printer = _Printer("json" if as_json else format_, encoding, maximum)
    try:
        with cluster_client(bootstrap, common) as client:
            chosen = _partitions(client, topic, partitions)
            if group is not None:
                with GroupConsumer(client, group, [topic], fetching, membership) as consumer:
                    _print_group(consumer, printer, follow=follow)
            else:
                starts, ends = _range(client, chosen, start, end, follow=follow, fetching=fetching)
                with Fetcher(client, fetching) as fetcher:
                    fetcher.assign(starts)
                    _print_range(fetcher, printer, ends)
    except KeyboardInterrupt:
        pass
    finally:
        printer.flush()


def _chosen(values: Mapping[str, Any], known: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    fields = {field for field, _ in known.values()}
    return {field: value for field, value in values.items() if field in fields}


def _partitions(client: ClusterClient, topic: str, wanted: tuple[int, ...]) -> list[TopicPartition]:
    (found,) = client.metadata([topic]).topics
    if found.error_code or not found.partitions:
        fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
    numbers = sorted(row.partition_index for row in found.partitions)
    for number in wanted:
        if number not in numbers:
            fail(f"{topic} has no partition {number}", exit_code=EXIT_NOT_FOUND)
    return [TopicPartition(topic, number) for number in wanted or numbers]


def _range(
    client: ClusterClient,
    partitions: list[TopicPartition],
    start: Position,
    end: Position | None,
    *,
    follow: bool,
    fetching: FetchSettings,
) -> tuple[Offsets, Offsets | None]:
    """Where to start in each partition and where to end; without an end for who follows."""
    positions = [start, Position(word="beginning"), end or Position(word="end")]
    starts, firsts, ends = _resolve(client, partitions, positions, fetching.read_committed)
    if follow:
        return starts, None
    # Where nothing is left to read there is nothing to wait for.
    ends = {name: ends[name] for name in partitions if ends[name] > max(firsts[name], starts[name])}
    return {name: starts[name] for name in ends}, ends


def _resolve(
    client: ClusterClient,
    partitions: list[TopicPartition],
    positions: list[Position],
    read_committed: bool,
) -> list[Offsets]:
    """The offsets that positions mean in each partition."""
    times = [each.timestamp_ms for each in positions if each.timestamp_ms is not None]
    asked = [dict.fromkeys(partitions, time) for time in (EARLIEST, LATEST, *times)]
    lows, highs, *by_time = client.list_offsets(asked, read_committed=read_committed)
    resolved: list[Offsets] = []
    for position in positions:
        if position.offset is not None:
            resolved.append(dict.fromkeys(partitions, position.offset))
        elif position.timestamp_ms is not None:
            found = by_time.pop(0)
            resolved.append(
                {name: found[name] if found[name] >= 0 else highs[name] for name in highs}
            )
        elif position.tail is not None:
            resolved.append({name: max(lows[name], highs[name] - position.tail) for name in highs})
        else:
            resolved.append(highs if position.word == "end" else lows)
    return resolved


def _print_group(consumer: GroupConsumer, printer: "_Printer", *, follow: bool) -> None:
    """Print and commit until the printer has enough, or until all is read, unless it follows."""
    while not printer.is_done and (follow or not consumer.is_at_end):
        printed = {}
        for fetched in consumer.poll(_POLL_S):
            last = printer.write_all(fetched)
            if last is not None:
                printed[fetched.partition] = last.offset + 1
        printer.flush()
        if printed:
            consumer.commit(printed)


def _print_range(fetcher: Fetcher, printer: "_Printer", ends: Offsets | None) -> None:
    """Print until the printer has enough, or until every partition reached its end."""
    while not printer.is_done and (ends is None or ends):
        for fetched in fetcher.poll(_POLL_S):
            printer.write_all(fetched, None if ends is None else ends[fetched.partition])
        printer.flush()
        if ends is None:
            continue
        for name, end in list(ends.items()):
            if name in fetcher.at_end or fetcher.positions[name] >= end:
                fetcher.remove(name)
                del ends[name]


class _Printer:
    def __init__(self, format_: str, encoding: str, maximum: int | None) -> None:
        self._format = format_
        self._encoding = encoding
        self._left = math.inf if maximum is None else maximum
        self._out = sys.stdout.buffer

    @property
    def is_done(self) -> bool:
        """Whether as many records were printed as were asked for."""
        return self._left <= 0

    def write_all(self, fetched: Fetched, end: int | None = None) -> Record | None:
        """Print records before the offset `end`, while more are wanted; the last one printed."""
        last = None
        for record in fetched.records:
            if self._left <= 0 or (end is not None and record.offset >= end):
                break
            self._out.write(self._text(fetched.partition, record) + b"\n")
            self._left -= 1
            last = record
        return last

    def flush(self) -> None:
        self._out.flush()

    def _text(self, partition: TopicPartition, record: Record) -> bytes:
        if self._format == "json":
            return json.dumps(self._entry(partition, record)).encode()
        key, value = record.key or b"", record.value or b""
        if self._format == "value":
            return value
        if self._format == "key-value":
            return key + b"\t" + value
        place = f"{partition.partition}:{record.offset} {_moment(record.timestamp)}"
        return place.encode() + b"\t" + key + b"\t" + value

    def _entry(self, partition: TopicPartition, record: Record) -> dict[str, Any]:
        parts = [record.key, record.value, *(value for _, value in record.headers)]
        encoding = self._encoding
        if encoding == "text" and not all(_is_text(part) for part in parts):
            encoding = "base64"
        entry: dict[str, Any] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _show(record.key, encoding),
            "value": _show(record.value, encoding),
        }
        if record.headers:
            entry["headers"] = [[name, _show(value, encoding)] for name, value in record.headers]
        if encoding != "text":
            entry["encoding"] = encoding
        return entry


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # Producers may send any number as the time of a record.
        return f"@{timestamp_ms}"
    return moment.isoformat(" ", "milliseconds")


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False


def _show(data: bytes | None, encoding: str) -> str | None:
    if data is None:
        return None
    if encoding == "text":
        return data.decode()
    return data.hex() if encoding == "hex" else base64.b64encode(data).decode()
