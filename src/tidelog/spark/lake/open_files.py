"""Parquet files of a table that are read in turn, of which only a few are open at a time.

A merge of very many small files, or a range whose records lie in the folders of very many days,
goes back and forth between more files than a process may have open. Footers are read once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.table import Table

_OPEN_MAX = 32
_OPEN_TRIES_MAX = 5


class OpenFiles:
    """Files of one table; for one thread."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._footers: dict[str, Any] = {}
        self._open: OrderedDict[str, Any] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for parquet in self._open.values():
            parquet.close()
        self._open.clear()

    def metadata(self, file: DataFile) -> Any:
        """The footer of a file."""
        if file.path not in self._footers:
            self._footers[file.path] = self._opened(file).metadata
        return self._footers[file.path]

    def read_row_group(
        self, file: DataFile, index: int, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """One row group of a file."""
        try:
            return self._opened(file).read_row_group(index, columns=columns)
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"{file.path} cannot be read: {error}") from error

    def _opened(self, file: DataFile) -> Any:
        parquet = self._open.pop(file.path, None)
        if parquet is None:
            parquet = _open_parquet(self._table, file, self._footers.get(file.path))
        self._open[file.path] = parquet
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return parquet


def _open_parquet(table: Table, file: DataFile, footer: Any) -> Any:
    """A file with its footer read, wherever a compaction may be moving it."""
    for tries_left in reversed(range(_OPEN_TRIES_MAX)):
        place = table.place(file)
        try:
            return pq.ParquetFile(place, metadata=footer, page_checksum_verification=True)
        except FileNotFoundError as error:
            if not tries_left:
                raise LakeError(f"{place} is in the log of the lake, and missing") from error
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"{place} cannot be read: {error}") from error
    raise AssertionError("the last try returns or raises")
