"""What the demo shows: tables for a terminal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from examples.shop.checking import Check
from examples.shop.deliveries import Delivered
from examples.shop.events import moment
from examples.shop.progress import Batch
from tidelog.spark.jobs.audit_report import AuditReport
from tidelog.spark.jobs.hot_keys import HotKeysReport, key_text


def revenue_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One line for each window of the day, one column for each category."""
    euros: dict[str, Counter[str]] = defaultdict(Counter)
    orders: Counter[str] = Counter()
    for row in rows:
        if row["opens"] < moment(0):
            continue
        euros[row["opens"]][row["category"]] += row["cents"] / 100
        orders[row["opens"]] += row["orders"]
    categories = sorted({category for each in euros.values() for category in each})
    table = Table(title="Revenue by window and category, EUR", title_justify="left")
    table.add_column("window opens")
    for category in (*categories, "all", "orders"):
        table.add_column(category, justify="right")
    for window in sorted(euros):
        sums = euros[window]
        table.add_row(
            window[11:16],
            *(f"{sums[category]:,.2f}" for category in categories),
            f"{sums.total():,.2f}",
            f"{orders[window]:,}",
        )
    return table


def paid_table(rows: Iterable[Mapping[str, Any]], rows_max: int = 5) -> Table:
    """The last orders that were joined with their payments."""
    table = Table(title="Orders joined with payments and products", title_justify="left")
    for name in ("order", "customer", "product", "paid by"):
        table.add_column(name)
    table.add_column("EUR", justify="right")
    for row in list(rows)[-rows_max:]:
        table.add_row(
            row["order_id"],
            row["customer_id"],
            row["product"],
            row["method"],
            f"{row['cents'] / 100:,.2f}",
        )
    return table


def dead_letter_table(letters: Sequence[Delivered], rows_max: int = 5) -> Table:
    """Some records that did not parse, each reason once if there are enough."""
    table = Table(title="Dead letters", title_justify="left", expand=True)
    table.add_column("record", no_wrap=True)
    # What does not fit is cut from these two: without a record nobody finds the letter again.
    for name in ("value", "reason"):
        table.add_column(name, overflow="ellipsis", no_wrap=True, ratio=1)
    # The first word of a reason tells kinds apart well enough for a sample.
    by_reason = {_text(each, "tidelog.reason")[:20]: each for each in letters}
    shown = {each.key: each for each in (*by_reason.values(), *letters)}
    for letter in list(shown.values())[:rows_max]:
        table.add_row(letter.key, repr(letter.value)[2:-1], _text(letter, "tidelog.reason"))
    return table


def batch_table(batches: Sequence[Batch]) -> Table:
    """The queries and what they did."""
    table = Table(title="Streaming queries", title_justify="left")
    table.add_column("query")
    for name in ("batches", "rows", "rows/s", "median batch", "most state rows", "too late"):
        table.add_column(name, justify="right")
    for query in sorted({each.query for each in batches}):
        own = [each for each in batches if each.query == query]
        busy = sorted(each.duration_ms for each in own if each.rows)
        rows = sum(each.rows for each in own)
        span_s = (own[-1].ended_ms - own[0].started_ms) / 1000
        table.add_row(
            query,
            f"{len(own):,}",
            f"{rows:,}",
            f"{rows / max(span_s, 0.001):,.0f}",
            f"{busy[len(busy) // 2] / 1000:.2f} s" if busy else "-",
            f"{max(each.state_rows for each in own):,}",
            f"{sum(each.late_rows for each in own):,}",
        )
    return table


def audit_table(report: AuditReport) -> Table:
    """What the audit says of each partition of the archive."""
    table = Table(title="Audit of the archive", title_justify="left")
    table.add_column("partition", justify="right")
    for name in ("records", "first offset", "last offset", "missing", "twice", "checksum"):
        table.add_column(name, justify="right")
    for each in report.partitions:
        table.add_row(
            str(each.partition),
            f"{each.records:,}",
            str(each.first_offset),
            str(each.last_offset),
            f"{each.lost_offsets:,}",
            f"{each.duplicate_records:,}",
            each.checksum,
        )
    return table


def hot_key_table(report: HotKeysReport) -> Table:
    """The customers with most orders."""
    table = Table(title="Hot keys of the archive", title_justify="left")
    table.add_column("customer")
    table.add_column("orders", justify="right")
    table.add_column("share", justify="right")
    for each in report.heaviest:
        table.add_row(key_text(each.key), f"{each.rows:,}", f"{each.row_share:.1%}")
    return table


def check_table(checks: Sequence[Check]) -> Table:
    """Each claim with what was expected and what was found."""
    table = Table(title="Checks", title_justify="left")
    table.add_column("what")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for check in checks:
        verdict = "[green]ok[/]" if check.holds else "[bold red]WRONG[/]"
        table.add_row(check.claim, _number(check.expected), _number(check.found), verdict)
    return table


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(letter: Delivered, header: str) -> str:
    return (letter.headers.get(header) or b"").decode(errors="replace")
