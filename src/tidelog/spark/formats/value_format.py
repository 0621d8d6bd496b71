"""A format at work: the rows of the source, with the columns that their values hold."""

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from tidelog.spark.formats.corrupt_rows import CORRUPT_COLUMN, CorruptRows, corrupt_row_error
from tidelog.spark.formats.dead_letters import DeadLetterTopic
from tidelog.spark.formats.decoding import Decoder
from tidelog.spark.schema import spark_schema


class ValueFormat(Protocol):
    """Turns rows of the source into rows with typed columns. Picklable; `decode` runs in tasks."""

    @property
    def needs_headers(self) -> bool:
        """Whether `decode` must be given the column headers, also if nobody asked for it."""
        ...

    def schema(self) -> StructType:
        """All columns of a decoded row."""
        ...

    def fields(self) -> list[StructField]:
        """The columns that come from the value."""
        ...

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as Spark takes them. Rows that do not parse may be left out of it."""
        ...


class DecodedFormat:
    """What a decoder makes of the value, and what becomes of rows that it cannot decode.

    The decoder's columns stand instead of `value`: after those of the source, or in its place.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        include_headers: bool,
        prefix: str = "",
        is_in_place: bool = False,
        corrupt_rows: CorruptRows = CorruptRows.COLUMN,
        dead_letter_topic: DeadLetterTopic | None = None,
    ) -> None:
        assert (corrupt_rows is CorruptRows.DEAD_LETTER) == (dead_letter_topic is not None)
        self._decoder = decoder
        self._corrupt_rows = corrupt_rows
        self._dead_letter_topic = dead_letter_topic
        self._typed = [StructField(prefix + each.name, each.dataType) for each in decoder.schema]
        self._source = spark_schema(include_headers).fields
        self._is_in_place = is_in_place
        self._arrow_schema = to_arrow_schema(self.schema(), timezone="UTC")

    @property
    def needs_headers(self) -> bool:
        return self._dead_letter_topic is not None

    def schema(self) -> StructType:
        columns = []
        for field in self._source:
            if field.name != "value":
                columns.append(field)
            elif self._is_in_place:
                columns += self._typed
        if not self._is_in_place:
            columns += self._typed
        return StructType([*columns, *self._corrupt_fields()])

    def fields(self) -> list[StructField]:
        return [*self._typed, *self._corrupt_fields()]

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value")
        decoded = self._decoder.decode(values)
        made = dict(zip((each.name for each in self._typed), decoded.columns, strict=True))
        kept = None
        if self._corrupt_rows is CorruptRows.COLUMN:
            made[CORRUPT_COLUMN] = _only(values, decoded.corrupt)
        elif decoded.corrupt:
            if self._dead_letter_topic is None:
                row, reason = next(iter(decoded.corrupt.items()))
                raise corrupt_row_error(batch, row, reason)
            self._dead_letter_topic.write(batch, decoded.corrupt)
            kept = pc.invert(_mask(len(values), decoded.corrupt))
        columns = [
            made[name] if name in made else batch.column(name) for name in self._arrow_schema.names
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
        return rows if kept is None else rows.filter(kept)

    def _corrupt_fields(self) -> list[StructField]:
        if self._corrupt_rows is not CorruptRows.COLUMN:
            return []
        return [StructField(CORRUPT_COLUMN, BinaryType())]


def _only(values: pa.Array, corrupt: dict[int, str]) -> pa.Array:
    if not corrupt:
        return pa.nulls(len(values), pa.binary())
    return pc.if_else(_mask(len(values), corrupt), values, pa.scalar(None, pa.binary()))


def _mask(count: int, corrupt: dict[int, str]) -> pa.Array:
    mask = np.zeros(count, np.bool_)
    mask[list(corrupt)] = True
    return pa.array(mask)
