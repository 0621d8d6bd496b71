"""Bring archived records back into a topic, once, in their order."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.lake.bounds import Bound
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.query_run import starting, wait_for
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.replay_plan import (
    ReplayPlan,
    encode_plan,
    kept_plan,
    make_request,
    plan_replay,
)
from tidelog.spark.lake.replay_source import NAME, ReplayDataSource
from tidelog.spark.lake.table import OWN_FOLDER
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.runtime.session import session
from tidelog.spark.source.options import parse_source_options
from tidelog.spark.source.subscribed_topics import SubscribedTopics

DEFAULT_OFFSETS_PER_BATCH = 500_000

_HEADERS = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a run of a replay sent; a run that finds everything sent already sends nothing.

    `losses` says what the ranges do not have, as brokers had lost it before it was archived.
    """

    replay_id: str
    records: int
    ranges: Mapping[int, tuple[int, int]]
    losses: tuple[str, ...]


def replay(
    path: str | Path,
    *,
    topic: str,
    to_topic: str,
    bootstrap: str,
    start: Bound | None = None,
    end: Bound | None = None,
    partitions: str = "same",
    timestamp_header: str | None = None,
    replay_id: str | None = None,
    checkpoint: str | Path | None = None,
    offsets_per_batch: int = DEFAULT_OFFSETS_PER_BATCH,
    fail_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> ReplayResult:
    """Send records of an archive to a topic: from `start` up to and without `end`.

    Bounds are offsets or moments. With partitions="same" a record goes to the partition it came
    from, in the order of offsets; with "by-key" the sink's partitioner chooses, and the order of
    each key is kept if it was in one partition. Keys, values and headers stay as they were;
    `timestamp_header` names a header that takes the old timestamp in milliseconds.

    A replay that was cut off goes on with the same `replay_id`, and one that is done sends nothing
    more: exactly once, as long as its checkpoint is kept. By default that is in the lake. Offsets
    that brokers had lost before they were archived are a DataLossError, unless `fail_on_data_loss`
    is off. `options` go to the sink, such as kafka.compression.type. Without a session in `spark`
    one is made from `master` and `conf`.
    """
    lake = LakeTable(path)
    request = make_request(
        lake,
        topic,
        to_topic,
        start=start,
        end=end,
        partitions=partitions,
        timestamp_header=timestamp_header,
    )
    plan = plan_replay(request, lake.coverage(topic), start, end)
    _check_partitions(plan, bootstrap)
    name = replay_id or uuid.uuid4().hex
    if not name or "/" in name or name.startswith("."):
        raise OptionError(f"replay-id: {name!r} cannot be the name of a folder")
    folder = Path(checkpoint or lake.table.root / OWN_FOLDER / "replays") / name
    plan = kept_plan(folder, plan)
    losses = _losses(lake, plan)
    if losses and fail_on_data_loss:
        raise DataLossError(
            f"{'; '.join(losses)}. With --allow-data-loss (fail_on_data_loss=False) the rest is "
            "replayed"
        )
    spark = spark or session("tidelog lake replay", master=master, conf=conf)
    with starting(spark):
        query = _start(spark, plan, bootstrap, folder, offsets_per_batch, options or {})
    counts: dict[int, int] = {}

    def count() -> None:
        for progress in query.recentProgress:
            counts[progress.batchId] = progress.numInputRows

    wait_for(query, on_poll=count)
    count()
    return ReplayResult(name, sum(counts.values()), plan.ranges, tuple(losses))


def _losses(lake: LakeTable, plan: ReplayPlan) -> list[str]:
    topic = plan.request.topic
    return [
        loss
        for partition, (first, last) in sorted(plan.ranges.items())
        for loss in lake.losses(OffsetRange(topic, partition, first, last))
    ]


def _start(
    spark: SparkSession,
    plan: ReplayPlan,
    bootstrap: str,
    folder: Path,
    offsets_per_batch: int,
    options: Mapping[str, str],
) -> StreamingQuery:
    spark.dataSource.register(ReplayDataSource)
    rows = (
        spark.readStream.format(NAME)
        .option("plan", encode_plan(plan))
        .option("offsetsPerBatch", offsets_per_batch)
        .load()
    )
    where = {"kafka.bootstrap.servers": bootstrap, "topic": plan.request.to_topic}
    return (
        _to_send(rows, plan)
        .writeStream.format("tidelog")
        .options(**{**options, **where})
        .option("checkpointLocation", str(folder / "checkpoint"))
        .queryName(f"replay {folder.name}")
        .trigger(availableNow=True)
        .start()
    )


def _to_send(rows: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The sink's columns."""
    headers = sql.col("headers")
    if plan.request.timestamp_header is not None:
        added = sql.struct(
            sql.lit(plan.request.timestamp_header).alias("key"),
            sql.unix_millis("timestamp").cast("string").cast("binary").alias("value"),
        )
        headers = sql.concat(sql.coalesce(headers, sql.array().cast(_HEADERS)), sql.array(added))
    columns = [sql.col("key"), sql.col("value"), headers.alias("headers")]
    if plan.request.partitions == "same":
        columns.append(sql.col("partition"))
    return rows.select(columns)


def _check_partitions(plan: ReplayPlan, bootstrap: str) -> None:
    """OptionError before Spark starts, rather than a failed query after it."""
    to_topic = plan.request.to_topic
    asked = parse_source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": to_topic})
    there = {each.partition for each in SubscribedTopics(asked).partitions()}
    needed = {partition for partition, (first, last) in plan.ranges.items() if first < last}
    if plan.request.partitions == "same" and not needed <= there:
        raise LakeError(
            f"{to_topic} has {len(there)} partitions, and {plan.request.topic} has records up to "
            f"partition {max(needed)} in the lake: give it more, or replay with partitions by-key"
        )
