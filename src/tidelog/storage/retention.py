"""Which of a log's oldest segments its settings no longer keep."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import Segment


def count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> int:
    """How many segments, counted from the oldest, may go.

    A segment goes when it is older than retention.ms, or beyond retention.bytes, or wholly below
    the log start; never when it holds records that are not committed, and never the last one while
    it is empty. All segments may go: then the log rolls first.
    """
    candidates = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[index + 1].base_offset
        if end_offset > high_watermark or (is_last and not segment.size_bytes):
            break
        candidates += 1

    count = 0
    if config.deletes_by_retention:
        if config.retention_ms >= 0:
            while (
                count < candidates
                and now_ms - segments[count].newest_timestamp_ms > config.retention_ms
            ):
                count += 1
        if config.retention_bytes >= 0:
            kept_bytes = sum(segment.size_bytes for segment in segments[count:])
            while (
                count < candidates
                and kept_bytes - segments[count].size_bytes >= config.retention_bytes
            ):
                kept_bytes -= segments[count].size_bytes
                count += 1
    while (
        count < candidates
        and count + 1 < len(segments)
        and segments[count + 1].base_offset <= log_start_offset
    ):
        count += 1
    return count
