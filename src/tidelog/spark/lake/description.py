"""What is in a lake, for people and for programs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidelog.spark.lake.coverage import covered
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.holes import kept_holes
from tidelog.spark.lake.opening import open_table


def describe(path: str | Path) -> dict[str, Any]:
    """The format, folders, files and sizes of a lake, and of an archive its coverage."""
    table = open_table(path)
    snapshot = table.snapshot()
    by_topic: dict[str, list[DataFile]] = defaultdict(list)
    for file in snapshot.files:
        if file.span is not None:
            by_topic[file.span.topic].append(file)
    return {
        "path": str(table.root),
        "format": table.format,
        "is_archive": table.layout.is_archive,
        "partition_by": list(table.layout.partition_columns),
        "version": snapshot.version,
        **_totals(snapshot.files),
        "topics": [
            {
                "topic": topic,
                **_totals(files),
                "partitions": [
                    {
                        "partition": partition,
                        "start_offset": start,
                        "end_offset": end,
                        "holes": [
                            {"start_offset": first, "end_offset": last}
                            for first, last in kept_holes(topic, partition, snapshot.transaction)
                        ],
                    }
                    for partition, (start, end) in covered(topic, snapshot.transaction).items()
                ],
            }
            for topic, files in sorted(by_topic.items())
        ],
    }


def _totals(files: Sequence[DataFile]) -> dict[str, int]:
    sizes = [file.size_bytes for file in files]
    return {
        "files": len(sizes),
        "records": sum(file.rows for file in files),
        "size_bytes": sum(sizes),
        "largest_file_bytes": max(sizes, default=0),
    }
