"""`tidelog audit`: is each record there, once, in order and unchanged."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.failures import EXIT_NOT_FOUND, fail
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
    from tidelog.spark.jobs.audit_report import AuditReport, PartitionAudit
    from tidelog.spark.jobs.comparison import Comparison


@click.command(name="audit")
@click.argument("topic")
@click.option("--lake", metavar="PATH", help="Audit the archive of the topic in this lake.")
@click.option("--compare-lake", is_flag=True, help="Audit both, and compare what both have.")
@range_options
@click.option("--uncommitted", is_flag=True, help="With records of aborted transactions.")
@click.option("--shown", default=20, show_default=True, help="Gaps to list for a partition.")
@plot_option
@spark_options
@bootstrap_option
@json_option
def command(
    topic: str,
    lake: str | None,
    compare_lake: bool,
    start: Position | None,
    end: Position | None,
    partitions: tuple[int, ...],
    uncommitted: bool,
    shown: int,
    plot: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Check a topic, or its archive in a lake: gaps, duplicates, order, checksums.

    Gaps that transactions leave (markers, aborted records) and those of a compacted topic are
    told apart from losses; a lake must have as many records as were archived. Exit code 3:
    something is missing, there twice, out of order, or lake and topic differ.
    """
    if compare_lake and lake is None:
        raise click.UsageError("--compare-lake needs --lake PATH")
    with spark_packages():
        from tidelog.spark.jobs.audit import audit
        from tidelog.spark.jobs.audit_plot import plot_audit
        from tidelog.spark.jobs.comparison import compare
        from tidelog.spark.jobs.topic_rows import ArchivedTopic, common
    sources: dict[str, Any] = {}
    if lake is None or compare_lake:
        sources["live"], _ = open_topic(
            bootstrap, topic, partitions, uncommitted=uncommitted, include_headers=compare_lake
        )
    if lake is not None:
        sources["lake"] = ArchivedTopic(lake, topic, partitions=partitions)
    ranges = {name: each.ranges(bound(start), bound(end)) for name, each in sources.items()}
    if compare_lake:
        ranges = dict.fromkeys(ranges, common(ranges["live"], ranges["lake"]))
        if not ranges["live"]:
            fail("topic and lake have no offsets in common", exit_code=EXIT_NOT_FOUND)
    comparison = None
    with spark_session("audit", master, conf) as spark:
        rows = {name: each.rows(spark, ranges[name]) for name, each in sources.items()}
        counts = {"lake": sources["lake"].counts(spark)} if lake is not None else {}
        reports = {
            name: audit(
                each.frame,
                ranges=each.ranges,
                explanation=each.explanation,
                origin=each.origin,
                shown_max=shown,
                counts=counts.get(name, ()),
            )
            for name, each in rows.items()
        }
        if compare_lake:
            comparison = compare(rows["live"].frame, rows["lake"].frame, ranges["live"])
    if plot is not None:
        plot_audit(reports, plot, title=topic)
    problems = [
        f"{name}: {problem}" for name, report in reports.items() for problem in report.problems()
    ]
    problems += comparison.problems() if comparison is not None else []
    if as_json:
        print_json(_json(topic, reports, comparison, problems))
    else:
        _print(topic, reports, comparison, problems)
    if problems:
        raise click.exceptions.Exit(EXIT_NOT_FOUND)


def _json(
    topic: str,
    reports: "dict[str, AuditReport]",
    comparison: "Comparison | None",
    problems: list[str],
) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": topic, "passed": not problems, "problems": problems}
    found |= {name: report.to_json() for name, report in reports.items()}
    if comparison is not None:
        found["comparison"] = comparison.to_json()
    return found


def _print(
    topic: str,
    reports: "dict[str, AuditReport]",
    comparison: "Comparison | None",
    problems: list[str],
) -> None:
    out = console()
    for name, report in reports.items():
        rows = [_row(each) for each in report.partitions]
        if not rows:
            out.print(f"{topic} ({name}): nothing to audit")
            continue
        out.print(table(rows, list(rows[0]), title=f"{topic} ({name})"))
        gaps = [
            {
                "partition": each.partition,
                "first": gap.first,
                "last": gap.last,
                "offsets": gap.size,
                "why": gap.kind.value,
            }
            for each in report.partitions
            for gap in each.gaps
        ]
        if gaps:
            out.print(table(gaps, list(gaps[0]), title="gaps"))
    if comparison is not None and not comparison.blocks_that_differ:
        offsets = sum(end - start for start, end in comparison.ranges.values())
        out.print(f"live and lake are the same over {offsets} offsets")
    for problem in problems:
        click.echo(f"failed: {problem}", err=True)
    if not problems:
        out.print("passed")


def _row(each: "PartitionAudit") -> dict[str, Any]:
    from tidelog.spark.jobs.audit_report import time_text

    return {
        "partition": each.partition,
        "records": each.records,
        "first": each.first_offset,
        "last": each.last_offset,
        "bytes": each.size_bytes,
        "gaps": sum(each.gap_counts.values()),
        "lost": each.lost_offsets,
        "twice": each.duplicate_records,
        "out of order": each.order_violations,
        "times back": each.times_back,
        "checksum": each.checksum,
        "from": time_text(each.first_time_us),
        "to": time_text(each.last_time_us),
    }
