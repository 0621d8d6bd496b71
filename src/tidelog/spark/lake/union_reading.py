"""A task that reads lake and broker as one, while the archive and the retention go on.

What the lake held when the range was planned is read there and the rest from the broker. Offsets
that the broker has deleted since then may have been archived before: so the lake is looked at anew,
and only what neither has is lost.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.union import Coverage, split_with_lake
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.fetching import OffsetsGone, TopicMadeAnew, read_range
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.range_partition import report_losses
from tidelog.spark.source.topic_identity import is_other_topic

_log = logging.getLogger(__name__)


def read_lake_and_broker(
    options: SourceOptions,
    wanted: OffsetRange,
    covered: Coverage,
    topic_id: bytes | None = None,
    *,
    include_headers: bool,
) -> Iterator[pa.RecordBatch]:
    """The records of a range in the order of their offsets; `covered` is what the lake held."""
    assert options.lake is not None
    settings = options.fetch_settings(include_headers=include_headers)
    settings = replace(settings, fail_on_data_loss=True)
    position = wanted.start
    while position < wanted.end:
        rest = OffsetRange(wanted.topic, wanted.partition, position, wanted.end)
        where, piece = split_with_lake(rest, covered)[0]
        if where == "lake":
            lake = LakeTable(options.lake)
            report_losses(lake.losses(piece), fails=options.fail_on_data_loss)
            yield from lake.read_range(piece, include_headers)
            position = piece.end
            continue
        try:
            yield from read_range(settings, piece, topic_id)
            position = piece.end
        except OffsetsGone as gone:
            covered = _coverage(options.lake, wanted, topic_id)
            position = gone.position
            start, end = covered or (wanted.end, wanted.end)
            if start <= position < end:
                continue
            if options.fail_on_data_loss:
                raise
            _log.warning("%s; going on with what is there", gone.problem)
            if isinstance(gone, TopicMadeAnew):
                topic_id = None
            # What lies between is not lost if the lake has it.
            position = min(gone.resumes_at, start) if position < start else gone.resumes_at


def _coverage(path: str, wanted: OffsetRange, topic_id: bytes | None) -> Coverage:
    lake = LakeTable(path)
    if is_other_topic(lake.topic_id(wanted.topic), topic_id):
        return None
    return lake.coverage(wanted.topic).get(wanted.partition)
