"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, Any]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=None if not sys.stdout.isatty() else 2, default=str))


def print_rows(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Rows as a table whose columns are in the given order, or as a JSON list with all fields."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        click.echo(empty, err=True)
        return
    console().print(table(rows, columns))


def table(rows: Iterable[Row], columns: Sequence[str], *, title: str | None = None) -> Any:
    """A rich table of some columns of the rows; numbers are aligned to the right."""
    from rich import box
    from rich.table import Table

    shown = list(rows)
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        is_number = all(isinstance(row.get(column), int | float | None) for row in shown)
        made.add_column(column.replace("_", " "), justify="right" if is_number else "left")
    for row in shown:
        made.add_row(*(_text(row.get(column)) for column in columns))
    return made


def console(*, stderr: bool = False) -> Any:
    """A rich console; on anything but a terminal lines are wide and not folded."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 200, soft_wrap=True)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)
