"""A task's rows without a transaction: visible at once, and there twice if the task runs again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.messages import Written
from tidelog.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


def write_at_least_once(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of a task."""
    # The driver has no use for it, and compiled code takes a while to load.
    from tidelog.spark.sink.writing import with_rows, write_idempotently

    batches = with_rows(iterator)
    first = next(batches, None)
    if first is None:
        return Written()
    with lent_client(options) as client:
        counts = write_idempotently(client, options, chain([first], batches))
    return Written(sum(counts.values()), counts)
