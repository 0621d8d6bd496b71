"""An Iceberg sink without a jar: Spark writes Parquet, pyiceberg adds the files to the table.

A batch is one snapshot, and the snapshot carries the query's id, which is that of its checkpoint,
and the batch's number: a batch that Spark runs again finds its number there and adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.file.model import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "tidelog.query"
_BATCH = "tidelog.batch"


def iceberg_batches(sink: IcebergSink) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls."""

    def write(frame: DataFrame, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise SparkError("Spark does not tell the id of the query, which exactly-once needs")
        catalog = _catalog(sink)
        table = _table(catalog, sink, frame)
        if last_batch((each.summary for each in table.snapshots()), query_id) >= batch_id:
            return
        folder = f"{sink.path.rstrip('/')}/data/{query_id}-{batch_id:09d}"
        # Iceberg has no INT96, which Spark writes unless told. The session is the query's own.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        # A batch that was written but not added is written again, to the same place.
        frame.write.mode("overwrite").option("compression", "zstd").parquet(folder)
        files = [str(each) for each in frame.sparkSession.read.parquet(folder).inputFiles()]
        if files:
            properties = {_QUERY: query_id, _BATCH: str(batch_id)}
            table.add_files(files, snapshot_properties=properties, check_duplicate_files=False)

    return write


def last_batch(summaries: Iterable[Any], query_id: str) -> int:
    """The highest batch of this query that the table's snapshots tell of, or -1."""
    found = -1
    for summary in summaries:
        properties = summary.additional_properties if summary is not None else {}
        if properties.get(_QUERY) == query_id:
            found = max(found, int(properties.get(_BATCH, -1)))
    return found


def _catalog(sink: IcebergSink) -> Any:
    try:
        load_catalog = import_module("pyiceberg.catalog").load_catalog
    except ImportError as error:
        raise SparkError(
            f'the iceberg sink needs pyiceberg: pip install "tidelog[iceberg]" ({error})'
        ) from error
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{sink.path}/catalog.db",
        "warehouse": sink.path,
        **sink.catalog,
    }
    if "uri" not in sink.catalog and "type" not in sink.catalog:
        Path(sink.path).mkdir(parents=True, exist_ok=True)
    return load_catalog("tidelog", **properties)


def _table(catalog: Any, sink: IcebergSink, frame: DataFrame) -> Any:
    """The table, made with the columns of the rows if it is not there.

    All of them may be null: a column that never is today may be after a change of the pipeline, and
    Iceberg would then refuse its files.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    namespace = sink.table.rpartition(".")[0]
    catalog.create_namespace_if_not_exists(namespace)
    if catalog.table_exists(sink.table):
        return catalog.load_table(sink.table)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    nullable = pa.schema([each.with_nullable(True) for each in schema])
    return catalog.create_table(sink.table, schema=nullable)
