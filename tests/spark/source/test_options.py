"""The options of the source: what they mean and how mistakes are told."""

import pytest

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import AtOffsets, AtTimestamp, AtTimestamps, Everywhere
from tidelog.spark.source.options import (
    SourceOptions,
    parse_batch_options,
    parse_source_options,
    parse_stream_options,
)

NEEDED = {"kafka.bootstrap.servers": "h:1,i:2", "subscribe": "orders"}


def parse(**options: str) -> SourceOptions:
    return parse_source_options({**NEEDED, **options})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse()
    assert options.batch_start == Everywhere(-2)
    assert options.batch_end == options.stream_start == Everywhere(-1)
    assert options.fail_on_data_loss
    assert options.max_trigger_delay_s == 15 * 60
    assert not options.include_headers
    assert options.min_partitions is None
    assert options.max_offsets_per_trigger is None
    assert options.group_id is None


def test_reading_is_committed_by_default() -> None:
    assert parse().read_committed
    assert not parse(**{"kafka.isolation.level": "read_uncommitted"}).read_committed


def test_names_are_taken_in_any_case() -> None:
    options = parse(STARTINGOFFSETS="Earliest", MaxOffsetsPerTrigger="7")
    assert options.start == Everywhere(-2)
    assert options.max_offsets_per_trigger == 7


def test_a_timestamp_goes_before_timestamps_before_offsets() -> None:
    by_partition = '{"orders": {"0": 9}}'
    everything = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": by_partition,
        "startingOffsets": by_partition,
    }
    assert parse(**everything).start == AtTimestamp(5)
    del everything["startingTimestamp"]
    assert parse(**everything).start == AtTimestamps({TopicPartition("orders", 0): 9})
    del everything["startingOffsetsByTimestamp"]
    assert parse(**everything).start == AtOffsets({TopicPartition("orders", 0): 9})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("10s", 10), ("500ms", 0.5), ("2h", 7200), ("1d", 86400), ("1500", 1.5)],
)
def test_durations_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_client_settings_reach_the_fetch() -> None:
    options = parse(
        **{
            "kafka.client.id": "me",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.fetch.max.bytes": "5000",
            "kafkaConsumer.pollTimeoutMs": "2500",
            "failOnDataLoss": "false",
        }
    )
    settings = options.fetch_settings(include_headers=True)
    assert settings.bootstrap == "h:1,i:2"
    assert settings.client_id == "me"
    assert settings.max_bytes == 1000
    assert settings.timeout_s == 2.5
    assert settings.include_headers
    assert not settings.fail_on_data_loss
    assert not options.fetch_settings().include_headers
    assert parse(groupIdPrefix="mine").fetch_settings().client_id == "mine"


def test_offsets_may_be_asked_for_again_at_once() -> None:
    assert parse(**{"fetchOffset.retryIntervalMs": "0"}).offset_retry_interval_s == 0
    with pytest.raises(OptionError, match="retryIntervalMs='-1' is no whole number from 0"):
        parse(**{"fetchOffset.retryIntervalMs": "-1"})


def test_settings_of_kafka_without_a_use_are_accepted() -> None:
    parse(
        **{
            "kafka.group.id": "g",
            "kafka.session.timeout.ms": "1",
            "kafka.ssl.truststore.location": "/x",
            "kafka.security.protocol": "plaintext",
        }
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("maxOfsetsPerTrigger", "1", "maxofsetspertrigger is unknown; did you mean maxOffsetsPer"),
        ("kafka.bootstrap.server", "h:1", "did you mean kafka.bootstrap.servers"),
        ("valueFormatt", "json", "did you mean valueformat"),
        ("zzz", "1", "option zzz is unknown"),
        ("kafka.bootstrap.servers", "h", "'h' is not HOST:PORT"),
        ("startingOffsets", "first", "startingOffsets='first'"),
        ("startingTimestamp", "noon", "startingTimestamp='noon'"),
        ("startingTimestamp", "9" * 19, f"startingTimestamp='{'9' * 19}' is above"),
        ("startingTimestamp", "9" * 40, f"startingTimestamp='{'9' * 40}' is above"),
        ("startingOffsets", f'{{"t": {{"0": {2**63}}}}}', f"startingOffsets=.*{2**63} for t-0"),
        ("kafka.fetch.max.bytes", str(2**31), "kafka.fetch.max.bytes='2147483648' is above"),
        ("startingOffsetsByTimestampStrategy", "guess", "'guess' is none of error, latest"),
        ("failOnDataLoss", "maybe", "failOnDataLoss='maybe' is none of true, false"),
        ("minPartitions", "0", "minPartitions='0' is no whole number from 1"),
        ("maxRecordsPerPartition", "1.5", "maxRecordsPerPartition='1.5'"),
        ("maxTriggerDelay", "soon", "maxTriggerDelay='soon' is no duration"),
        ("maxTriggerDelay", "9" * 5000, "is no duration"),
        ("minPartitions", "9" * 5000, "is no whole number"),
        ("groupId", " ", "groupId is empty"),
        ("kafka.isolation.level", "dirty", "kafka.isolation.level='dirty'"),
        ("kafka.auto.offset.reset", "earliest", "kafka.auto.offset.reset is not supported"),
        ("kafka.enable.auto.commit", "true", "kafka.enable.auto.commit is not supported"),
        ("kafka.key.deserializer", "x", "kafka.key.deserializer is not supported"),
        ("kafka.security.protocol", "SASL_SSL", "only PLAINTEXT"),
    ],
)
def test_a_mistake_is_named(name: str, value: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse(**{name: value})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is needed"):
        parse_source_options({"subscribe": "a"})
    with pytest.raises(OptionError, match="subscribe, subscribePattern, assign"):
        parse_source_options({"kafka.bootstrap.servers": "h:1"})


def test_the_least_of_a_trigger_is_not_above_the_most() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger=9"):
        parse(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at the earliest"),
        (
            {
                "startingOffsets": '{"orders": {"0": 5}}',
                "endingOffsets": '{"orders": {"1": 5}}',
            },
            "orders-0, orders-1",
        ),
        (
            {
                "startingOffsets": '{"orders": {"0": 6}}',
                "endingOffsets": '{"orders": {"0": 5}}',
            },
            "orders-0 starts at 6",
        ),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, "after endingTimestamp=5"),
        ({"groupId": "g"}, "groupId does not fit here"),
    ],
)
def test_batch_queries_have_rules_of_their_own(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_batch_options({**NEEDED, **options})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streaming_queries_have_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"orders": {"0": 5}}')
    with pytest.raises(OptionError, match=f"{name} does not fit here"):
        parse_stream_options({**NEEDED, name: value})


def test_streaming_options_do_not_disturb_batch_queries() -> None:
    parse_batch_options({**NEEDED, "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"})
