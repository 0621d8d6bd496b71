"""Subscriptions of client metrics and what is refused of pushes."""

import zlib
from random import Random

import pytest

from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.server.client_metrics import (
    TELEMETRY_BYTES_MAX,
    ClientInstance,
    ClientMetrics,
    ClientTraits,
)

TRAITS = ClientTraits("app-1", "librdkafka", "2.6.0", "127.0.0.1", "50000")
INTERVAL_MS = 10_000

Configs = dict[ConfigResource, dict[str, str]]


def subscription(name: str = "s", **settings: str) -> Configs:
    values = {key.replace("_", "."): value for key, value in settings.items()}
    return {ConfigResource(ConfigResourceType.CLIENT_METRICS, name): values}


ALL = subscription(metrics="*", interval_ms=str(INTERVAL_MS))


def push(
    metrics: ClientMetrics,
    instance_id: bytes,
    instance: ClientInstance,
    now_ms: int,
    *,
    payload: bytes = b"",
    compression: int = 0,
    terminating: bool = False,
    configs: Configs = ALL,
) -> None:
    metrics.push(
        instance_id,
        TRAITS,
        configs,
        now_ms,
        subscription_id=instance.subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=payload,
    )


def refusal(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return error.value.code


def test_a_client_without_an_id_gets_one_and_without_subscriptions_pushes_nothing() -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, {}, 0)
    assert instance_id != ZERO_UUID
    assert instance.metrics == ()
    assert instance.push_interval_ms == 300_000


def test_subscriptions_are_joined_and_the_shortest_interval_counts() -> None:
    configs = subscription("a", metrics="org.apache.kafka.producer.", interval_ms="5000")
    configs |= subscription("b", metrics="org.apache.kafka.consumer.", interval_ms="9000")
    _, instance = ClientMetrics(Random(1)).subscribe(ZERO_UUID, TRAITS, configs, 0)
    assert instance.metrics == ("org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    assert instance.push_interval_ms == 5000


def test_all_metrics_stand_for_every_prefix() -> None:
    configs = ALL | subscription("b", metrics="org.apache.kafka.consumer.")
    _, instance = ClientMetrics(Random(1)).subscribe(ZERO_UUID, TRAITS, configs, 0)
    assert instance.metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "chosen"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=(a+|p+)+(-+)+[0-9]", True),
        ("client_id=(?=app).*", False),
        ("client_software_name=librdkafka,client_source_address=127.*", True),
        ("client_software_name=librdkafka,client_source_port=1", False),
    ],
)
def test_patterns_choose_clients(match: str, chosen: bool) -> None:
    _, instance = ClientMetrics(Random(1)).subscribe(
        ZERO_UUID, TRAITS, subscription(metrics="*", match=match), 0
    )
    assert (instance.metrics == ("*",)) is chosen


def test_asking_and_pushing_again_has_to_wait_for_the_interval() -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, ALL, 0)
    with pytest.raises(ApiError) as error:
        metrics.subscribe(instance_id, TRAITS, ALL, INTERVAL_MS - 1)
    assert refusal(error) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    push(metrics, instance_id, instance, 5)
    with pytest.raises(ApiError) as error:
        push(metrics, instance_id, instance, 6)
    assert refusal(error) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    push(metrics, instance_id, instance, 5 + INTERVAL_MS)


def test_the_last_push_comes_at_any_time_and_is_the_last() -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, ALL, 0)
    push(metrics, instance_id, instance, 5)
    push(metrics, instance_id, instance, 6, terminating=True)
    with pytest.raises(ApiError) as error:
        push(metrics, instance_id, instance, 7, terminating=True)
    assert refusal(error) is ErrorCode.INVALID_REQUEST


def test_changed_subscriptions_make_the_client_ask_again() -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, ALL, 0)
    changed = subscription(metrics="x", interval_ms=str(INTERVAL_MS))
    with pytest.raises(ApiError) as error:
        push(metrics, instance_id, instance, INTERVAL_MS, configs=changed)
    assert refusal(error) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, renewed = metrics.subscribe(instance_id, TRAITS, changed, INTERVAL_MS + 1)
    assert renewed.metrics == ("x",)
    push(metrics, instance_id, renewed, INTERVAL_MS + 2, configs=changed)


@pytest.mark.parametrize("codec", list(Compression))
def test_pushed_metrics_are_counted(codec: Compression) -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, ALL, 0)
    payload = b"otlp" * 100
    packed = payload if codec is Compression.NONE else compress(codec, payload)
    push(metrics, instance_id, instance, 1, payload=packed, compression=codec)
    assert (metrics.pushes, metrics.pushed_bytes) == (1, len(packed))


@pytest.mark.parametrize(
    ("payload", "compression", "expected"),
    [
        (bytes(TELEMETRY_BYTES_MAX + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"not compressed", Compression.ZSTD, ErrorCode.INVALID_RECORD),
        (
            zlib.compress(bytes(64 * 1024 * 1024), wbits=31),
            Compression.GZIP,
            ErrorCode.INVALID_RECORD,
        ),
    ],
    ids=["too large", "unknown codec", "garbage", "bomb"],
)
def test_wrong_metrics_are_refused(payload: bytes, compression: int, expected: ErrorCode) -> None:
    metrics = ClientMetrics(Random(1))
    instance_id, instance = metrics.subscribe(ZERO_UUID, TRAITS, ALL, 0)
    with pytest.raises(ApiError) as error:
        push(metrics, instance_id, instance, 1, payload=payload, compression=compression)
    assert refusal(error) is expected
    assert metrics.pushes == 0


@pytest.mark.parametrize("instance_id", [ZERO_UUID, bytes(15) + b"\x01"])
def test_reserved_ids_cannot_push(instance_id: bytes) -> None:
    with pytest.raises(ApiError) as error:
        push(ClientMetrics(Random(1)), instance_id, ClientInstance(0, (), 1), 0)
    assert refusal(error) is ErrorCode.INVALID_REQUEST
