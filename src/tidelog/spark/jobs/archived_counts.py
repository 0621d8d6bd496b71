"""Whether an archive still has as many records as were archived."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ArchivedCount:
    """How many records of the offsets `[start, end)` were archived, and how many are there."""

    topic: str
    partition: int
    start: int
    end: int
    archived: int
    found: int = 0

    def problems(self) -> list[str]:
        """In words, what must not be."""
        if self.found == self.archived:
            return []
        return [
            f"{self.topic}-{self.partition}: {self.archived} records were archived from offset "
            f"{self.start} to {self.end}, and {self.found} are there"
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start_offset": self.start,
            "end_offset": self.end,
            "archived": self.archived,
            "found": self.found,
        }


def count_records(
    rows: DataFrame, expected: Mapping[TopicPartition, ArchivedCount]
) -> tuple[ArchivedCount, ...]:
    """What is expected with what is found; only topics, partitions and offsets are read."""
    if not expected:
        return ()
    spans = rows.sparkSession.createDataFrame(
        [(*name, each.start, each.end) for name, each in expected.items()],
        "topic string, partition int, start long, end long",
    )
    counted = (
        rows.select("topic", "partition", "offset")
        .join(F.broadcast(spans), ["topic", "partition"])
        .where((F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("end")))
        .groupBy("topic", "partition")
        .count()
        .collect()
    )
    found = {TopicPartition(row.topic, row.partition): row["count"] for row in counted}
    return tuple(replace(each, found=found.get(name, 0)) for name, each in sorted(expected.items()))
