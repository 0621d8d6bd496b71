"""Topics kept in tables: archive, replay, compaction, and reading lake and broker as one.

    from tidelog.spark import lake

    lake.archive(["orders"], "/data/lake", bootstrap="localhost:9092")
    lake.read(spark, "/data/lake").where("date = '2026-11-05'").count()
    lake.replay("/data/lake", topic="orders", to_topic="again", bootstrap="localhost:9092")

A lake is a folder that the driver and all executors reach under the same path.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.spark.errors import SparkError

if TYPE_CHECKING:
    from tidelog.spark.lake.archiving import (
        ArchiveResult,
        ArchiveSettings,
        archive,
        start_archive,
    )
    from tidelog.spark.lake.compaction import CompactionResult, compact
    from tidelog.spark.lake.data_frame import read
    from tidelog.spark.lake.description import describe
    from tidelog.spark.lake.errors import LakeError
    from tidelog.spark.lake.opening import open_table
    from tidelog.spark.lake.reading import LakeTable
    from tidelog.spark.lake.replaying import ReplayResult, replay
    from tidelog.spark.lake.sink import LakeDataSource

__all__ = [
    "ArchiveResult",
    "ArchiveSettings",
    "CompactionResult",
    "LakeDataSource",
    "LakeError",
    "LakeTable",
    "ReplayResult",
    "archive",
    "compact",
    "describe",
    "open_table",
    "read",
    "replay",
    "start_archive",
]

# Imported when they are asked for: a task that reads a lake needs no more than LakeTable.
_PLACES = {
    "ArchiveResult": "archiving",
    "ArchiveSettings": "archiving",
    "CompactionResult": "compaction",
    "LakeDataSource": "sink",
    "LakeError": "errors",
    "LakeTable": "reading",
    "ReplayResult": "replaying",
    "archive": "archiving",
    "compact": "compaction",
    "describe": "description",
    "open_table": "opening",
    "read": "data_frame",
    "replay": "replaying",
    "start_archive": "archiving",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{place}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "tidelog":
            raise
        raise SparkError(
            f'tidelog.spark.lake.{name} needs {error.name}: pip install "tidelog[spark]"'
        ) from error
