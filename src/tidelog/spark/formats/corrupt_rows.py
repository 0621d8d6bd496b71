"""What happens to rows whose value does not parse."""

from enum import Enum

import pyarrow as pa

from tidelog.spark.errors import SparkError

CORRUPT_COLUMN = "_corrupt"


class CorruptRows(Enum):
    """The option corruptRows.

    `column`, the default as in Spark's own readers: the row stays, with null in every column that
    comes from the value, and the raw value in `_corrupt`, which is null for all other rows.
    `deadLetter`: the record goes to another topic and the row is left out. `fail`: the query fails.
    """

    COLUMN = "column"
    DEAD_LETTER = "deadLetter"
    FAIL = "fail"


class CorruptRowError(SparkError):
    """A value does not parse and corruptRows is fail; the text says where it is."""


def corrupt_row_error(batch: pa.RecordBatch, row: int, reason: str) -> CorruptRowError:
    """The error that names a row by its topic, partition and offset."""
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return CorruptRowError(
        f"the value at offset {offset} of {topic}-{partition} does not parse: {reason}."
        " Set corruptRows to column or deadLetter to go on without it"
    )
