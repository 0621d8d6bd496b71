"""`format("tidelog")`: what Spark asks for when a query reads from or writes to topics."""

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.spark.errors import OptionError
from tidelog.spark.runtime.python_daemon import quiet_this_worker
from tidelog.spark.runtime.worker_memory import freeze_imports
from tidelog.spark.schema import spark_schema
from tidelog.spark.source.options import (
    SourceOptions,
    parse_batch_options,
    parse_source_options,
    parse_stream_options,
)

if TYPE_CHECKING:
    from tidelog.spark.formats import ValueFormat
    from tidelog.spark.source.range_partition import RangeReader

# The module that a planning process of Spark runs if it is to push filters down. It is there only
# if `spark.sql.python.filterPushdown.enabled` is on; where it is off, Spark refuses readers that
# could.
_PUSHING_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"

# Here, as an import is all that each kind of planning process is sure to do with a source.
quiet_this_worker()


class TidelogDataSource(DataSource):
    """The source and the sink, with the options of Spark's Kafka source and sink.

    Spark makes it anew wherever it needs it, from the options alone.
    """

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return self._rows(parse_source_options(self.options))[0]

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.source.batch_reader import BatchReader, PushDownBatchReader

        options = parse_batch_options(self.options)
        pushes = options.push_down and _PUSHING_MODULE in sys.modules
        kind = PushDownBatchReader if pushes else BatchReader
        return kind(options, self._range_reader(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from tidelog.spark.source.stream_reader import StreamReader

        options = parse_stream_options(self.options)
        return StreamReader(options, self._range_reader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink import TidelogBatchWriter, parse_sink_options

        if overwrite:
            raise OptionError('a topic cannot be overwritten, only appended to: mode("append")')
        return TidelogBatchWriter(parse_sink_options(self.options, schema, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from tidelog.spark.sink import TidelogStreamWriter, parse_sink_options

        options = parse_sink_options(self.options, schema, streaming=True)
        # Spark asks for a writer before each micro-batch, of a process that it keeps for this.
        freeze_imports()
        return TidelogStreamWriter(options, schema)

    def _rows(self, options: SourceOptions) -> "tuple[StructType, ValueFormat | None]":
        """The columns of the source, and what makes those that come from the value."""
        from tidelog.spark.formats import value_format

        made = value_format(self.options)
        return (spark_schema(options.include_headers) if made is None else made.schema()), made

    def _range_reader(self, options: SourceOptions, schema: StructType) -> "RangeReader":
        from tidelog.spark.source.range_partition import RangeReader

        rows, made = self._rows(options)
        if schema != rows:
            raise OptionError(
                f"the source has columns of its own, which schema() cannot change: "
                f"{rows.simpleString()}"
            )
        include_headers = options.include_headers or (made is not None and made.needs_headers)
        return RangeReader(options, include_headers, made)
