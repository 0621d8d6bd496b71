"""The columns of a lake's table and the folders its rows are kept in.

Folders are named as Hive and Spark name them: `date=2026-11-05/hour=13`. A partition column is not
in the files themselves; its value is in the folder's name and in the table's log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.errors import OptionError
from tidelog.spark.schema import arrow_schema

PARTITION_BY = ("date", "hour", "topic-partition", "none")

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

_COLUMNS = {
    "date": ("date",),
    "hour": ("date", "hour"),
    "topic-partition": ("topic", "partition"),
    "none": (),
}
_DERIVED = {"date": pa.date32(), "hour": pa.int32()}

_HOUR_US = 3_600_000_000

# The years that a calendar has here, 1 to 9999; a record may claim any time at all.
_HOURS_MIN = -719_162 * 24
_HOURS_MAX = 2_932_897 * 24 - 1

# What Spark and Hive write as %XX in the name of a folder; everything else stands as it is.
_ESCAPES = {ord(each): f"%{ord(each):02X}" for each in "\"#%'*/:=?\\\x7f{[]^"} | {
    each: f"%{each:02X}" for each in range(1, 32)
}

Values = tuple[str | None, ...]
"""The values of the partition columns, in their order, as text."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All columns of a table, and which of them name its folders.

    An archive holds the records of topics in the source's columns; other tables hold whatever a
    query gives them.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    is_archive: bool

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in the files."""
        return pa.schema([each for each in self.schema if each.name not in self.partition_columns])

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows of each folder, in the order they have, with the columns of the files."""
        if self.is_archive:
            batch = _with_derived(batch, self.partition_columns)
        kept = self.file_schema.names
        for values, rows in _by_values(batch, self.partition_columns):
            yield values, rows.select(kept)

    def folder(self, values: Values) -> str:
        """The folder of some values below the table's root; empty for an unpartitioned table."""
        return "/".join(
            f"{column}={NULL_FOLDER if value is None else _escaped(value)}"
            for column, value in zip(self.partition_columns, values, strict=True)
        )


def archive_layout(partition_by: Sequence[str]) -> Layout:
    """The layout of an archive; `partition_by` names are those of PARTITION_BY."""
    columns: list[str] = []
    for name in partition_by:
        if name not in _COLUMNS:
            raise OptionError(f"partition-by: {name!r} is not one of {', '.join(PARTITION_BY)}")
        columns += [each for each in _COLUMNS[name] if each not in columns]
    schema = arrow_schema(True)
    for name in columns:
        if name in _DERIVED:
            schema = schema.append(pa.field(name, _DERIVED[name]))
    return Layout(schema, tuple(columns), is_archive=True)


def _with_derived(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Date and hour, in UTC, from the record's timestamp; null where no calendar has that."""
    if not _DERIVED.keys() & set(columns):
        return batch
    timestamps = batch.column("timestamp")
    hours = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False) // _HOUR_US
    missing = pc.is_null(timestamps).to_numpy(zero_copy_only=False)
    missing = missing | (hours < _HOURS_MIN) | (hours > _HOURS_MAX)
    derived = {"date": (hours // 24).astype(np.int32), "hour": (hours % 24).astype(np.int32)}
    for name, kind in _DERIVED.items():
        if name in columns:
            array = pa.array(derived[name], mask=missing).cast(kind)
            batch = batch.append_column(pa.field(name, kind), array)
    return batch


def _by_values(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Rows by the values of some columns; one pass over the batch if they are all alike."""
    texts: list[list[str | None]] = []
    codes = np.zeros(batch.num_rows, np.int64)
    for name in columns:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        texts.append([_text(each) for each in encoded.dictionary])
        if len(texts[-1]) > 1:
            indices = encoded.indices.to_numpy(zero_copy_only=False)
            codes = codes * len(texts[-1]) + indices
    present = np.unique(codes)
    for code in present:
        values: list[str | None] = []
        rest = int(code)
        for each in reversed(texts):
            rest, index = divmod(rest, len(each))
            values.append(each[index])
        chosen = batch if len(present) == 1 else batch.filter(pa.array(codes == code))
        yield tuple(reversed(values)), chosen


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES) if value else NULL_FOLDER


def _text(value: pa.Scalar) -> str | None:
    """A partition value as a Delta log writes it."""
    plain = value.as_py()
    if plain is None:
        return None
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if pa.types.is_timestamp(value.type):
        return str(plain.strftime("%Y-%m-%d %H:%M:%S.%f"))
    return str(plain)
