"""`tidelog hotkeys`: which keys overload which partitions, and what splitting them would give."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import console, print_json, table
from tidelog.cli.positions import Position
from tidelog.cli.spark_jobs import (
    bound,
    open_topic,
    plot_option,
    range_options,
    spark_options,
    spark_packages,
    spark_session,
)

if TYPE_CHECKING:
    from tidelog.spark.jobs.hot_keys import HotKeysReport

_KEY_CHARS_MAX = 60


@click.command(name="hotkeys")
@click.argument("topic")
@click.option("--lake", metavar="PATH", help="Read the archive of the topic in this lake.")
@click.option("--top", "-n", default=20, show_default=True, help="Keys to show.")
@click.option(
    "--threshold",
    default=0.1,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="The share of the records with a key above which a key is hot.",
)
@click.option(
    "--ways",
    multiple=True,
    type=click.IntRange(2),
    default=(2, 4, 8),
    show_default=True,
    help="Over how many partitions to split; may be given several times.",
)
@range_options
@plot_option
@spark_options
@bootstrap_option
@json_option
def command(
    topic: str,
    lake: str | None,
    top: int,
    threshold: float,
    ways: tuple[int, ...],
    start: Position | None,
    end: Position | None,
    partitions: tuple[int, ...],
    plot: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show how a topic's records are spread over its partitions and keys.

    Skew is the heaviest partition by the mean of all. Splitting is computed as the partitioner
    HotKeySplitting of the client would do it.
    """
    with spark_packages():
        from tidelog.spark.jobs.hot_keys import hot_keys
        from tidelog.spark.jobs.hot_keys_plot import plot_hot_keys
        from tidelog.spark.jobs.topic_rows import ArchivedTopic, Topic
    source: Topic | ArchivedTopic
    if lake is None:
        source, count = open_topic(bootstrap, topic, partitions, uncommitted=False)
    else:
        source = ArchivedTopic(lake, topic, partitions=partitions)
        count = source.partition_count()
    ranges = source.ranges(bound(start), bound(end))
    with spark_session("hotkeys", master, conf) as spark:
        report = hot_keys(
            source.rows(spark, ranges).frame,
            partition_count=count,
            top=top,
            threshold=threshold,
            ways=ways,
        )
    if plot is not None:
        plot_hot_keys(report, plot, title=topic)
    if as_json:
        print_json({"topic": topic, **report.to_json()})
    else:
        _print(topic, report)


def _print(topic: str, report: "HotKeysReport") -> None:
    from tidelog.spark.jobs.hot_keys import key_text

    out = console()
    loads = [
        {
            "partition": each.partition,
            "records": each.rows,
            "%": each.row_share * 100,
            "bytes": each.size_bytes,
            "% of bytes": each.byte_share * 100,
            "keys": each.keys,
            "without key": each.null_keys,
        }
        for each in report.partitions
    ]
    out.print(table(loads, list(loads[0]), title=topic))
    out.print(
        f"{report.rows} records, {report.null_keys} without key;"
        f" skew {report.row_skew:.2f} by records, {report.byte_skew:.2f} by bytes"
    )
    heavy = [
        {
            "key": key_text(each.key)[:_KEY_CHARS_MAX],
            "records": each.rows,
            "%": each.row_share * 100,
            "bytes": each.size_bytes,
            "partitions": list(each.partitions),
            "hot": each.is_hot,
        }
        for each in report.heaviest
    ]
    if heavy:
        out.print(table(heavy, list(heavy[0]), title="heaviest keys"))
    splits = [
        {
            "ways": each.ways,
            "skew by records": each.row_skew,
            "skew by bytes": each.byte_skew,
            "heaviest": max(each.rows),
        }
        for each in report.splits
    ]
    if splits:
        count = len(report.split_keys)
        what = "the heaviest key" if count == 1 else f"the {count} hot keys"
        out.print(table(splits, list(splits[0]), title=f"if {what} were split"))
