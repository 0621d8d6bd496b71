import pytest

from tidelog.cluster.settings.topic_config import (
    TOPIC_SETTINGS,
    to_log_config,
    validate_topic_config,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.log_config import LogConfig

KAFKA_4_NAMES = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


def test_every_setting_of_kafka_4_is_there_and_our_own() -> None:
    assert [setting.name for setting in TOPIC_SETTINGS] == sorted(
        [*KAFKA_4_NAMES, "durability", "record.validation.enable"]
    )
    assert all(setting.documentation for setting in TOPIC_SETTINGS)


def test_every_default_is_a_valid_value() -> None:
    for setting in TOPIC_SETTINGS:
        assert setting.default is not None
        setting.parse(setting.default)


def test_without_settings_a_log_has_its_own_defaults() -> None:
    assert to_log_config({}) == LogConfig()
    assert to_log_config({}) is to_log_config({}, {})


def test_settings_of_the_topic_stand_over_those_of_the_broker() -> None:
    broker = {
        "log.retention.hours": "2",
        "log.segment.bytes": "2000",
        "log.cleanup.policy": "compact",
        "message.max.bytes": "500",
        "log.roll.hours": "1",
        "durability": "page-cache",
        "producer.id.expiration.ms": "77",
        "compression.gzip.level": "2",
        "compression.zstd.level": "7",
    }
    topic = {
        "segment.bytes": "3000",
        "cleanup.policy": "compact, delete",
        "compression.gzip.level": "8",
    }
    config = to_log_config(topic, broker)
    assert config.retention_ms == 2 * 3600 * 1000
    assert config.segment_bytes == 3000
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.max_message_bytes == 500
    assert config.segment_ms == 3600 * 1000
    assert config.durability == "page-cache"
    assert config.producer_id_expiration_ms == 77
    assert (config.compression_gzip_level, config.compression_zstd_level) == (8, 7)


def test_of_several_broker_settings_the_finest_counts() -> None:
    broker = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert to_log_config({}, broker).retention_ms == 4
    del broker["log.retention.ms"]
    assert to_log_config({}, broker).retention_ms == 3 * 60 * 1000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "1_000"),
        ("retention.ms", ""),
        ("retention.ms", str(1 << 63)),
        ("segment.bytes", str(1 << 31)),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("message.timestamp.type", "createtime"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("durability", "maybe"),
        ("leader.replication.throttled.replicas", "0-1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ApiError, match=name.replace(".", r"\.")) as caught:
        validate_topic_config({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("preallocate", "TRUE"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", ""),
        ("compression.gzip.level", "-1"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", "*"),
        ("flush.messages", str((1 << 63) - 1)),
    ],
)
def test_what_kafka_takes_is_taken(name: str, value: str) -> None:
    assert name in validate_topic_config({name: value})


def test_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ApiError, match=r"min\.compaction\.lag\.ms \(9\) > max\.compaction"):
        validate_topic_config({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})


def test_an_unknown_name_far_from_any_is_only_unknown() -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_config({"zzz": "1"})
    assert caught.value.message == "Unknown topic config name: zzz"


def test_types_have_the_numbers_of_the_protocol() -> None:
    types = {setting.name: setting.type for setting in TOPIC_SETTINGS}
    assert int(types["cleanup.policy"]) == 7
    assert int(types["min.cleanable.dirty.ratio"]) == 6
    assert int(types["retention.ms"]) == 5
