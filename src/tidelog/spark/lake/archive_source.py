"""The stream that an archive is: each task reads its range and writes it to the lake's files.

Spark plans the ranges, keeps the offsets and runs the tasks; the records themselves go from the
broker into Parquet within one Python process and never through the JVM. What a task gives to Spark
is one row that says which range it has written into which files; the driver commits those rows (see
`archive_commit`).
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark.lake.archive_commit import WrittenRange
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.holes import Hole
from tidelog.spark.lake.layout import archive_layout
from tidelog.spark.lake.writing import Target, write_all
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.fetching import OffsetsGone, TopicMadeAnew, read_range
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import SourceOptions, parse_stream_options
from tidelog.spark.source.range_partition import RangePartition, RangeReader
from tidelog.spark.source.stream_reader import Json, StreamReader

_log = logging.getLogger(__name__)

NAME = "tidelog-archive"

_LAKE = "archiveLake"
_FOLDER = "archiveFolder"
_IS_STAGING = "archiveIsStaging"
_PARTITION_BY = "archivePartitionBy"
_FILE_BYTES = "archiveFileBytes"
_OWN_OPTIONS = (_LAKE, _FOLDER, _IS_STAGING, _PARTITION_BY, _FILE_BYTES)

_SCHEMA = (
    "topic string, partition int, start long, end long, files string, topic_id binary, holes string"
)
_ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("files", pa.string()),
        ("topic_id", pa.binary()),
        ("holes", pa.string()),
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
        lake = LakeLookup(self.options[_LAKE])
        return ArchiveReader(parse_stream_options(given), _target(self.options), lake)


class ArchiveReader(StreamReader):
    """The source's stream, whose tasks write what they read."""

    def __init__(self, options: SourceOptions, target: Target, archived: LakeLookup) -> None:
        super().__init__(options, RangeReader(options, True, None))
        self._target = target
        self._archived = archived

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        # A batch of before a restart is planned without another question, and needs the ids too.
        self._topics.latest()
        return super().partitions(start, end)

    def _ranges_to_read(self, planned: list[OffsetRange]) -> list[OffsetRange]:
        """From where the lake ends, whatever the checkpoint says.

        It may be ahead if the topic was archived together with others meanwhile, and behind if it
        was brought back from a copy. The commit takes no other range, so tasks need not be the same
        when a batch is run again.
        """
        coverage = self._archived.coverage({each.name for each in planned})
        found = []
        for each in planned:
            start = coverage[each.name][1] if each.name in coverage else each.start
            if start < each.end:
                found.append(OffsetRange(each.topic, each.partition, start, each.end))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row about the range. Spark hands in a partition of its own if there is none."""
        if not isinstance(partition, RangePartition):
            return
        wanted = partition.range
        holes: list[Hole] = []
        files = write_all(self._target, self._records(partition, holes))
        text = msgspec.json.encode(files).decode()
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "topic": wanted.topic,
                    "partition": wanted.partition,
                    "start": wanted.start,
                    "end": wanted.end,
                    "files": text,
                    "topic_id": partition.topic_id,
                    "holes": msgspec.json.encode(holes).decode(),
                }
            ],
            _ARROW_SCHEMA,
        )

    def _records(self, partition: RangePartition, holes: list[Hole]) -> Iterator[pa.RecordBatch]:
        """The records of a range, all of them of one topic; takes note of what is lost of it.

        Another topic of the name is never gone on with, as it is elsewhere: its records would be
        committed as those of this one.
        """
        wanted = partition.range
        strict = replace(self._options.fetch_settings(include_headers=True), fail_on_data_loss=True)
        position = wanted.start
        while position < wanted.end:
            rest = OffsetRange(wanted.topic, wanted.partition, position, wanted.end)
            try:
                yield from read_range(strict, rest, partition.topic_id)
                return
            except OffsetsGone as gone:
                if self._options.fail_on_data_loss or isinstance(gone, TopicMadeAnew):
                    raise
                holes.append((gone.position, gone.resumes_at))
                position = gone.resumes_at
                _log.warning("%s; going on with what is there", gone.problem)


def target_options(root: Path, target: Target, partition_by: Sequence[str]) -> dict[str, str]:
    """A target as options: so tasks need not open the table, which takes them long to import."""
    return {
        _LAKE: str(root),
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
    return WrittenRange(
        wanted,
        tuple(msgspec.json.decode(row["files"], type=list[DataFile])),
        None if row["topic_id"] is None else bytes(row["topic_id"]),
        tuple(msgspec.json.decode(row["holes"], type=list[Hole])),
    )
