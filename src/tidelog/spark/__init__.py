"""Tidelog on Spark: a source and a sink for `format("tidelog")`, and a session that just works.

    import tidelog.spark

    spark = tidelog.spark.session()
    orders = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )

The source is found by its name in any session of PySpark that starts a Python with this package:
`session()` sees to that, otherwise `PYSPARK_PYTHON` names it. An import leaves that as it is: it is
also the Python of the user's own functions, on machines that may not have the one of this process.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.spark.errors import DataLossError, OptionError, SparkError
from tidelog.spark.runtime.session import session

# Not when it is asked for like the rest: the module of the same name would stand in its place.
from tidelog.spark.source.group_listener import commit_group_offsets

if TYPE_CHECKING:
    from tidelog.spark.data_source import TidelogDataSource
    from tidelog.spark.pipeline import Pipeline, PipelineError

__all__ = [
    "DataLossError",
    "OptionError",
    "Pipeline",
    "PipelineError",
    "SparkError",
    "TidelogDataSource",
    "commit_group_offsets",
    "session",
]

# Imported when they are asked for: most need PySpark, and a worker needs few of them.
_PLACES = {
    "Pipeline": "tidelog.spark.pipeline",
    "PipelineError": "tidelog.spark.pipeline",
    "TidelogDataSource": "tidelog.spark.data_source",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(place), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in {"pyspark", "pyarrow", "py4j"}:
            raise
        raise SparkError(
            f'tidelog.spark.{name} needs {error.name}: pip install "tidelog[spark]"'
        ) from error
