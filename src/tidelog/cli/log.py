"""`tidelog log`: look into the files of a log and check them, without a running node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tidelog.cli.failures import EXIT_NOT_FOUND
from tidelog.cli.options import json_option
from tidelog.cli.output import print_json, print_rows
from tidelog.storage.dump import UnknownFileError, dump_file
from tidelog.storage.verify import verify as verify_files

_EXISTING = click.Path(exists=True, path_type=Path)


@click.group(name="log")
def command() -> None:
    """Look into the files of a log and check them."""


@command.command()
@click.argument("paths", nargs=-1, required=True, type=_EXISTING)
@click.option("--records", "-r", is_flag=True, help="Show the records inside the batches too.")
@click.option("--max", "-n", "maximum", type=click.IntRange(1), help="Show so many rows of a file.")
@json_option
def dump(paths: tuple[Path, ...], records: bool, maximum: int | None, as_json: bool) -> None:
    """Show segments, indexes, snapshots, checkpoints and journal files.

    A folder stands for the files in it. With --json each row is an object on a line of its own.
    """
    for path in _files(paths):
        if not as_json:
            click.echo(f"{path}")
        for number, row in enumerate(dump_file(path, records=records)):
            if maximum is not None and number >= maximum:
                break
            if as_json:
                print_json({"file": str(path), **row})
            else:
                click.echo("  " + _line(row))


@command.command()
@click.argument("path", type=_EXISTING)
@json_option
def verify(path: Path, as_json: bool) -> None:
    """Check a data folder, a partition's folder or one file.

    Lengths, checksums, offsets and indexes are checked. The exit code is 3 when something is
    damaged; warnings are what a node mends by itself.
    """
    findings = list(verify_files(path))
    rows = [
        {
            "file": str(finding.path),
            "severity": finding.severity,
            "position": finding.position,
            "problem": finding.problem,
        }
        for finding in findings
    ]
    columns = ["severity", "file", "position", "problem"]
    print_rows(rows, columns, as_json=as_json, empty=f"{path}: nothing is wrong")
    if any(finding.severity == "error" for finding in findings):
        raise click.exceptions.Exit(EXIT_NOT_FOUND)


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """The files that can be shown; a file named by the user that cannot is an error."""
    for path in paths:
        if path.is_dir():
            yield from (each for each in sorted(path.iterdir()) if _is_known(each))
        else:
            yield path


def _is_known(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        next(iter(dump_file(path)), None)
    except UnknownFileError:
        return False
    return True


def _line(row: dict[str, Any]) -> str:
    return "  ".join(f"{name}={_short(value)}" for name, value in row.items())


def _short(value: Any) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
