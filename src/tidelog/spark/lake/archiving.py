"""Topics into a lake, exactly once.

The lake itself knows how far each topic is archived (`coverage`), and a batch that it holds already
is not added again. So the checkpoint only saves Spark from planning anew: without it an archive
goes on where the lake ends.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.errors import OptionError
from tidelog.spark.lake.archive_commit import commit_archived, refuse_other_topics
from tidelog.spark.lake.archive_source import (
    NAME,
    ArchiveDataSource,
    target_options,
    written_range,
)
from tidelog.spark.lake.compaction import compact
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.layout import archive_layout
from tidelog.spark.lake.opening import open_or_create, open_table
from tidelog.spark.lake.query_run import starting, wait_for
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.table import OWN_FOLDER, Table
from tidelog.spark.lake.writing import DEFAULT_TARGET_FILE_BYTES
from tidelog.spark.offsets import EARLIEST, offsets_to_json
from tidelog.spark.runtime.python_daemon import quiet_this_worker
from tidelog.spark.runtime.session import session
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import parse_stream_options
from tidelog.spark.source.positions import beyond_ends
from tidelog.spark.source.subscribed_topics import SubscribedTopics

DEFAULT_OFFSETS_PER_BATCH = 1_000_000
DEFAULT_INTERVAL_S = 60.0
DEFAULT_COMPACT_EVERY = 20
DEFAULT_GRACE_S = 7 * 86_400.0

_MARKER = "tidelog-lake"

# Here, as the process that commits each micro-batch imports this.
quiet_this_worker()


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """How an archive is made.

    `compact_every` batches the small files are merged and what is older than `grace_s` and not
    needed is deleted; 0 leaves both to `compact`. `options` go to the source, such as kafka.*
    settings.
    """

    bootstrap: str
    format: str = "delta"
    partition_by: Sequence[str] = ("date",)
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES
    offsets_per_batch: int = DEFAULT_OFFSETS_PER_BATCH
    fail_on_data_loss: bool = True
    compact_every: int = DEFAULT_COMPACT_EVERY
    grace_s: float = DEFAULT_GRACE_S
    checkpoint: str | Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run added, and what the lake covers now: topic -> partition -> [start, end)."""

    records: int
    size_bytes: int
    coverage: Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Called by Spark on the driver for every micro-batch, with the rows of its tasks."""

    path: str
    target_file_bytes: int
    gaps_allowed: bool
    compact_every: int
    grace_s: float

    def __call__(self, written: DataFrame, batch_id: int) -> None:
        ranges = [written_range(row) for row in written.collect()]
        table = open_table(self.path)
        commit_archived(table, ranges, gaps_allowed=self.gaps_allowed)
        if self.compact_every and (batch_id + 1) % self.compact_every == 0:
            compact(table, self.target_file_bytes, spares_large=True)
            table.vacuum(self.grace_s)


def start_archive(
    spark: SparkSession,
    topics: Sequence[str],
    path: str | Path,
    settings: ArchiveSettings,
    *,
    interval_s: float | None = None,
) -> StreamingQuery:
    """Start the query of an archive: to the topics' ends as they are now, or for ever.

    With `interval_s` it looks for new records so often and never ends by itself.
    """
    table = open_or_create(path, settings.format, archive_layout(settings.partition_by))
    options = _source_options(topics, settings)
    tasks_min = _tasks_at_once(spark)
    if tasks_min is not None:
        options.setdefault("minPartitions", str(tasks_min))
    options["startingOffsets"] = _starting_offsets(table, options)
    checkpoint = Path(settings.checkpoint or _checkpoint(table, topics))
    bind_checkpoint(checkpoint, table)
    commit = CommitBatch(
        str(table.root),
        settings.target_file_bytes,
        not settings.fail_on_data_loss,
        settings.compact_every,
        settings.grace_s,
    )
    options |= target_options(
        table.root, table.target(settings.target_file_bytes), settings.partition_by
    )
    with starting(spark):
        spark.dataSource.register(ArchiveDataSource)
        written = spark.readStream.format(NAME).options(**options).load()
        writer = (
            written.writeStream.foreachBatch(commit)
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"archive {','.join(topics)}")
        )
        if interval_s is None:
            return writer.trigger(availableNow=True).start()
        pause_ms = max(0, round(interval_s * 1000))
        return writer.trigger(processingTime=f"{pause_ms} milliseconds").start()


def archive(
    topics: Sequence[str],
    path: str | Path,
    *,
    bootstrap: str,
    follow: bool = False,
    interval_s: float = DEFAULT_INTERVAL_S,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> ArchiveResult:
    """Archive topics up to their ends as they are now; with `follow`, until `is_stopping`.

    Every column of the source is kept, headers too, and those that name the folders are added.
    More settings are those of ArchiveSettings. Running it again adds what is new; running it after
    any crash adds what is missing, once. A crash may leave files that no table names: compaction
    removes them after its grace time. Without a session in `spark` one is made from `master` and
    `conf`.
    """
    made = ArchiveSettings(bootstrap, **settings)
    table = open_or_create(path, made.format, archive_layout(made.partition_by))
    before = _held(LakeTable(table.root), topics)
    used = spark or session("tidelog lake archive", master=master, conf=conf)
    query = start_archive(used, topics, table.root, made, interval_s=interval_s if follow else None)
    wait_for(query, is_stopping=is_stopping)
    lake = LakeTable(table.root)
    after = _held(lake, topics)
    coverage = {topic: lake.coverage(topic) for topic in topics}
    return ArchiveResult(after[0] - before[0], after[1] - before[1], coverage)


def bind_checkpoint(checkpoint: Path, table: Table) -> None:
    """Refuse a checkpoint that tells how far another lake is, and mark a new one as this lake's.

    The query would go on where that lake ends, and leave out what this one lacks.
    """
    if checkpoint.absolute().is_relative_to(table.root):
        return
    marker = checkpoint / _MARKER
    if not marker.exists() and not (checkpoint / "offsets").exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        marker.write_text(table.identity)
    if not marker.exists() or marker.read_text() != table.identity:
        raise OptionError(
            f"checkpoint: {checkpoint} is not of the lake at {table.root}. Give another folder, or "
            "remove it: the archive goes on where the lake ends"
        )


def _source_options(topics: Sequence[str], settings: ArchiveSettings) -> dict[str, str]:
    if not topics:
        raise OptionError("there is no topic to archive")
    return {
        **settings.options,
        "kafka.bootstrap.servers": settings.bootstrap,
        "subscribe": ",".join(topics),
        "failOnDataLoss": "true" if settings.fail_on_data_loss else "false",
        "maxOffsetsPerTrigger": str(settings.offsets_per_batch),
    }


def _starting_offsets(table: Table, options: Mapping[str, str]) -> str:
    """Where the lake ends, and the earliest where it does not begin yet."""
    subscribed = SubscribedTopics(parse_stream_options(options))
    names = subscribed.partitions()
    refuse_other_topics(table, table.snapshot(), subscribed.topic_ids)
    coverage = LakeLookup(str(table.root)).coverage(names)
    beyond = beyond_ends(subscribed, coverage, {})
    if beyond:
        raise LakeError(
            f"{'; '.join(beyond)}. The lake at {table.root} keeps what it has: archive the topic "
            "to another folder"
        )
    starts = {name: coverage[name][1] if name in coverage else EARLIEST for name in names}
    return json.dumps(offsets_to_json(starts))


def _checkpoint(table: Table, topics: Sequence[str]) -> Path:
    """One for each set of topics: their offsets are in it."""
    identity = hashlib.sha256("\n".join(sorted(topics)).encode()).hexdigest()[:16]
    return table.root / OWN_FOLDER / "checkpoints" / f"archive-{identity}"


def _held(lake: LakeTable, topics: Sequence[str]) -> tuple[int, int]:
    """Records and bytes of some topics in a lake."""
    files = [each for each in lake.snapshot.files if each.span and each.span.topic in topics]
    return sum(each.rows for each in files), sum(each.size_bytes for each in files)


def _tasks_at_once(spark: SparkSession) -> int | None:
    """How many tasks run side by side; Spark Connect does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        return None
