"""The stream that an archive is: each task reads its range and writes it to the lake's files.

Spark plans the ranges, keeps the offsets and runs the tasks; the records themselves go from the
broker into Parquet within one Python process and never through the JVM. What a task gives to Spark
is one row that says which range it has written into which files; the driver commits those rows (see
`archive_commit`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark.lake.archive_commit import WrittenRange
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.layout import archive_layout
from tidelog.spark.lake.writing import Target, write_all
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import SourceOptions, parse_stream_options
from tidelog.spark.range_partition import RangePartition, RangeReader
from tidelog.spark.stream_reader import StreamReader

NAME = "tidelog-archive"

_FOLDER = "archiveFolder"
_IS_STAGING = "archiveIsStaging"
_PARTITION_BY = "archivePartitionBy"
_FILE_BYTES = "archiveFileBytes"
_OWN_OPTIONS = (_FOLDER, _IS_STAGING, _PARTITION_BY, _FILE_BYTES)

_SCHEMA = "topic string, partition int, start long, end long, files string"
_ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("files", pa.string()),
    ]
)


class ArchiveDataSource(DataSource):
    """Options: those of the source, and where files go (`target_options`)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        own = {name.lower() for name in _OWN_OPTIONS}
        given = {name: each for name, each in self.options.items() if name.lower() not in own}
        return ArchiveReader(parse_stream_options(given), _target(self.options))


class ArchiveReader(StreamReader):
    """The source's stream, whose tasks write what they read."""

    def __init__(self, options: SourceOptions, target: Target) -> None:
        super().__init__(options, RangeReader(options, True, None))
        self._target = target

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row about the range. Spark hands in a partition of its own if there is none."""
        if not isinstance(partition, RangePartition):
            return
        wanted = partition.range
        files = write_all(self._target, super().read(partition))
        text = msgspec.json.encode(files).decode()
        columns = [[wanted.topic], [wanted.partition], [wanted.start], [wanted.end], [text]]
        yield pa.record_batch(
            [
                pa.array(each, field.type)
                for each, field in zip(columns, _ARROW_SCHEMA, strict=True)
            ],
            schema=_ARROW_SCHEMA,
        )


def target_options(target: Target, partition_by: Sequence[str]) -> dict[str, str]:
    """A target as options: so tasks need not open the table, which takes them long to import."""
    return {
        _FOLDER: str(target.folder),
        _IS_STAGING: json.dumps(target.is_staging),
        _PARTITION_BY: json.dumps(list(partition_by)),
        _FILE_BYTES: str(target.target_file_bytes),
    }


def _target(options: Mapping[str, str]) -> Target:
    return Target(
        Path(options[_FOLDER]),
        json.loads(options[_IS_STAGING]),
        archive_layout(json.loads(options[_PARTITION_BY])),
        int(options[_FILE_BYTES]),
    )


def written_range(row: Row) -> WrittenRange:
    """What a task's row says."""
    wanted = OffsetRange(row["topic"], row["partition"], row["start"], row["end"])
    return WrittenRange(wanted, tuple(msgspec.json.decode(row["files"], type=list[DataFile])))
