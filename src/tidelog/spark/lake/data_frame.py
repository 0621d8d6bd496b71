"""A lake's table as a DataFrame, read by Spark's own Parquet reader: no Delta jar is needed."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidelog.spark.lake.opening import open_table


def read(spark: SparkSession, path: str | Path) -> DataFrame:
    """The newest version of a table, of either format, as it is now.

    Columns are pruned and filters pushed down as in any Parquet read. A file that a compaction
    replaces meanwhile stays readable in a Delta table for the grace time; in a Parquet table it is
    moved away at once, and the DataFrame must be made anew.
    """
    table = open_table(path)
    schema = from_arrow_schema(table.layout.schema)
    table.finish_moves()
    files = [str(table.root / file.path) for file in table.snapshot().files]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(table.root)).parquet(*files)
