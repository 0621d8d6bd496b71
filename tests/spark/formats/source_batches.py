"""Batches as the source reads them."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tidelog.spark.schema import arrow_schema


def source_batch(values: list[bytes | None], *, with_headers: bool = False) -> pa.RecordBatch:
    count = len(values)
    columns: dict[str, Any] = {
        "key": [b"k%d" % at if at % 2 else None for at in range(count)],
        "value": values,
        "topic": ["orders"] * count,
        "partition": [3] * count,
        "offset": [100 + at for at in range(count)],
        "timestamp": [datetime(2026, 1, 31, tzinfo=UTC)] * count,
        "timestampType": [0] * count,
    }
    if with_headers:
        columns["headers"] = [
            [{"key": "h", "value": b"%d" % at}] if at % 2 else None for at in range(count)
        ]
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(with_headers))
