"""A lake's records as a stream that ends: what a replay reads."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.replay_plan import ReplayPlan, decode_plan
from tidelog.spark.offsets import OffsetRange, Offsets, offsets_from_json, offsets_to_json
from tidelog.spark.schema import spark_schema
from tidelog.spark.source.planning import limit_rate

NAME = "tidelog-replay"


class ReplayDataSource(DataSource):
    """Options: `plan`, a ReplayPlan as JSON, and `offsetsPerBatch`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(True)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        plan = decode_plan(self.options["plan"])
        return ReplayReader(plan, int(self.options["offsetsPerBatch"]))


class ReplayPartition(InputPartition):
    """One range of the lake. Ranges of one partition are in different batches, one after another:
    their order is kept."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.range = wanted


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Goes from the plan's first offsets to its last, and no further."""

    def __init__(self, plan: ReplayPlan, offsets_per_batch: int) -> None:
        self._plan = plan
        self._offsets_per_batch = offsets_per_batch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets_to_json(self._bound(0))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What there is, is what the plan says."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        end = limit_rate(offsets_from_json(start), self._bound(1), self._offsets_per_batch)
        return offsets_to_json(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets_to_json(self._bound(1))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = offsets_from_json(start), offsets_from_json(end)
        return [
            ReplayPartition(OffsetRange(name.topic, name.partition, first[name], last[name]))
            for name in sorted(last)
            if first[name] < last[name]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark hands in a partition of its own if there is none to read.
        if isinstance(partition, ReplayPartition):
            lake = LakeTable(self._plan.request.lake)
            yield from lake.read_range(partition.range, True, times=self._plan.times)

    def _bound(self, side: int) -> Offsets:
        topic = self._plan.request.topic
        return {
            TopicPartition(topic, partition): bounds[side]
            for partition, bounds in self._plan.ranges.items()
        }
