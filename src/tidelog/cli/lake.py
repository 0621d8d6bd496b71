"""`tidelog lake`: topics kept in tables, and back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from tidelog.cli.failures import fail
from tidelog.cli.options import bootstrap_option, json_option, parse_pairs
from tidelog.cli.output import console, print_json, table

_MISSING = 'the lake needs more packages: pip install "tidelog[spark]"'


@click.group(name="lake")
def command() -> None:
    """Keep topics in Delta or Parquet tables, exactly once, and bring them back."""


def _spark_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--master` and `--conf`."""
    function = click.option(
        "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark."
    )(function)
    return click.option("--master", metavar="URL", help="Where Spark runs. Default: this machine.")(
        function
    )


@command.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--to", "path", required=True, metavar="PATH", help="The lake's folder.")
@click.option("--format", "format_name", default="delta", show_default=True, help="Or parquet.")
@click.option(
    "--partition-by",
    multiple=True,
    default=("date",),
    show_default=True,
    metavar="NAME",
    help="Folders: date, hour, topic-partition, none. Several are nested.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on for ever instead of to the end.")
@click.option("--interval", default=60.0, show_default=True, help="With --follow: seconds a batch.")
@click.option("--target-file-size", default="128MB", show_default=True)
@click.option("--offsets-per-batch", default=1_000_000, show_default=True)
@click.option("--compact-every", default=20, show_default=True, help="Batches; 0 is never.")
@click.option("--checkpoint", metavar="DIR", help="Default: in the lake.")
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on if the broker has lost records; the lake remembers the hole.",
)
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the source."
)
@_spark_options
@bootstrap_option
@json_option
def archive(
    topics: tuple[str, ...],
    path: str,
    format_name: str,
    partition_by: tuple[str, ...],
    follow: bool,
    interval: float,
    target_file_size: str,
    offsets_per_batch: int,
    compact_every: int,
    checkpoint: str | None,
    allow_data_loss: bool,
    options: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Bring topics into a lake; run it again for what is new.

    Each record is in the lake once, whatever crashes or runs again.
    """
    with _needs_packages():
        from tidelog.spark.lake.archiving import archive as run
        from tidelog.spark.lake.sizes import parse_size, size_text
    source_options = parse_pairs(options, option="--option")
    target_file_bytes = parse_size(target_file_size, option="--target-file-size")
    with _stopping() as is_stopping:
        result = run(
            topics,
            path,
            bootstrap=bootstrap,
            follow=follow,
            interval_s=interval,
            master=master,
            conf=parse_pairs(conf, option="--conf"),
            is_stopping=is_stopping,
            format=format_name,
            partition_by=partition_by,
            target_file_bytes=target_file_bytes,
            offsets_per_batch=offsets_per_batch,
            fail_on_data_loss=not allow_data_loss,
            compact_every=compact_every,
            checkpoint=checkpoint,
            options=source_options,
        )
    rows = [
        {"topic": topic, "partition": partition, "start_offset": start, "end_offset": end}
        for topic, coverage in result.coverage.items()
        for partition, (start, end) in coverage.items()
    ]
    if as_json:
        print_json({"records": result.records, "size_bytes": result.size_bytes, "coverage": rows})
        return
    click.echo(f"archived {result.records} records, {size_text(max(0, result.size_bytes))}")
    console().print(table(rows, ["topic", "partition", "start_offset", "end_offset"]))


@command.command()
@click.argument("path")
@click.option("--topic", required=True, help="The archived topic.")
@click.option("--to-topic", required=True, help="Where its records go.")
@click.option("--from", "start", metavar="OFFSET|TIME", help="Inclusive. Default: all.")
@click.option("--to", "end", metavar="OFFSET|TIME", help="Exclusive. Default: all.")
@click.option("--partitions", default="same", show_default=True, help="Or by-key.")
@click.option("--timestamp-header", metavar="NAME", help="A header for the old timestamp, in ms.")
@click.option("--replay-id", metavar="NAME", help="To go on with a replay, or not do it twice.")
@click.option("--checkpoint", metavar="DIR", help="Default: in the lake.")
@click.option("--offsets-per-batch", default=500_000, show_default=True)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on without offsets that were lost before they were archived.",
)
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the sink."
)
@_spark_options
@bootstrap_option
@json_option
def replay(
    path: str,
    topic: str,
    to_topic: str,
    start: str | None,
    end: str | None,
    partitions: str,
    timestamp_header: str | None,
    replay_id: str | None,
    checkpoint: str | None,
    offsets_per_batch: int,
    allow_data_loss: bool,
    options: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send archived records to a topic, in their order, with keys and headers.

    Bounds are offsets or times (2026-11-05T13:00:00Z). With the same --replay-id a replay that was
    cut off goes on, and one that is done sends nothing more.
    """
    with _needs_packages():
        from tidelog.spark.lake.bounds import parse_bound
        from tidelog.spark.lake.replaying import replay as run
    sink_options = parse_pairs(options, option="--option")
    bounds = [
        None if text is None else parse_bound(text, option=option)
        for text, option in ((start, "--from"), (end, "--to"))
    ]
    result = run(
        path,
        topic=topic,
        to_topic=to_topic,
        bootstrap=bootstrap,
        start=bounds[0],
        end=bounds[1],
        partitions=partitions,
        timestamp_header=timestamp_header,
        replay_id=replay_id,
        checkpoint=checkpoint,
        offsets_per_batch=offsets_per_batch,
        fail_on_data_loss=not allow_data_loss,
        options=sink_options,
        master=master,
        conf=parse_pairs(conf, option="--conf"),
    )
    if as_json:
        print_json(
            {"replay_id": result.replay_id, "records": result.records, "losses": result.losses}
        )
        return
    for loss in result.losses:
        click.echo(loss, err=True)
    click.echo(f"replayed {result.records} records to {to_topic} (replay id {result.replay_id})")


@command.command()
@click.argument("path")
@click.option("--target-file-size", default="128MB", show_default=True)
@click.option(
    "--grace",
    default=168.0,
    show_default=True,
    metavar="HOURS",
    help="Files that are not needed are deleted when they are older; readers and writers that "
    "are slower than this fail.",
)
@json_option
def compact(path: str, target_file_size: str, grace: float, as_json: bool) -> None:
    """Merge small files, and delete files that nothing needs any more."""
    with _needs_packages():
        from tidelog.spark.lake.compaction import compact as run
        from tidelog.spark.lake.opening import open_table
        from tidelog.spark.lake.sizes import parse_size, size_text
    if grace < 0:
        raise click.BadParameter("it is below 0", param_hint="--grace")
    lake = open_table(path)
    result = run(lake, parse_size(target_file_size, option="--target-file-size"))
    deleted = lake.vacuum(grace * 3600)
    if as_json:
        print_json(
            {
                "files_before": result.files_before,
                "files_after": result.files_after,
                "bytes_before": result.bytes_before,
                "bytes_after": result.bytes_after,
                "files_deleted": deleted,
            }
        )
        return
    click.echo(
        f"merged {result.files_before} files ({size_text(result.bytes_before)}) into "
        f"{result.files_after} ({size_text(result.bytes_after)}), deleted {deleted}"
    )


@command.command()
@click.argument("path")
@json_option
def describe(path: str, as_json: bool) -> None:
    """Show what a lake holds: topics, offsets, files and sizes."""
    with _needs_packages():
        from tidelog.spark.lake.description import describe as run
        from tidelog.spark.lake.sizes import size_text
    found = run(path)
    if as_json:
        print_json(found)
        return
    out = console()
    folders = "/".join(found["partition_by"]) or "no folders"
    out.print(
        f"{found['path']}  {found['format']}  version {found['version']}  {folders}  "
        f"{found['records']} records  {found['files']} files  {size_text(found['size_bytes'])}"
    )
    rows = [
        {
            "topic": topic["topic"],
            "partition": each["partition"],
            "start_offset": each["start_offset"],
            "end_offset": each["end_offset"],
            "holes": ", ".join(
                f"{hole['start_offset']}-{hole['end_offset'] - 1}" for hole in each["holes"]
            ),
        }
        for topic in found["topics"]
        for each in topic["partitions"]
    ]
    if rows:
        out.print(table(rows, ["topic", "partition", "start_offset", "end_offset", "holes"]))


@contextmanager
def _needs_packages() -> Iterator[None]:
    """Importing what is only in the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "tidelog":
            raise
        fail(f"{_MISSING} ({error.name} is missing)")


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came; a second one ends the process as it would without us."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.getsignal(each) for each in signals}

    def on_signal(number: int, frame: object) -> None:
        stop.set()
        for each in signals:
            signal.signal(each, signal.SIG_DFL)

    for each in signals:
        signal.signal(each, on_signal)
    try:
        yield stop.is_set
    finally:
        for each in signals:
            signal.signal(each, before[each])
