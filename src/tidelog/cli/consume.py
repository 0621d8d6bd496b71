"""`tidelog consume`: print the records of a topic."""

import base64
import sys
from datetime import UTC, datetime
from typing import Any

import click
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tidelog.cli.admin_client import CALL_TIMEOUT_S, client_settings, open_admin
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import bootstrap_option, client_settings_option, parse_pairs
from tidelog.cli.positions import Position, parse_position

_BATCH = 500


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
@client_settings_option
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
    extra = parse_pairs(client_settings, option="--client")
    open_admin(bootstrap, extra)
    consumer = _consumer(bootstrap, extra, group, uncommitted)
    printer = _Printer("json" if as_json else format_, encoding)
    try:
        chosen = _partitions(consumer, topic, partitions)
        if group is not None:
            consumer.subscribe([topic])
            _run(consumer, printer, None, maximum, follow=follow, commits=True)
        else:
            ends = None if follow else _resolve(consumer, topic, chosen, end, default_end=True)
            starts = _resolve(consumer, topic, chosen, start, default_end=False)
            consumer.assign([TopicPartition(topic, at, offset) for at, offset in starts.items()])
            pending = None
            if ends is not None:
                first = _resolve(consumer, topic, chosen, Position(word="beginning"), False)
                pending = {
                    (topic, at): last
                    for at, last in ends.items()
                    if last > max(first[at], starts[at] if starts[at] >= 0 else 0)
                }
            _run(consumer, printer, pending, maximum, follow=follow, commits=False)
    except KafkaException as error:
        fail(f"{topic}: {error.args[0].str()}")
    except KeyboardInterrupt:
        pass
    finally:
        printer.flush()
        consumer.close()


def _consumer(
    bootstrap: str, extra: dict[str, str], group: str | None, uncommitted: bool
) -> Consumer:
    return Consumer(
        {
            **client_settings(bootstrap, {}),
            "group.id": group or "tidelog-consume",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
            **extra,
        }
    )


def _partitions(consumer: Consumer, topic: str, wanted: tuple[int, ...]) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
    if metadata.error is not None or not metadata.partitions:
        fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
    for number in wanted:
        if number not in metadata.partitions:
            fail(f"{topic} has no partition {number}", exit_code=EXIT_NOT_FOUND)
    return list(wanted) or sorted(metadata.partitions)


def _resolve(
    consumer: Consumer,
    topic: str,
    partitions: list[int],
    position: Position | None,
    default_end: bool,
) -> dict[int, int]:
    """The offset that a position means in each partition."""
    if position is None:
        position = Position(word="end" if default_end else "beginning")
    if position.offset is not None:
        return dict.fromkeys(partitions, position.offset)
    if position.timestamp_ms is not None:
        asked = [TopicPartition(topic, number, position.timestamp_ms) for number in partitions]
        found = consumer.offsets_for_times(asked, timeout=CALL_TIMEOUT_S)
        ends = _resolve(consumer, topic, partitions, Position(word="end"), True)
        return {
            place.partition: place.offset if place.offset >= 0 else ends[place.partition]
            for place in found
        }
    resolved = {}
    for number in partitions:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=CALL_TIMEOUT_S
        )
        if position.tail is not None:
            resolved[number] = max(low, high - position.tail)
        elif position.word == "end":
            resolved[number] = high
        else:
            resolved[number] = low
    return resolved


def _run(
    consumer: Consumer,
    printer: "_Printer",
    pending: dict[tuple[str, int], int] | None,
    maximum: int | None,
    *,
    follow: bool,
    commits: bool,
) -> None:
    """Print until `maximum`, or until every pending partition reached its end."""
    printed = 0
    at_end: set[tuple[str, int]] = set()
    while pending is None or pending:
        room = _BATCH if maximum is None else min(_BATCH, maximum - printed)
        batch = consumer.consume(room, 0.2)
        last: dict[tuple[str, int], int] = {}
        for message in batch:
            place = (message.topic(), message.partition())
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise KafkaException(error)
                if error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(place)
                    if pending is not None:
                        pending.pop(place, None)
                continue
            if pending is not None:
                end = pending.get(place)
                if end is None or message.offset() >= end:
                    pending.pop(place, None)
                    continue
                if message.offset() == end - 1:
                    pending.pop(place)
            printer.write(message)
            printed += 1
            last[place] = message.offset() + 1
        printer.flush()
        if commits and last:
            offsets = [TopicPartition(*place, offset) for place, offset in last.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        at_end.difference_update(last)
        if maximum is not None and printed >= maximum:
            return
        if commits and not follow:
            ours = {(held.topic, held.partition) for held in consumer.assignment()}
            if ours and ours <= at_end:
                return


class _Printer:
    def __init__(self, format_: str, encoding: str) -> None:
        self._format = format_
        self._encoding = encoding
        self._out = sys.stdout.buffer

    def write(self, message: Message) -> None:
        if self._format == "json":
            import json

            self._out.write(json.dumps(self._entry(message)).encode())
        else:
            self._out.write(self._line(message))
        self._out.write(b"\n")

    def flush(self) -> None:
        self._out.flush()

    def _line(self, message: Message) -> bytes:
        value = message.value() if message.value() is not None else b""
        if self._format == "value":
            return bytes(value)
        key = message.key() if message.key() is not None else b""
        if self._format == "key-value":
            return bytes(key) + b"\t" + bytes(value)
        moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        place = f"{message.partition()}:{message.offset()} {moment.isoformat(' ', 'milliseconds')}"
        return place.encode() + b"\t" + bytes(key) + b"\t" + bytes(value)

    def _entry(self, message: Message) -> dict[str, Any]:
        parts = [message.key(), message.value(), *(v for _, v in message.headers() or ())]
        encoding = self._encoding
        if encoding == "text" and not all(_is_text(part) for part in parts):
            encoding = "base64"
        entry: dict[str, Any] = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _show(message.key(), encoding),
            "value": _show(message.value(), encoding),
        }
        if headers := message.headers():
            entry["headers"] = [[name, _show(value, encoding)] for name, value in headers]
        if encoding != "text":
            entry["encoding"] = encoding
        return entry


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
