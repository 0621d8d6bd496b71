"""`tidelog bench`: what a broker does for one client on this machine."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.cli.admin_client import CALL_TIMEOUT_S, client_settings, open_admin, wait_for
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.latency import Latencies
from tidelog.cli.options import (
    bootstrap_option,
    client_settings_option,
    json_option,
    parse_pairs,
)
from tidelog.cli.output import console, print_json, table

_SAMPLE_EVERY = 50
_CONSUME_BATCH = 5000
_COMPRESSIONS = click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])


@click.group(name="bench")
def command() -> None:
    """Measure producing, consuming and end-to-end latency."""


@command.command()
@click.option("--topic", help="Default: a new topic that is deleted afterwards.")
@click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True)
@click.option("--records", "-n", type=click.IntRange(1), default=500_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=1024, show_default=True, help="Bytes each.")
@click.option("--rate", type=click.IntRange(1), help="Records a second; default as many as go.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--compression", "-z", type=_COMPRESSIONS, default="none", show_default=True)
@click.option("--linger-ms", type=click.FloatRange(0), default=5.0, show_default=True)
@click.option(
    "--set", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="Of a new topic."
)
@bootstrap_option
@client_settings_option
@json_option
def produce(
    topic: str | None,
    partitions: int,
    records: int,
    size: int,
    rate: int | None,
    acks: str,
    compression: str,
    linger_ms: float,
    settings: tuple[str, ...],
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish as fast as the broker takes it, or at a fixed rate."""
    extra = parse_pairs(client_settings, option="--client")
    admin = open_admin(bootstrap, extra)
    with _topic(admin, topic, partitions, parse_pairs(settings, option="--set")) as name:
        producer_settings = _producer_settings(bootstrap, extra, acks, compression, linger_ms)
        result = _produce(producer_settings, name, records, size, rate, quiet=as_json)
    _show("produce", result, as_json=as_json)


@command.command()
@click.option("--topic", help="Default: a new topic that is filled first and deleted afterwards.")
@click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True)
@click.option("--records", "-n", type=click.IntRange(1), default=500_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=1024, show_default=True, help="Bytes each.")
@click.option("--compression", "-z", type=_COMPRESSIONS, default="none", show_default=True)
@bootstrap_option
@client_settings_option
@json_option
def consume(
    topic: str | None,
    partitions: int,
    records: int,
    size: int,
    compression: str,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read a topic from its beginning as fast as the broker gives it."""
    extra = parse_pairs(client_settings, option="--client")
    admin = open_admin(bootstrap, extra)
    with _topic(admin, topic, partitions, {}) as name:
        if topic is None:
            filling = _producer_settings(bootstrap, extra, "1", compression, 5.0)
            _produce(filling, name, records, size, None, quiet=as_json, doing="filling")
        result = _consume(bootstrap, extra, name, records, quiet=as_json)
    _show("consume", result, as_json=as_json)


@command.command(name="end-to-end")
@click.option("--topic", help="Default: a new topic that is deleted afterwards.")
@click.option("--records", "-n", type=click.IntRange(1), default=5_000, show_default=True)
@click.option(
    "--size", type=click.IntRange(16), default=1024, show_default=True, help="Bytes each."
)
@click.option("--rate", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@bootstrap_option
@client_settings_option
@json_option
def end_to_end(
    topic: str | None,
    records: int,
    size: int,
    rate: int,
    acks: str,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish at a fixed rate and measure until a consumer has each record."""
    extra = parse_pairs(client_settings, option="--client")
    admin = open_admin(bootstrap, extra)
    with _topic(admin, topic, 1, {}) as name:
        result = _end_to_end(bootstrap, extra, name, records, size, rate, acks, quiet=as_json)
    _show("end to end", result, as_json=as_json)


def _producer_settings(
    bootstrap: str, extra: dict[str, str], acks: str, compression: str, linger_ms: float
) -> dict[str, Any]:
    return {
        **client_settings(bootstrap, {}),
        "acks": acks,
        "compression.type": compression,
        "linger.ms": linger_ms,
        "batch.size": 1_000_000,
        "queue.buffering.max.kbytes": 262_144,
        **extra,
    }


def _consumer(bootstrap: str, extra: dict[str, str]) -> Consumer:
    return Consumer(
        {
            **client_settings(bootstrap, {}),
            "group.id": "tidelog-bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 4_194_304,
            "queued.max.messages.kbytes": 262_144,
            **extra,
        }
    )


def _produce(
    settings: dict[str, Any],
    topic: str,
    records: int,
    size: int,
    rate: int | None,
    *,
    quiet: bool,
    doing: str = "producing",
) -> dict[str, Any]:
    producer = Producer(settings)
    value = os.urandom(size)
    latencies = Latencies()
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    def sampled(sent_at: float) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            latencies.add(time.perf_counter() - sent_at)
            delivered(error, message)

        return report

    with _progress(doing, records, quiet=quiet) as advance:
        start = time.perf_counter()
        for number in range(records):
            if rate is not None:
                _pace(producer, start + number / rate)
            sample = number % _SAMPLE_EVERY == 0
            on_delivery = sampled(time.perf_counter()) if sample else delivered
            while True:
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            if sample:
                producer.poll(0)
                advance(_SAMPLE_EVERY)
        left = producer.flush(120)
        seconds = time.perf_counter() - start
    if left or errors:
        reason = errors[0].str() if errors else "no answer within 120 s"
        fail(f"{left + len(errors)} records were not acknowledged: {reason}")
    return _result(records, records * size, seconds, latencies)


def _consume(
    bootstrap: str, extra: dict[str, str], topic: str, records: int, *, quiet: bool
) -> dict[str, Any]:
    consumer = _consumer(bootstrap, extra)
    try:
        metadata = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
        starts = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number))
            for number in metadata.partitions
        }
        there = sum(high - low for low, high in starts.values())
        wanted = min(records, there)
        consumer.assign([TopicPartition(topic, at, low) for at, (low, _) in starts.items()])
        seen = size_bytes = 0
        with _progress("consuming", wanted, quiet=quiet) as advance:
            start = time.perf_counter()
            silent_since = start
            while seen < wanted:
                batch = consumer.consume(_CONSUME_BATCH, 0.5)
                for message in batch:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    size_bytes += len(message.value() or b"")
                seen += len(batch)
                advance(len(batch))
                now = time.perf_counter()
                if batch:
                    silent_since = now
                elif now - silent_since > 10:
                    # A compacted or transactional topic has fewer records than offsets.
                    break
            seconds = silent_since - start
    except KafkaException as error:
        fail(f"{topic}: {error.args[0].str()}")
    finally:
        consumer.close()
    return _result(seen, size_bytes, seconds, Latencies())


def _end_to_end(
    bootstrap: str,
    extra: dict[str, str],
    topic: str,
    records: int,
    size: int,
    rate: int,
    acks: str,
    *,
    quiet: bool,
) -> dict[str, Any]:
    producer = Producer(_producer_settings(bootstrap, extra, acks, "none", 0.0))
    consumer = _consumer(bootstrap, {"fetch.wait.max.ms": "100", **extra})
    latencies = Latencies()
    padding = bytes(size - 8)
    try:
        _low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, 0), timeout=CALL_TIMEOUT_S
        )
        consumer.assign([TopicPartition(topic, 0, high)])
        consumer.consume(1, 0.2)
        with _progress("end to end", records, quiet=quiet) as advance:
            start = time.perf_counter()
            sent = seen = 0
            while seen < records:
                now = time.perf_counter()
                if now - start > records / rate + 60:
                    fail(f"only {seen} of {records} records came back")
                while sent < records and now >= start + sent / rate:
                    stamp = time.perf_counter_ns().to_bytes(8, "big")
                    producer.produce(topic, stamp + padding, partition=0)
                    sent += 1
                producer.poll(0)
                for message in consumer.consume(100, 0.0005):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    sent_ns = int.from_bytes((message.value() or b"")[:8], "big")
                    latencies.add((time.perf_counter_ns() - sent_ns) / 1e9)
                    seen += 1
                    advance(1)
            seconds = time.perf_counter() - start
    except KafkaException as error:
        fail(f"{topic}: {error.args[0].str()}")
    finally:
        consumer.close()
    return _result(records, records * size, seconds, latencies)


def _pace(producer: Producer, due: float) -> None:
    while (early := due - time.perf_counter()) > 0:
        producer.poll(min(early, 0.001))


def _result(records: int, size_bytes: int, seconds: float, latencies: Latencies) -> dict[str, Any]:
    elapsed = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": size_bytes,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / elapsed),
        "megabytes_per_second": round(size_bytes / elapsed / 1e6, 2),
        "latency_ms": latencies.summary_ms(),
    }


@contextmanager
def _topic(
    admin: AdminClient, name: str | None, partitions: int, settings: dict[str, str]
) -> Iterator[str]:
    """The topic to measure on; one that we made is deleted again."""
    if name is not None:
        yield name
        return
    made = f"tidelog-bench-{uuid4().hex[:8]}"
    new = NewTopic(made, num_partitions=partitions, replication_factor=-1, config=settings)
    wait_for(admin.create_topics([new])[made], f"cannot create {made}")
    try:
        yield made
    finally:
        wait_for(admin.delete_topics([made])[made], f"cannot delete {made}")


@contextmanager
def _progress(doing: str, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, for people at a terminal."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield lambda _count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda count: progress.advance(task, count)


def _show(name: str, result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"bench": name, **result})
        return
    out = console()
    row = {
        "records": f"{result['records']:,}",
        "seconds": result["seconds"],
        "records/s": f"{result['records_per_second']:,}",
        "MB/s": result["megabytes_per_second"],
    }
    out.print(table([row], list(row), title=name))
    if latency := result["latency_ms"]:
        out.print(table([latency], list(latency), title="latency, ms"))
