"""The options of the sink, and the columns that it takes.

    kafka.bootstrap.servers   HOST:PORT,...; required
    topic                     where all rows go; without it each row needs the column `topic`
    deliveryGuarantee         exactly-once (default): transactions; at-least-once: none
    transactionalIdPrefix     what the sink's transactional ids and groups begin with: tidelog-spark
    txnAppId, txnVersion      batch jobs only: a job of the same application with a version that was
                              written before is skipped. For foreachBatch: an id of the query's and
                              of this write, and the batch's number
    partitioner               murmur2, as Java's producer; rows without a key take turns by batch
    includeHeaders            accepted; the column `headers` is written if there is one
    kafka.acks                all, or 1 with at-least-once
    kafka.batch.size          bytes of a batch before compression, 1000000
    kafka.client.id           tidelog-spark
    kafka.compression.type    none, gzip, snappy, lz4, zstd
    kafka.delivery.timeout.ms how long a record may take, 120000
    kafka.max.block.ms        how long a topic may be unknown, 15000
    kafka.request.timeout.ms  how long a broker may take to answer, 30000
    kafka.transaction.timeout.ms   900000; the time from a task's first row to the commit of all
                              tasks has to fit, and so has a restart after a crash in the commit

Other settings of Kafka's clients are accepted and have no effect: of the producer, those in
IGNORED_SETTINGS.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from tidelog.protocol.compression import Compression
from tidelog.spark.errors import OptionError
from tidelog.spark.source.client_settings import (
    IGNORED_OF_ANY_CLIENT,
    PREFIX,
    is_known_client_setting,
)

T = TypeVar("T")

IGNORED_SETTINGS = IGNORED_OF_ANY_CLIENT | {
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.ignore.keys",
    "retries",
}

_REFUSED_SETTINGS = {
    "key.serializer": "keys are written as they are: make the column key binary or string",
    "value.serializer": "values are written as they are: make the column value binary or string",
    "interceptor.classes": "there is no Java here that could run them",
    "partitioner.class": "there is no Java here that could run it: use the column partition",
    "transactional.id": "each task has its own: set transactionalIdPrefix",
}
_USED_SETTINGS = frozenset(
    {
        "acks",
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "max.block.ms",
        "request.timeout.ms",
        "security.protocol",
        "transaction.timeout.ms",
    }
)
_OWN_NAMES = frozenset(
    {"topic", "includeheaders", "deliveryguarantee", "transactionalidprefix", "partitioner"}
)
_JOB_NAMES = frozenset({"txnappid", "txnversion"})
# Spark's own of a query, which it hands on.
_QUERY_NAMES = frozenset({"checkpointlocation", "queryname", "outputmode"})

OPTION_NAMES: frozenset[str] = _OWN_NAMES | _JOB_NAMES | {PREFIX + name for name in _USED_SETTINGS}
"""The options that the sink reads, in lower case."""

_SPELLING = {
    "includeheaders": "includeHeaders",
    "deliveryguarantee": "deliveryGuarantee",
    "transactionalidprefix": "transactionalIdPrefix",
    "txnappid": "txnAppId",
    "txnversion": "txnVersion",
}
_KEY_TYPES: tuple[DataType, ...] = (BinaryType(), StringType())
_COMPRESSIONS = {each.name.lower(): each for each in Compression}


class Guarantee(Enum):
    """How often a row is in its topic when a batch is written again."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class JobTransaction:
    """What makes a second run of a batch job recognisable; versions of an application only rise."""

    application_id: str
    version: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the options say; see the module's text."""

    bootstrap: str
    topic: str | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    transactional_id_prefix: str = "tidelog-spark"
    transaction: JobTransaction | None = None
    checkpoint_location: str | None = None
    client_id: str = "tidelog-spark"
    acks: int = -1
    compression: Compression = Compression.NONE
    batch_bytes: int = 1_000_000
    transaction_timeout_ms: int = 900_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    max_block_ms: int = 15_000


_DEFAULTS = SinkOptions(bootstrap="")


def parse_sink_options(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> SinkOptions:
    """The options of a writer of rows with this schema; OptionError if anything does not fit."""
    given = {name.lower(): value for name, value in options.items()}
    if "path" in given:
        raise OptionError(
            f"the sink has no path ({given['path']!r}): name the topic by the option topic"
        )
    known = (OPTION_NAMES - _JOB_NAMES) | _QUERY_NAMES if streaming else OPTION_NAMES
    for name in given:
        _check_name(name, known)
    bootstrap = given.get("kafka.bootstrap.servers", "").strip()
    if not bootstrap:
        raise OptionError("the option kafka.bootstrap.servers is missing: HOST:PORT,...")
    guarantee = _choice(given, "deliveryguarantee", {each.value: each for each in Guarantee})
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("the option topic is empty")
    _choice(given, "partitioner", {"murmur2": None})
    _boolean(given, "includeheaders")
    protocol = given.get("kafka.security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise OptionError(f"kafka.security.protocol is {protocol!r}: only PLAINTEXT is supported")
    prefix = given.get("transactionalidprefix", _DEFAULTS.transactional_id_prefix)
    if not prefix:
        raise OptionError("the option transactionalIdPrefix is empty")
    check_columns(schema, needs_topic=topic is None)
    made = guarantee or Guarantee.EXACTLY_ONCE
    if _boolean(given, "kafka.enable.idempotence") is False and made is Guarantee.EXACTLY_ONCE:
        raise OptionError(
            "kafka.enable.idempotence is false: set deliveryGuarantee to at-least-once for that"
        )
    return SinkOptions(
        bootstrap=bootstrap,
        topic=topic,
        guarantee=made,
        transactional_id_prefix=prefix,
        transaction=_job_transaction(given, made),
        checkpoint_location=given.get("checkpointlocation"),
        client_id=given.get("kafka.client.id", _DEFAULTS.client_id),
        acks=_acks(given, made),
        compression=_choice(given, "kafka.compression.type", _COMPRESSIONS) or Compression.NONE,
        batch_bytes=_number(given, "kafka.batch.size", _DEFAULTS.batch_bytes),
        transaction_timeout_ms=_number(
            given, "kafka.transaction.timeout.ms", _DEFAULTS.transaction_timeout_ms
        ),
        delivery_timeout_ms=_number(
            given, "kafka.delivery.timeout.ms", _DEFAULTS.delivery_timeout_ms
        ),
        request_timeout_ms=_number(given, "kafka.request.timeout.ms", _DEFAULTS.request_timeout_ms),
        max_block_ms=_number(given, "kafka.max.block.ms", _DEFAULTS.max_block_ms),
    )


def check_columns(schema: StructType, *, needs_topic: bool) -> None:
    """OptionError unless the sink can write such rows; columns that it does not know are let be."""
    types = {each.name: each.dataType for each in schema.fields}
    if "value" not in types:
        raise OptionError(
            f"the column value is missing (there are: {', '.join(types) or 'none'}):"
            " the sink writes value and, if they are there, key, headers, topic and partition"
        )
    if needs_topic and "topic" not in types:
        raise OptionError("set the option topic, or give each row its own in a column topic")
    _check_type(types, "value", _KEY_TYPES)
    _check_type(types, "key", _KEY_TYPES)
    _check_type(types, "partition", (IntegerType(),))
    if needs_topic:
        _check_type(types, "topic", (StringType(),))
    if "headers" in types and not _is_headers(types["headers"]):
        raise OptionError(
            f"the column headers is {types['headers'].simpleString()}:"
            " it must be array<struct<key:string,value:binary>>"
        )


def _check_type(types: Mapping[str, DataType], name: str, allowed: tuple[DataType, ...]) -> None:
    given = types.get(name)
    if given is not None and not any(isinstance(given, type(each)) for each in allowed):
        names = " or ".join(each.simpleString() for each in allowed)
        raise OptionError(f"the column {name} is {given.simpleString()}: it must be {names}")


def _is_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = given.elementType.fields
    return (
        [each.name for each in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _check_name(name: str, names: frozenset[str]) -> None:
    setting = name.removeprefix(PREFIX)
    if setting != name:
        if setting in _REFUSED_SETTINGS:
            raise OptionError(f"the option {name} is not supported: {_REFUSED_SETTINGS[setting]}")
        if setting in _USED_SETTINGS or setting in IGNORED_SETTINGS:
            return
        # A query that copies may have one set of options for both its ends.
        if is_known_client_setting(name):
            return
    elif name in names:
        return
    known = [*names, *(PREFIX + each for each in IGNORED_SETTINGS)]
    near = difflib.get_close_matches(name, known, 1)
    hint = f": did you mean {_SPELLING.get(near[0], near[0])}?" if near else ""
    raise OptionError(f"the sink has no option {name}{hint}")


def _spelled(name: str) -> str:
    return _SPELLING.get(name, name)


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, T]) -> T | None:
    text = given.get(name)
    if text is None:
        return None
    if text.lower() not in choices:
        raise OptionError(f"{_spelled(name)} is {text!r}: it must be {' or '.join(choices)}")
    return choices[text.lower()]


def _boolean(given: Mapping[str, str], name: str) -> bool | None:
    return _choice(given, name, {"true": True, "false": False})


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not 0 < int(text) < 2**31:
        raise OptionError(f"{name} is {text!r}: it must be a whole number from 1 to {2**31 - 1}")
    return int(text)


def _job_transaction(given: Mapping[str, str], guarantee: Guarantee) -> JobTransaction | None:
    application_id, version = given.get("txnappid"), given.get("txnversion")
    if application_id is None and version is None:
        return None
    if not application_id or version is None:
        raise OptionError("txnAppId and txnVersion go together, and neither is empty")
    if guarantee is not Guarantee.EXACTLY_ONCE:
        raise OptionError("txnAppId and txnVersion need deliveryGuarantee exactly-once")
    if not version.strip().isdigit() or int(version) >= 2**62:
        raise OptionError(f"txnVersion is {version!r}: it must be a whole number from 0")
    return JobTransaction(application_id, int(version))


def _acks(given: Mapping[str, str], guarantee: Guarantee) -> int:
    text = given.get("kafka.acks", "all").lower()
    if text in ("all", "-1"):
        return -1
    if text == "1" and guarantee is Guarantee.AT_LEAST_ONCE:
        return 1
    allowed = "all" if guarantee is Guarantee.EXACTLY_ONCE else "all or 1"
    raise OptionError(f"kafka.acks is {text!r}: with {guarantee.value} it must be {allowed}")
