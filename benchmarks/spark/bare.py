"""A source and a sink that do nothing but hand Arrow over: the bound for ours.

`bare` as a source makes rows of the Kafka shape from buffers that are built once, without fetching
or decoding. As a sink it drops what it gets, and with the option `latencies` it notes how old each
row was when it arrived.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.spark.runtime.python_daemon import quiet_this_worker
from tidelog.spark.runtime.worker_memory import freeze_imports
from tidelog.spark.schema import arrow_schema, spark_schema

ROWS_PER_BATCH = 10_000

quiet_this_worker()


class BareSource(DataSource):
    """Options: rows, partitions, valueBytes; as a sink: latencies (a folder)."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        return spark_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        return BareReader(
            int(options["rows"]), int(options["partitions"]), int(options.get("valueBytes", "1024"))
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BareWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        freeze_imports()
        return BareStreamWriter(self.options.get("latencies"))


@dataclass
class _Share(InputPartition):
    partition: int
    rows: int


class BareReader(DataSourceReader):
    """Rows from buffers that are built once per task."""

    def __init__(self, rows: int, partitions: int, value_bytes: int) -> None:
        self._rows = rows
        self._partitions = partitions
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        share = self._rows // self._partitions
        return [_Share(each, share) for each in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        schema = arrow_schema(include_headers=False)
        count = ROWS_PER_BATCH
        now_us = time.time_ns() // 1000
        columns = [
            _binary(count, 16),
            _binary(count, self._value_bytes),
            pa.array(["bare"] * count, pa.string()),
            pa.array(np.full(count, partition.partition, np.int32)),
            pa.array(np.arange(count, dtype=np.int64)),
            pa.array(np.full(count, now_us, np.int64)).cast(schema.field("timestamp").type),
            pa.array(np.zeros(count, np.int32)),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        left = partition.rows
        while left > 0:
            yield batch if left >= count else batch.slice(0, left)
            left -= count


def _binary(count: int, size: int) -> pa.Array:
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    data = np.random.default_rng(1).integers(0, 256, count * size, dtype=np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


class BareWriter(DataSourceArrowWriter):
    """Takes the rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class BareStreamWriter(DataSourceStreamArrowWriter):
    """Takes the rows of a micro-batch and may note how old they were."""

    def __init__(self, latencies: str | None) -> None:
        self._latencies = latencies

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            if self._latencies is not None and batch.num_rows:
                now_us = time.time_ns() // 1000
                at_us = batch.column("timestamp").cast(pa.int64()).to_numpy()
                target = Path(self._latencies) / f"{uuid.uuid4().hex}.npy"
                np.save(target, (now_us - at_us) / 1000)
        freeze_imports()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        freeze_imports()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
