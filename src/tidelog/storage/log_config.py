"""The settings of one log, with Kafka's meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass

LONG_MAX = (1 << 63) - 1
# As in Kafka, these stand for what a codec does without a level: for lz4 that is its fast way and
# not the ninth level of its thorough one.
GZIP_LEVEL_DEFAULT = -1
LZ4_LEVEL_DEFAULT = 9
ZSTD_LEVEL_DEFAULT = 3


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings as its logs use them (made from names in
    `cluster/settings/topic_config.py`).

    -1 in the retention limits means no limit.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    max_message_bytes: int = 1024 * 1024 + 12
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = GZIP_LEVEL_DEFAULT
    compression_lz4_level: int = LZ4_LEVEL_DEFAULT
    compression_zstd_level: int = ZSTD_LEVEL_DEFAULT
    min_insync_replicas: int = 1
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    durability: str = "fsync"
    record_validation_enable: bool = False
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def compression_level(self) -> int | None:
        """The level for the topic's own compression; None is the codec's default."""
        level, default = {
            "gzip": (self.compression_gzip_level, GZIP_LEVEL_DEFAULT),
            "lz4": (self.compression_lz4_level, LZ4_LEVEL_DEFAULT),
            "zstd": (self.compression_zstd_level, ZSTD_LEVEL_DEFAULT),
        }.get(self.compression_type, (None, None))
        return None if level == default else level

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment may be active. It is not cleaned meanwhile, which must not take longer
        than the time until cleaning."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def has_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def deletes_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy
