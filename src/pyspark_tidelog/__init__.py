"""Where Spark finds `format("tidelog")`: it imports every package named `pyspark_*`."""

from tidelog.spark.data_source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
