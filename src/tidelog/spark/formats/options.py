"""The options of values: which format, with which schema, and what to do with corrupt rows.

    valueFormat          raw (default), string, json, avro, protobuf
    valueSchema          json: DDL or Spark's JSON; avro: the schema or the path of its file
    valuePrefix          what the names of typed columns begin with; nothing by default
    corruptRows          column (default), deadLetter, fail
    deadLetterTopic      where records that do not parse go, with corruptRows=deadLetter
    avroFraming          none (default), confluent, singleObject
    protobufDescriptor   the path of a descriptor set (protoc --include_imports -o FILE)
    protobufMessage      the full name of the message in it
    protobufFraming      none (default), confluent

Files are read where the query is planned; tasks get what stood in them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql.types import StructType

from tidelog.spark.errors import OptionError
from tidelog.spark.formats.corrupt_rows import CORRUPT_COLUMN, CorruptRows
from tidelog.spark.formats.ddl import parse_ddl
from tidelog.spark.formats.dead_letters import DEFAULT_CLIENT_ID, DeadLetterTopic
from tidelog.spark.formats.decoding import Decoder
from tidelog.spark.formats.text import TextDecoder
from tidelog.spark.formats.value_format import DecodedFormat, ValueFormat
from tidelog.spark.schema import spark_schema
from tidelog.spark.source.subscription import NAMES as SUBSCRIPTION_NAMES
from tidelog.spark.source.subscription import parse_subscription

E = TypeVar("E", bound=Enum)

_NAMES = (
    "valueFormat",
    "valueSchema",
    "valuePrefix",
    "corruptRows",
    "deadLetterTopic",
    "avroFraming",
    "protobufDescriptor",
    "protobufMessage",
    "protobufFraming",
)
OPTION_NAMES: frozenset[str] = frozenset(name.lower() for name in _NAMES)
"""The options that belong to formats, in lower case."""

_ALWAYS = ("valueFormat", "corruptRows", "deadLetterTopic")
_TYPED = (*_ALWAYS, "valuePrefix")
_BELONGS = {
    "raw": ("valueFormat",),
    "string": _ALWAYS,
    "json": (*_TYPED, "valueSchema"),
    "avro": (*_TYPED, "valueSchema", "avroFraming"),
    "protobuf": (*_TYPED, "protobufDescriptor", "protobufMessage", "protobufFraming"),
}


def value_format(options: Mapping[str, str]) -> ValueFormat | None:
    """The format that the options of a source ask for; None for raw. Raises OptionError.

    Names are taken in any case. Besides the options of formats it looks at includeHeaders, at
    kafka.* for dead letters, and at the topics that are read.
    """
    given = _Given(options)
    name = (given.get("valueFormat") or "raw").strip().lower()
    if name not in _BELONGS:
        raise OptionError(f"valueFormat is {name!r}: it must be {_one_of(_BELONGS)}")
    for option in _NAMES:
        if option not in _BELONGS[name] and given.get(option) is not None:
            raise OptionError(f"{option} has no meaning with valueFormat={name}")
    if name == "raw":
        return None
    decoder = _DECODERS[name](given)
    prefix = given.get("valuePrefix") or ""
    corrupt_rows = given.choice("corruptRows", CorruptRows, CorruptRows.COLUMN)
    if name != "string":
        _check_names(
            [prefix + field.name for field in decoder.schema],
            is_corrupt_shown=corrupt_rows is CorruptRows.COLUMN,
        )
    return DecodedFormat(
        decoder,
        include_headers=(given.get("includeHeaders") or "").strip().lower() == "true",
        prefix=prefix,
        is_in_place=name == "string",
        corrupt_rows=corrupt_rows,
        dead_letter_topic=_dead_letter_topic(given, corrupt_rows),
    )


class _Given:
    """Options as they were given, by names in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.all = {name.lower(): value for name, value in options.items()}

    def get(self, name: str) -> str | None:
        return self.all.get(name.lower())

    def required(self, name: str, why: str) -> str:
        value = self.get(name)
        if value is None or not value.strip():
            raise OptionError(f"{name} is missing: {why}")
        return value.strip()

    def choice(self, name: str, kind: type[E], default: E) -> E:
        value = self.get(name)
        if value is None:
            return default
        for each in kind:
            if str(each.value).lower() == value.strip().lower():
                return each
        choices = _one_of(each.value for each in kind)
        raise OptionError(f"{name} is {value!r}: it must be {choices}")


def _text(given: _Given) -> Decoder:
    return TextDecoder()


def _json(given: _Given) -> Decoder:
    from tidelog.spark.formats.json import JsonDecoder

    text = given.required("valueSchema", "valueFormat=json needs it, as DDL or as Spark's JSON")
    try:
        return JsonDecoder(_spark_schema(text))
    except ValueError as error:
        raise OptionError(f"valueSchema: {error}") from error


def _avro(given: _Given) -> Decoder:
    from fastavro.schema import SchemaParseException, load_schema, parse_schema

    from tidelog.spark.formats.avro import AvroDecoder, AvroFraming

    text = given.required("valueSchema", "valueFormat=avro needs it, as JSON or as a path")
    framing = given.choice("avroFraming", AvroFraming, AvroFraming.NONE)
    try:
        if text[0] in '{["':
            schema = json.loads(text)
        else:
            schema = json.loads(_read("valueSchema", text))
            if _has_unknown_names(schema):
                # Types that it names but does not define have files of their own beside it.
                schema = load_schema(text)
        parse_schema(schema, named_schemas={})
        return AvroDecoder(schema, framing)
    except (ValueError, KeyError, TypeError, SchemaParseException) as error:
        raise OptionError(f"valueSchema is no Avro schema for columns: {error}") from error


def _protobuf(given: _Given) -> Decoder:
    from tidelog.spark.formats.protobuf import ProtobufDecoder, ProtobufFraming

    path = given.required("protobufDescriptor", "the path of a descriptor set (protoc -o FILE)")
    message = given.required("protobufMessage", "the full name of the message, with its package")
    framing = given.choice("protobufFraming", ProtobufFraming, ProtobufFraming.NONE)
    try:
        return ProtobufDecoder(_read("protobufDescriptor", path), message, framing)
    except ValueError as error:
        raise OptionError(f"protobufMessage {message} of {path}: {error}") from error


_DECODERS: dict[str, Callable[[_Given], Decoder]] = {
    "string": _text,
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}


def _spark_schema(text: str) -> StructType:
    if not text.startswith("{"):
        return parse_ddl(text)
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"no schema in Spark's JSON: {error!r}") from error


def _has_unknown_names(schema: Any) -> bool:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        parse_schema(schema, named_schemas={})
    except UnknownType:
        return True
    except SchemaParseException:
        pass
    return False


def _dead_letter_topic(given: _Given, corrupt_rows: CorruptRows) -> DeadLetterTopic | None:
    if corrupt_rows is not CorruptRows.DEAD_LETTER:
        if given.get("deadLetterTopic") is not None:
            raise OptionError("deadLetterTopic has no meaning without corruptRows=deadLetter")
        return None
    topic = given.required("deadLetterTopic", "corruptRows=deadLetter needs it")
    if any(given.get(name) is not None for name in SUBSCRIPTION_NAMES):
        subscription = parse_subscription(given.all)
        if subscription.chooses_topic(topic):
            raise OptionError(
                f"deadLetterTopic is {topic!r}, which is read (option {subscription.option}): it"
                " would feed itself"
            )
    return DeadLetterTopic(
        given.required("kafka.bootstrap.servers", "HOST:PORT,..."),
        topic,
        given.get("kafka.client.id") or DEFAULT_CLIENT_ID,
    )


def _check_names(names: list[str], *, is_corrupt_shown: bool) -> None:
    """No two columns may have names that Spark takes for the same."""
    # Headers may be asked for tomorrow, and the query should not break by that.
    taken = {each.name.lower() for each in spark_schema(include_headers=True)} - {"value"}
    if is_corrupt_shown:
        taken.add(CORRUPT_COLUMN)
    seen: set[str] = set()
    for name in names:
        if name.lower() in taken:
            raise OptionError(
                f"the field {name!r} of the value has the name of a column of the source:"
                " set valuePrefix (for example value_) to tell them apart"
            )
        if name.lower() in seen:
            raise OptionError(f"the value has two fields {name!r}; Spark sees no upper case")
        seen.add(name.lower())


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"{option}: {path!r} cannot be read: {error.strerror}") from error


def _one_of(names: Iterable[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} or {last}" if others else last
