"""Find the table at a path, or make it."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidelog.spark.errors import OptionError
from tidelog.spark.lake import delta_table, parquet_table
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.table import FORMATS, Table


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
    if (root / delta_table.LOG_FOLDER).is_dir():
        return delta_table.DeltaLakeTable(root)
    if (root / parquet_table.LOG_FOLDER).is_dir():
        return parquet_table.ParquetTable(root)
    raise LakeError(f"there is no lake at {root}; `tidelog lake archive` makes one")


def open_or_create(path: str | Path, format_name: str, layout: Layout) -> Table:
    """Open the table at a path if it is as asked, or make it."""
    if format_name not in FORMATS:
        raise OptionError(f"format: {format_name!r} is not one of {', '.join(FORMATS)}")
    root = local_path(path)
    is_there = any(
        (root / each).is_dir() for each in (delta_table.LOG_FOLDER, parquet_table.LOG_FOLDER)
    )
    if is_there:
        table = open_table(root)
    elif format_name == "delta":
        table = delta_table.DeltaLakeTable.create(root, layout)
    else:
        table = parquet_table.ParquetTable.create(root, layout)
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


def _names(columns: tuple[str, ...]) -> str:
    return "/".join(columns) or "none"
