"""Find the table at a path, or make it."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidelog.spark.errors import OptionError
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.table import FORMATS, OWN_FOLDER, Format, Table

_LOG_FOLDERS: dict[Format, str] = {"delta": "_delta_log", "parquet": f"{OWN_FOLDER}/log"}


def local_path(path: str | Path) -> Path:
    """A path or a file: URL as an absolute path; other URLs are refused."""
    text = str(path)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise OptionError(
            f"lake path {text!r}: a lake is a folder that driver and executors share, "
            f"{parts.scheme} is not supported"
        )
    return Path(text).absolute()


def open_table(path: str | Path) -> Table:
    """Open the table at a path, of whichever format."""
    root = local_path(path)
    found = _format_of(root)
    if found is None:
        raise LakeError(f"there is no lake at {root}; `tidelog lake archive` makes one")
    # The library of one format is not needed for the other, and takes a while to import.
    if found == "delta":
        from tidelog.spark.lake.delta_table import DeltaLakeTable

        return DeltaLakeTable(root)
    from tidelog.spark.lake.parquet_table import ParquetTable

    return ParquetTable(root)


def open_or_create(path: str | Path, format_name: str, layout: Layout) -> Table:
    """Open the table at a path if it is as asked, or make it."""
    if format_name not in FORMATS:
        raise OptionError(f"format: {format_name!r} is not one of {', '.join(FORMATS)}")
    root = local_path(path)
    is_there = _format_of(root) is not None
    table = open_table(root) if is_there else _create(root, format_name, layout)
    if table.format != format_name:
        raise OptionError(f"format: the lake at {root} is {table.format}, not {format_name}")
    if table.layout.partition_columns != layout.partition_columns:
        raise OptionError(
            f"partition-by: the lake at {root} has the folders "
            f"{_names(table.layout.partition_columns)}, not {_names(layout.partition_columns)}"
        )
    if not table.layout.schema.equals(layout.schema):
        raise OptionError(
            f"the lake at {root} has other columns:\n{table.layout.schema}\nnot\n{layout.schema}"
        )
    return table


def _format_of(root: Path) -> Format | None:
    return next((each for each, log in _LOG_FOLDERS.items() if _has_versions(root / log)), None)


def _has_versions(log: Path) -> bool:
    """Whether a log has begun; whoever made the table may have died before.

    Versions are numbers. What else there may be is a file that was not finished.
    """
    try:
        return any(name[:1].isdigit() for name in os.listdir(log))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _create(root: Path, format_name: str, layout: Layout) -> Table:
    if format_name == "delta":
        from tidelog.spark.lake.delta_table import DeltaLakeTable

        return DeltaLakeTable.create(root, layout)
    from tidelog.spark.lake.parquet_table import ParquetTable

    return ParquetTable.create(root, layout)


def _names(columns: tuple[str, ...]) -> str:
    return "/".join(columns) or "none"
