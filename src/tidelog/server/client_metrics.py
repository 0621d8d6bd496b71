"""Metrics that clients push (KIP-714): who shall push what, and what has arrived.

An administrator makes subscriptions (settings of client-metrics resources): metric prefixes, an
interval, and patterns that choose clients. A client asks for its subscription, gets an id for it,
and pushes under that id until the subscriptions change; then its next push is refused and it asks
again. Arrived metrics are checked and counted.

Patterns are matched in linear time, so that no pattern stalls the node; one that uses more than
regular expressions have (look-around, back-references) chooses no client.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.cluster.settings.client_metrics_config import CLIENT_METRICS_SETTINGS, parse_match
from tidelog.coordinator.regex import InvalidRegex, Regex
from tidelog.protocol.compression import Compression, decompress
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID, format_uuid, random_uuid

TELEMETRY_BYTES_MAX = 1024 * 1024
ACCEPTED_COMPRESSION_TYPES = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)
_DECOMPRESSED_TIMES_MAX = 16
_ALL_METRICS = "*"
_INSTANCES_MAX = 16_384
_ASK_AGAIN_ERRORS = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_RESERVED_IDS = (ZERO_UUID, bytes(15) + b"\x01")

_Configs = Mapping[ConfigResource, Mapping[str, str]]


@dataclass(slots=True, frozen=True)
class ClientTraits:
    """What the patterns of a subscription can choose a client by."""

    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(slots=True, frozen=True)
class _Subscription:
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]  # patterns by trait

    def chooses(self, instance_id: str, traits: ClientTraits) -> bool:
        return all(
            _matches(
                pattern,
                instance_id if trait == "client_instance_id" else str(getattr(traits, trait)),
            )
            for trait, pattern in self.match.items()
        )


def _matches(pattern: str, text: str) -> bool:
    try:
        return Regex(pattern).matches(text)
    except InvalidRegex:
        return False


class ClientInstance:
    """One client and its subscription."""

    __slots__ = (
        "last_asked_ms",
        "last_error",
        "last_pushed_ms",
        "metrics",
        "push_interval_ms",
        "subscription_id",
        "terminating",
    )

    def __init__(self, subscription_id: int, metrics: tuple[str, ...], push_interval_ms: int):
        self.subscription_id = subscription_id
        self.metrics = metrics
        self.push_interval_ms = push_interval_ms
        self.last_asked_ms: int | None = None
        self.last_pushed_ms: int | None = None
        self.last_error = ErrorCode.NONE
        self.terminating = False

    def may_ask(self, now_ms: int) -> bool:
        """Once in an interval, or when the last answer told the client to ask again."""
        return self._is_due(now_ms) or self.last_error in _ASK_AGAIN_ERRORS

    def may_push(self, now_ms: int) -> bool:
        """Once in an interval; the first time after asking at any moment."""
        pushed_ms, asked_ms = self.last_pushed_ms, self.last_asked_ms
        if asked_ms is not None and (pushed_ms is None or asked_ms > pushed_ms):
            return True
        return self._is_due(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        times_ms = [at for at in (self.last_asked_ms, self.last_pushed_ms) if at is not None]
        return not times_ms or now_ms - max(times_ms) >= self.push_interval_ms


class ClientMetrics:
    """The client instances this node knows. Bounded: the one unused for longest is forgotten."""

    def __init__(self, random: Random, bytes_max: int = TELEMETRY_BYTES_MAX) -> None:
        self._random = random
        self.bytes_max = bytes_max
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._configs: _Configs | None = None
        self._subscriptions: tuple[_Subscription, ...] = ()
        self.pushes = 0
        self.pushed_bytes = 0

    def subscribe(
        self, instance_id: bytes, traits: ClientTraits, configs: _Configs, now_ms: int
    ) -> tuple[bytes, ClientInstance]:
        """The subscription of a client, which gets an id if it has none yet."""
        if instance_id == ZERO_UUID:
            instance_id = random_uuid(self._random)
        instance = self._instance(instance_id, traits, configs)
        if not instance.may_ask(now_ms):
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "The request came before the push interval had passed.",
            )
        instance.last_asked_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance_id, instance

    def push(
        self,
        instance_id: bytes,
        traits: ClientTraits,
        configs: _Configs,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        metrics: bytes,
    ) -> None:
        """Take in metrics of a client; ApiError when they are refused."""
        if instance_id in _RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The client instance id is not valid.")
        instance = self._instance(instance_id, traits, configs)
        try:
            self._check_push(instance, now_ms, subscription_id, terminating)
            _check_metrics(compression_type, metrics, self.bytes_max)
        except ApiError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.last_error = ErrorCode.NONE
        self.pushes += 1
        self.pushed_bytes += len(metrics)

    def _check_push(
        self, instance: ClientInstance, now_ms: int, subscription_id: int, terminating: bool
    ) -> None:
        if instance.terminating:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "The client has pushed for the last time already."
            )
        due = instance.may_push(now_ms)
        if not due and not terminating:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "The request came before the push interval had passed.",
            )
        if due:
            instance.last_pushed_ms = now_ms
        if subscription_id != instance.subscription_id:
            raise ApiError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"Unknown subscription id {subscription_id}"
            )

    def _instance(
        self, instance_id: bytes, traits: ClientTraits, configs: _Configs
    ) -> ClientInstance:
        if configs is not self._configs:
            self._take_over(configs)
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= _INSTANCES_MAX:
                self._instances.popitem(last=False)
            instance = self._instances[instance_id] = self._make(instance_id, traits)
        self._instances.move_to_end(instance_id)
        return instance

    def _take_over(self, configs: _Configs) -> None:
        """Clients get their subscription anew when the subscriptions changed."""
        self._configs = configs
        subscriptions = tuple(
            _parse(values)
            for resource, values in sorted(configs.items())
            if resource.type == ConfigResourceType.CLIENT_METRICS
        )
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self._instances.clear()

    def _make(self, instance_id: bytes, traits: ClientTraits) -> ClientInstance:
        metrics: set[str] = set()
        interval_ms = int(CLIENT_METRICS_SETTINGS["interval.ms"].default or 0)
        for subscription in self._subscriptions:
            if subscription.chooses(format_uuid(instance_id), traits):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        if _ALL_METRICS in metrics:
            metrics = {_ALL_METRICS}
        ordered = tuple(sorted(metrics))
        checksum = zlib.crc32(f"{ordered}{interval_ms}".encode(), zlib.crc32(instance_id))
        return ClientInstance(_as_int32(checksum), ordered, interval_ms)


def _parse(values: Mapping[str, str]) -> _Subscription:
    parsed = {
        setting.name: setting.parse(values.get(setting.name, setting.default or ""))
        for setting in CLIENT_METRICS_SETTINGS
    }
    patterns = {trait: each.pattern for trait, each in parse_match(parsed["match"]).items()}
    return _Subscription(tuple(parsed["metrics"]), parsed["interval.ms"], patterns)


def _check_metrics(compression_type: int, metrics: bytes, bytes_max: int) -> None:
    if len(metrics) > bytes_max:
        raise ApiError(
            ErrorCode.TELEMETRY_TOO_LARGE,
            f"{len(metrics)} bytes of metrics are more than {bytes_max}",
        )
    try:
        codec = Compression(compression_type)
    except ValueError:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type {compression_type}"
        ) from None
    if codec is not Compression.NONE and metrics:
        try:
            decompress(codec, metrics, _DECOMPRESSED_TIMES_MAX * bytes_max)
        except ApiError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, error.message) from None


def _as_int32(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
