"""The options of the source: those of Spark's Kafka source, and some beyond it.

kafka.bootstrap.servers      HOST:PORT,...; required
subscribe                    topics, separated by commas; or
subscribePattern             topics by a regular expression; or
assign                       partitions, {"orders": [0, 1]}
startingOffsets              earliest (default of batch queries), latest (of streaming ones), or
                             {"orders": {"0": 23, "1": -2}}; -2 is the earliest, -1 the latest
startingTimestamp            milliseconds; goes before the next one, that before startingOffsets
startingOffsetsByTimestamp   {"orders": {"0": 1700000000000}}
startingOffsetsByTimestampStrategy   what to do where no record is that new: error or latest
endingOffsets, endingTimestamp, endingOffsetsByTimestamp     the same for the end, batch only
failOnDataLoss               true: fail if records to be read are gone; false: go on after them
minPartitions                split ranges until there are about as many tasks
maxRecordsPerPartition       split ranges so that no task has more offsets
maxOffsetsPerTrigger         offsets of a micro-batch, shared out by the size of what waits
minOffsetsPerTrigger         wait until so many are there, at most maxTriggerDelay (15m)
includeHeaders               add the column headers
groupId                      commit what was read to this consumer group (streaming only)
groupIdPrefix                the client id, if kafka.client.id is not given
lake                         an archive of `tidelog lake archive`: what it covers is read there
filterPushdown               true: filters on topic, partition, offset and timestamp narrow what
                             a batch query reads. Spark 4.3 keeps the narrowed plan with the
                             DataFrame, so use each `load()` with one set of filters only
localReads                   false: over TCP even if the broker is on the same machine as the task
valueFormat, ...             see tidelog.spark.formats
kafkaConsumer.pollTimeoutMs  how long a broker may be away or silent in a task, 60000
fetchOffset.numRetries       how often offsets that look wrong are asked for again, 3
fetchOffset.retryIntervalMs  the time between, 10
partition.metadata.cache.ttl.ms   how long the list of partitions is believed, -1: not at all
kafka.default.api.timeout.ms how long a broker may be away on the driver, 60000
kafka.request.timeout.ms     how long one answer may take on the driver, 30000
kafka.fetch.max.bytes, kafka.max.partition.fetch.bytes     of one fetch, 8 MiB
kafka.isolation.level        read_committed (default) or read_uncommitted
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Offsets,
    Position,
    parse_offsets,
    written,
)
from tidelog.spark.source.client_settings import (
    PREFIX,
    USED,
    check_client_settings,
    is_known_client_setting,
)
from tidelog.spark.source.subscription import NAMES as SUBSCRIPTION_NAMES
from tidelog.spark.source.subscription import Subscription, parse_subscription

if TYPE_CHECKING:
    from tidelog.spark.source.fetching import FetchSettings

INT32_MAX = 2**31 - 1

_NAMES = (
    *SUBSCRIPTION_NAMES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupId",
    "groupIdPrefix",
    "lake",
    "filterPushdown",
    "localReads",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
_STREAM_ONLY = ("groupId",)
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the options say; see the module's text. None stands for an option that is not given."""

    bootstrap: str
    client_id: str
    subscription: Subscription
    start: Position | None
    end: Position | None
    start_falls_to_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    include_headers: bool
    group_id: str | None
    lake: str | None
    push_down: bool
    local_reads: bool
    read_committed: bool
    fetch_bytes_max: int | None
    fetch_timeout_s: float
    api_timeout_s: float
    request_timeout_s: float
    offset_retries: int
    offset_retry_interval_s: float
    metadata_ttl_s: float

    @property
    def batch_start(self) -> Position:
        return self.start or Everywhere(EARLIEST)

    @property
    def batch_end(self) -> Position:
        return self.end or Everywhere(LATEST)

    @property
    def stream_start(self) -> Position:
        return self.start or Everywhere(LATEST)

    def fetch_settings(self, *, include_headers: bool | None = None) -> "FetchSettings":
        """How tasks read; `include_headers` if they need headers that the query does not show."""
        # Only tasks need what this imports: the compiled decoder.
        from tidelog.spark.source.fetching import FetchSettings

        shown = self.include_headers if include_headers is None else include_headers
        settings = FetchSettings(
            self.bootstrap,
            client_id=self.client_id,
            read_committed=self.read_committed,
            include_headers=shown,
            fail_on_data_loss=self.fail_on_data_loss,
            timeout_s=self.fetch_timeout_s,
            local_reads=self.local_reads,
        )
        if self.fetch_bytes_max is None:
            return settings
        return replace(settings, max_bytes=self.fetch_bytes_max)


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """What batch and streaming queries share; OptionError names what does not fit.

    Names are taken in any case, as Spark does.
    """
    values = _Values(options)
    check_client_settings(values.given)
    values.check_names()
    bootstrap = values.text("kafka.bootstrap.servers")
    if bootstrap is None:
        raise OptionError("option kafka.bootstrap.servers is needed, such as localhost:9092")
    _check_addresses(bootstrap)
    fetch_bytes = [
        each
        for each in (
            values.whole("kafka.fetch.max.bytes", 1, highest=INT32_MAX),
            values.whole("kafka.max.partition.fetch.bytes", 1, highest=INT32_MAX),
        )
        if each is not None
    ]
    parsed = SourceOptions(
        bootstrap=bootstrap,
        client_id=values.text("kafka.client.id") or values.text("groupIdPrefix") or "tidelog-spark",
        subscription=parse_subscription(values.given),
        start=values.position("starting"),
        end=values.position("ending"),
        start_falls_to_latest=values.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        min_partitions=values.whole("minPartitions", 1),
        max_records_per_partition=values.whole("maxRecordsPerPartition", 1),
        max_offsets_per_trigger=values.whole("maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=values.whole("minOffsetsPerTrigger", 1),
        max_trigger_delay_s=values.duration_s("maxTriggerDelay", "15m"),
        include_headers=values.flag("includeHeaders", False),
        group_id=values.text("groupId"),
        lake=values.text("lake"),
        push_down=values.flag("filterPushdown", False),
        local_reads=values.flag("localReads", True),
        read_committed=values.choice(
            "kafka.isolation.level", ("read_committed", "read_uncommitted")
        )
        == "read_committed",
        fetch_bytes_max=min(fetch_bytes, default=None),
        fetch_timeout_s=values.seconds("kafkaConsumer.pollTimeoutMs", 60_000),
        api_timeout_s=values.seconds("kafka.default.api.timeout.ms", 60_000),
        request_timeout_s=values.seconds("kafka.request.timeout.ms", 30_000),
        offset_retries=values.whole("fetchOffset.numRetries", 0, 3),
        offset_retry_interval_s=values.seconds("fetchOffset.retryIntervalMs", 10, lowest_ms=0),
        metadata_ttl_s=values.whole("partition.metadata.cache.ttl.ms", -1, -1) / 1000,
    )
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
        )
    return parsed


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch query."""
    parsed = parse_source_options(options)
    _refuse(options, _STREAM_ONLY, "a batch query does not tell when it is done: stream instead")
    start, end = parsed.batch_start, parsed.batch_end
    if start == Everywhere(LATEST) or _holds(start, LATEST):
        raise OptionError("option startingOffsets: a batch query cannot start at the latest offset")
    if end == Everywhere(EARLIEST) or _holds(end, EARLIEST):
        raise OptionError("option endingOffsets: a batch query cannot end at the earliest offset")
    if isinstance(start, AtTimestamp) and isinstance(end, AtTimestamp):
        _check_timestamps(start.timestamp_ms, end.timestamp_ms)
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_order("Offsets", start.offsets, end.offsets)
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _check_order("OffsetsByTimestamp", start.timestamps_ms, end.timestamps_ms)
    return parsed


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming query."""
    parsed = parse_source_options(options)
    _refuse(options, _BATCH_ONLY, "a streaming query has no end")
    return parsed


class _Values:
    """The given options by their names in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {name.lower(): str(value) for name, value in options.items()}

    def check_names(self) -> None:
        spelled = {each.lower(): each for each in (*_NAMES, *(PREFIX + each for each in USED))}
        for name in self.given:
            if name not in spelled and not is_known_client_setting(name):
                _check_foreign_name(name, spelled)

    def text(self, name: str) -> str | None:
        value = self.given.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise OptionError(f"option {name} is empty")
        return value.strip()

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of some words; the first is the default."""
        value = (self.text(name) or default or choices[0]).lower()
        if value not in choices:
            raise OptionError(f"option {name}={value!r} is none of {', '.join(choices)}")
        return value

    @overload
    def whole(self, name: str, lowest: int, *, highest: int = ...) -> int | None: ...
    @overload
    def whole(self, name: str, lowest: int, default: int, *, highest: int = ...) -> int: ...
    def whole(
        self, name: str, lowest: int, default: int | None = None, *, highest: int = INT64_MAX
    ) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,40}", value) or int(value) < lowest:
            raise OptionError(f"option {name}={value!r} is no whole number from {lowest}")
        if int(value) > highest:
            raise OptionError(f"option {name}={value!r} is above {highest}")
        return int(value)

    def seconds(self, name: str, default_ms: int, *, lowest_ms: int = 1) -> float:
        return self.whole(name, lowest_ms, default_ms) / 1000

    def duration_s(self, name: str, default: str) -> float:
        """As Spark reads durations: `15m`, `10s`, `500ms`; without a unit milliseconds."""
        value = (self.text(name) or default).lower()
        parts = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", value)
        unit_ms = _UNITS_MS.get(parts[2] or "ms") if parts else None
        if parts is None or unit_ms is None:
            raise OptionError(f"option {name}={value!r} is no duration such as 15m, 10s or 500ms")
        return int(parts[1]) * unit_ms / 1000

    def position(self, which: str) -> Position | None:
        """Where reading starts or ends, by the option that goes before the others."""
        name = f"{which}Timestamp"
        timestamp = self.text(name)
        if timestamp is not None:
            return AtTimestamp(self.whole(name, 0, 0))
        name = f"{which}OffsetsByTimestamp"
        text = self.text(name)
        if text is not None:
            return AtTimestamps(parse_offsets(name, text, 0))
        name = f"{which}Offsets"
        text = self.text(name)
        if text is None:
            return None
        word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
        if word is not None:
            return Everywhere(word)
        if not text.startswith("{"):
            raise OptionError(f"option {name}={text!r} is neither earliest nor latest nor JSON")
        return AtOffsets(parse_offsets(name, text, EARLIEST))


def _check_foreign_name(name: str, spelled: Mapping[str, str]) -> None:
    """Raise OptionError unless it is an option of the value formats."""
    from tidelog.spark.formats import OPTION_NAMES

    if name in OPTION_NAMES:
        return
    near = difflib.get_close_matches(name, [*spelled, *OPTION_NAMES], n=1)
    hint = f"; did you mean {spelled.get(near[0], near[0])}?" if near else ""
    raise OptionError(f"option {name} is unknown{hint}")


def _check_addresses(bootstrap: str) -> None:
    for each in bootstrap.split(","):
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise OptionError(
                f"option kafka.bootstrap.servers={bootstrap!r}: {each!r} is not HOST:PORT"
            )


def _refuse(options: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if name.lower() in {each.lower() for each in options}:
            raise OptionError(f"option {name} does not fit here: {reason}")


def _holds(position: Position, offset: int) -> bool:
    return isinstance(position, AtOffsets) and offset in position.offsets.values()


def _check_timestamps(start_ms: int, end_ms: int) -> None:
    if start_ms > end_ms:
        raise OptionError(f"option startingTimestamp={start_ms} is after endingTimestamp={end_ms}")


def _check_order(what: str, start: Offsets, end: Offsets) -> None:
    if start.keys() != end.keys():
        raise OptionError(
            f"options starting{what} and ending{what} name different partitions: "
            f"{written(start.keys() ^ end.keys())}"
        )
    for name, first in start.items():
        if first > end[name] >= 0:
            raise OptionError(
                f"options starting{what} and ending{what}: {name} starts at {first}, after its end "
                f"{end[name]}"
            )
