"""A format at work on batches of the source: its columns, and what becomes of corrupt rows."""

import io
import json
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType

from tests.spark.formats.proto_files import descriptor_set
from tests.spark.formats.source_batches import source_batch
from tidelog.spark.errors import OptionError
from tidelog.spark.formats import OPTION_NAMES, ValueFormat, value_format
from tidelog.spark.formats.corrupt_rows import CorruptRowError
from tidelog.spark.formats.dead_letters import dead_letters

_JSON = {"valueFormat": "json", "valueSchema": "id int, name string"}
_DEAD_LETTERS = {**_JSON, "corruptRows": "deadLetter", "deadLetterTopic": "b"}
_SOURCE = ["key", "topic", "partition", "offset", "timestamp", "timestampType"]


def _format(options: Mapping[str, str]) -> ValueFormat:
    made = value_format(options)
    assert made is not None
    copied: ValueFormat = pickle.loads(pickle.dumps(made))
    return copied


def test_raw_is_no_format() -> None:
    assert value_format({}) is None
    assert value_format({"valueformat": "RAW"}) is None


def test_typed_columns_stand_after_those_of_the_source() -> None:
    made = _format({**_JSON, "includeHeaders": "true"})
    assert made.schema().names == [*_SOURCE, "headers", "id", "name", "_corrupt"]
    assert [field.name for field in made.fields()] == ["id", "name", "_corrupt"]
    assert not made.needs_headers
    decoded = made.decode(source_batch([b'{"id":1}', b"?", None], with_headers=True))
    assert decoded.schema.equals(to_arrow_schema(made.schema(), timezone="UTC"))
    assert decoded.column("id").to_pylist() == [1, None, None]
    assert decoded.column("_corrupt").to_pylist() == [None, b"?", None]
    assert decoded.column("offset").to_pylist() == [100, 101, 102]
    assert decoded.column("headers").to_pylist()[1] == [{"key": "h", "value": b"1"}]


def test_text_stands_where_the_value_was() -> None:
    made = _format({"valueFormat": "string"})
    assert made.schema().names == ["key", "value", *_SOURCE[1:], "_corrupt"]
    assert made.schema()["value"].dataType == StringType()
    decoded = made.decode(source_batch(["ü".encode(), b"\xff", None, b""]))
    assert decoded.column("value").to_pylist() == ["ü", None, None, ""]
    assert decoded.column("_corrupt").to_pylist() == [None, b"\xff", None, None]
    assert made.decode(source_batch([b"a", None])).column("_corrupt").null_count == 2


def test_batches_may_be_empty_or_slices() -> None:
    made = _format(_JSON)
    assert made.decode(source_batch([])).num_rows == 0
    batch = source_batch([b"?", b'{"id":1}', b'{"id":2}', b"?"]).slice(1, 2)
    decoded = made.decode(batch)
    assert decoded.column("id").to_pylist() == [1, 2]
    assert decoded.column("_corrupt").null_count == 2


def test_failing_names_the_record() -> None:
    made = _format({**_JSON, "corruptRows": "FAIL"})
    assert made.schema().names == [*_SOURCE, "id", "name"]
    assert made.decode(source_batch([b'{"id":1}'])).num_rows == 1
    with pytest.raises(CorruptRowError, match=r"offset 101 of orders-3 .*`\$\.id`"):
        made.decode(source_batch([b"{}", b'{"id":"x"}', b"?"]))


def test_a_prefix_tells_fields_from_columns() -> None:
    options = {"valueFormat": "json", "valueSchema": "Offset int, value string"}
    with pytest.raises(OptionError, match=r"'Offset'.*valuePrefix"):
        value_format(options)
    made = _format({**options, "valuePrefix": "v_"})
    assert made.schema().names == [*_SOURCE, "v_Offset", "v_value", "_corrupt"]
    decoded = made.decode(source_batch([b'{"Offset":5,"value":"x"}']))
    assert decoded.column("v_Offset").to_pylist() == [5]
    # The raw value is gone, so its name is free.
    assert _format({"valueFormat": "json", "valueSchema": "value int"}).schema().names == [
        *_SOURCE,
        "value",
        "_corrupt",
    ]


def test_schemas_may_be_sparks_json(tmp_path: Path) -> None:
    schema = {
        "type": "struct",
        "fields": [{"name": "id", "type": "integer", "nullable": False, "metadata": {"a": 1}}],
    }
    made = _format({"valueFormat": "json", "valueSchema": json.dumps(schema)})
    field = made.schema()["id"]
    assert (field.dataType, field.nullable, field.metadata) == (IntegerType(), True, {})


def test_schemas_may_be_files(tmp_path: Path) -> None:
    item = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
    (tmp_path / "Item.avsc").write_text(json.dumps(item))
    order = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "item", "type": "Item"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    path = tmp_path / "Order.avsc"
    path.write_text(json.dumps(order))
    made = _format({"valueFormat": "avro", "valueSchema": str(path), "avroFraming": "confluent"})
    assert made.schema().names[-3:] == ["item", "day", "_corrupt"]
    for name in ("Item.avsc", "Order.avsc"):
        (tmp_path / name).unlink()
    out = io.BytesIO(b"\0\0\0\0\1")
    out.seek(5)
    parsed = fastavro.parse_schema(
        {**order, "fields": [{"name": "item", "type": item}, order["fields"][1]]}
    )
    fastavro.schemaless_writer(out, parsed, {"item": {"sku": "a"}, "day": 1})
    decoded = made.decode(source_batch([out.getvalue()]))
    assert decoded.column("item").to_pylist() == [{"sku": "a"}]
    assert str(decoded.column("day")[0]) == "1970-01-02"

    files = tmp_path / "shop.desc"
    files.write_bytes(descriptor_set())
    made = _format(
        {
            "valueFormat": "protobuf",
            "protobufDescriptor": str(files),
            "protobufMessage": "shop.Order.Item",
        }
    )
    assert made.decode(source_batch([b"\x0a\x01x"])).column("sku").to_pylist() == ["x"]


def test_dead_letters_say_where_they_come_from() -> None:
    batch = source_batch([b"{}", b"?", b"!"], with_headers=True)
    letters = dead_letters(batch, {1: "odd", 2: "odder"}).to_pylist()
    moment = b"%d" % int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000)
    assert [letter["key"] for letter in letters] == [b"orders-3-101", b"orders-3-102"]
    assert [letter["value"] for letter in letters] == [b"?", b"!"]
    assert [(each["key"], each["value"]) for each in letters[0]["headers"]] == [
        ("h", b"1"),
        ("tidelog.origin.topic", b"orders"),
        ("tidelog.origin.partition", b"3"),
        ("tidelog.origin.offset", b"101"),
        ("tidelog.origin.timestamp", moment),
        ("tidelog.origin.key", b"k1"),
        ("tidelog.reason", b"odd"),
    ]
    # A record without headers and without a key.
    assert [each["key"] for each in letters[1]["headers"]] == [
        "tidelog.origin.topic",
        "tidelog.origin.partition",
        "tidelog.origin.offset",
        "tidelog.origin.timestamp",
        "tidelog.reason",
    ]


def test_dead_letters_need_headers_but_show_them_only_when_asked() -> None:
    options = {
        **_JSON,
        "corruptRows": "deadletter",
        "deadLetterTopic": "dead",
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    made = _format(options)
    assert made.needs_headers
    assert made.schema().names == [*_SOURCE, "id", "name"]
    decoded = made.decode(source_batch([b'{"id":1}'], with_headers=True))
    assert decoded.schema.names == made.schema().names
    assert "headers" in _format({**options, "includeHeaders": "TRUE"}).schema().names


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"valueFormat": "xml"}, "valueFormat is 'xml': it must be raw, string, json, avro or"),
        ({"valueFormat": "json"}, "valueSchema is missing"),
        ({"valueFormat": "json", "valueSchema": "id lung"}, "valueSchema: 'lung' is no type"),
        ({"valueFormat": "json", "valueSchema": '{"type": "array"}'}, "valueSchema: no schema"),
        ({"valueFormat": "json", "valueSchema": "a map<int, int>"}, "valueSchema: a is a map"),
        ({"valueFormat": "json", "valueSchema": "a int, A int"}, "two fields 'A'"),
        ({"valueFormat": "json", "valueSchema": "_corrupt int"}, "'_corrupt'"),
        ({"valueFormat": "json", "valueSchema": "headers int"}, "'headers'"),
        ({"valueSchema": "a int"}, "valueSchema has no meaning with valueFormat=raw"),
        ({"corruptRows": "fail"}, "corruptRows has no meaning with valueFormat=raw"),
        ({**_JSON, "avroFraming": "none"}, "avroFraming has no meaning with valueFormat=json"),
        ({"valueFormat": "string", "valuePrefix": "x"}, "valuePrefix has no meaning"),
        ({**_JSON, "corruptRows": "drop"}, "corruptRows is 'drop': it must be column, deadLetter"),
        ({**_JSON, "corruptRows": "deadLetter"}, "deadLetterTopic is missing"),
        ({**_JSON, "deadLetterTopic": "x"}, "deadLetterTopic has no meaning without"),
        ({**_DEAD_LETTERS, "subscribe": "a, b"}, "'b', which is read"),
        ({**_DEAD_LETTERS, "subscribePattern": "[a-c]"}, "which is read (option subscribePattern)"),
        ({**_DEAD_LETTERS, "assign": '{"b": [1]}'}, "which is read (option assign)"),
        (
            _DEAD_LETTERS,
            "kafka.bootstrap.servers is missing",
        ),
        ({"valueFormat": "avro", "valueSchema": "/no/such.avsc"}, "'/no/such.avsc' cannot be read"),
        ({"valueFormat": "avro", "valueSchema": '{"type": "recor"}'}, "valueSchema is no Avro"),
        ({"valueFormat": "avro", "valueSchema": '"string"'}, "no record"),
        ({"valueFormat": "avro", "valueSchema": "{"}, "valueSchema is no Avro"),
        (
            {"valueFormat": "avro", "valueSchema": '"int"', "avroFraming": "x"},
            "avroFraming is 'x': it must be none, confluent or singleObject",
        ),
        ({"valueFormat": "protobuf"}, "protobufDescriptor is missing"),
        ({"valueFormat": "protobuf", "protobufDescriptor": "x"}, "protobufMessage is missing"),
        (
            {"valueFormat": "protobuf", "protobufDescriptor": "/no", "protobufMessage": "a.B"},
            "protobufDescriptor: '/no' cannot be read",
        ),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        value_format(options)
    assert told in str(caught.value)
    for name in options:
        assert name.lower() in OPTION_NAMES | {"subscribe", "subscribepattern", "assign"}
