"""Avro records to columns: every type, both framings, and bytes that are none."""

import io
import pickle
import random
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.utils import generate_many
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.serializers.avro import AvroSerializer
from tidelog.spark.formats.avro import AvroDecoder, AvroFraming
from tidelog.spark.formats.columns import arrow_type
from tidelog.spark.formats.decoding import Decoded

_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "items", "type": {"type": "array", "items": _ITEM}},
        {"name": "first", "type": ["null", "Item"]},
        {"name": "scores", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "any", "type": ["null", "string", "boolean", "Item", "State"]},
        {"name": "number", "type": ["int", "long"]},
        {"name": "ratio", "type": ["null", "float", "double"]},
    ],
}
_RECORD: dict[str, Any] = {
    "id": 7,
    "who": "ü",
    "state": "PAID",
    "before": "NEW",
    "price": Decimal("-12.50"),
    "at": datetime(2026, 1, 31, 12, 30, 15, 123_000, tzinfo=UTC),
    "seen": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "local": datetime(2026, 1, 31),
    "day": date(1969, 12, 31),
    "hash": b"ab",
    "uid": uuid.UUID(int=5),
    "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": -2}],
    "first": {"sku": "c", "count": 3},
    "scores": {"x": 1.5, "y": None},
    "any": ("shop.State", "NEW"),
    "number": 2**40,
    "ratio": 0.1,
}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _encode(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def _rows(decoder: AvroDecoder, decoded: Decoded) -> list[dict[str, Any]]:
    for column, field in zip(decoded.columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(field.dataType)
    rows: list[dict[str, Any]] = pa.table(decoded.columns, names=decoder.schema.names).to_pylist()
    return rows


def test_every_type_becomes_that_of_spark() -> None:
    decoder = pickle.loads(pickle.dumps(AvroDecoder(_ORDER)))
    decoded = decoder.decode(pa.array([_encode(_ORDER, _RECORD), None], pa.binary()))
    assert decoded.corrupt == {}
    rows = _rows(decoder, decoded)
    nothing = dict.fromkeys(f"member{at}" for at in range(4))
    assert rows[0] == {
        **_RECORD,
        "uid": str(_RECORD["uid"]),
        "scores": [("x", 1.5), ("y", None)],
        "any": {**nothing, "member3": "NEW"},
        "ratio": pytest.approx(0.1),
    }
    assert rows[1] == dict.fromkeys(_RECORD)


def test_a_union_is_a_struct_with_one_field_set() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {
                "name": "u",
                "type": [
                    "null",
                    "string",
                    "bytes",
                    "long",
                    {"type": "array", "items": "int"},
                    _ITEM,
                ],
            }
        ],
    }
    item = {"sku": "a", "count": 1}
    given: list[Any] = [None, "s", b"b", 5, [1, 2], item]
    decoder = AvroDecoder(schema)
    decoded = decoder.decode(
        pa.array([_encode(schema, {"u": each}) for each in given], pa.binary())
    )
    found = [row["u"] for row in _rows(decoder, decoded)]
    assert found[0] is None
    for at, value in enumerate(given[1:]):
        assert found[at + 1] == {
            **dict.fromkeys(f"member{each}" for each in range(5)),
            f"member{at}": value,
        }


def test_confluent_framing_is_taken_off() -> None:
    decoder = AvroDecoder(_ITEM, AvroFraming.CONFLUENT)
    plain = _encode(_ITEM, {"sku": "a", "count": 1})
    values = [b"\0\0\0\0\x2a" + plain, plain, b"\0\0\0", b""]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert list(decoded.corrupt) == [1, 2, 3]
    assert _rows(decoder, decoded)[0] == {"sku": "a", "count": 1}
    assert "no Confluent framing" in decoded.corrupt[1]


def test_what_the_client_writes_is_read() -> None:
    decoder = AvroDecoder(_ITEM, AvroFraming.SINGLE_OBJECT)
    other = {**_ITEM, "name": "Other"}
    record = {"sku": "a", "count": 1}
    values = [AvroSerializer(schema).serialize(record) for schema in (_ITEM, other)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert list(decoded.corrupt) == [1]
    assert _rows(decoder, decoded)[0] == record


def test_bytes_that_are_left_over_are_corrupt() -> None:
    value = _encode(_ITEM, {"sku": "a", "count": 1})
    decoded = AvroDecoder(_ITEM).decode(pa.array([value + b"x", value[:-1], value], pa.binary()))
    assert list(decoded.corrupt) == [0, 1]
    assert "1 bytes are left over" in decoded.corrupt[0]


def test_a_number_that_does_not_fit_its_column_spoils_only_its_row() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    wide = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "at", "type": "long"}],
    }
    records = [{"n": at, "at": at} for at in range(100)]
    records[17]["n"] = 2**31
    records[60]["at"] = 2**62
    values = [_encode(wide, record) for record in records]
    decoder = AvroDecoder(schema)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert list(decoded.corrupt) == [17, 60]
    assert decoded.columns[0].to_pylist() == [None if at in (17, 60) else at for at in range(100)]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("null", "'null'"),
        (["null"], "can only be null"),
        (["int", "long", "string"], "cannot be told apart"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, "up to 38 digits"),
        (["null", "R"], "contains itself"),
    ],
)
def test_a_type_that_spark_has_not_is_refused(kind: Any, told: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "odd", "type": kind}]}
    with pytest.raises(ValueError) as caught:
        AvroDecoder(schema)
    assert told in str(caught.value)
    assert "odd" in str(caught.value)


_EMPTY = {"type": "record", "name": "Empty", "fields": []}


def test_fields_of_a_type_without_fields_are_left_out() -> None:
    part = {"type": "record", "name": "Part", "fields": [_field("e", "Empty"), _field("n", "int")]}
    shell = {"type": "record", "name": "Shell", "fields": [_field("inner", "Empty")]}
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            _field("nothing", _EMPTY),
            _field("id", "long"),
            _field("many", {"type": "array", "items": "Empty"}),
            _field("named", {"type": "map", "values": ["null", "Empty"]}),
            _field("maybe", ["null", "Empty"]),
            _field("shell", shell),
            _field("either", ["Empty", "Shell"]),
            _field("part", part),
            _field("parts", {"type": "array", "items": "Part"}),
            _field("any", ["null", "string", "Empty", "Part"]),
        ],
    }
    record = {
        "nothing": {},
        "id": 7,
        "many": [{}, {}],
        "named": {"x": {}, "y": None},
        "maybe": {},
        "shell": {"inner": {}},
        "either": ("Shell", {"inner": {}}),
        "part": {"e": {}, "n": 1},
        "parts": [{"e": {}, "n": 2}],
    }
    anything = [None, "s", ("Empty", {}), ("Part", {"e": {}, "n": 3})]
    values = [_encode(schema, {**record, "any": each}) for each in anything]
    decoder = pickle.loads(pickle.dumps(AvroDecoder(schema)))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.corrupt == {}
    rows = _rows(decoder, decoded)
    assert rows[0] == {"id": 7, "part": {"n": 1}, "parts": [{"n": 2}], "any": None}
    # Members keep their numbers, and a value of the type without fields sets none of them.
    assert [row["any"] for row in rows[1:]] == [
        {"member0": "s", "member2": None},
        {"member0": None, "member2": None},
        {"member0": None, "member2": {"n": 3}},
    ]


@pytest.mark.parametrize("kinds", [[], [_EMPTY, ["null", "Empty"]]])
def test_a_schema_without_columns_is_refused(kinds: list[Any]) -> None:
    fields = [_field(f"f{at}", kind) for at, kind in enumerate(kinds)]
    with pytest.raises(ValueError, match="R has no field that could be a column"):
        AvroDecoder({"type": "record", "name": "R", "fields": fields})


def test_a_schema_that_is_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match="no record"):
        AvroDecoder("string")


def test_random_records_are_read_as_fastavro_reads_them() -> None:
    random.seed(7)
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["null", "long"]},
            {"name": "b", "type": {"type": "array", "items": ["null", _ITEM]}},
            {"name": "c", "type": {"type": "map", "values": "bytes"}},
            {"name": "d", "type": "float"},
            {"name": "e", "type": "boolean"},
        ],
    }
    records = list(generate_many(schema, 200))
    decoder = AvroDecoder(schema)
    decoded = decoder.decode(pa.array([_encode(schema, each) for each in records], pa.binary()))
    assert decoded.corrupt == {}
    for row, record in zip(_rows(decoder, decoded), records, strict=True):
        assert {**row, "c": dict(row["c"]), "d": None} == {**record, "d": None}
        assert row["d"] == pytest.approx(record["d"], rel=1e-6)


_GOOD = _encode(_ORDER, _RECORD)


@given(st.lists(st.tuples(st.integers(0, len(_GOOD) - 1), st.binary(max_size=3)), max_size=4))
def test_tampered_bytes_never_raise_and_spoil_no_other_row(edits: list[tuple[int, bytes]]) -> None:
    value = _GOOD
    for at, piece in edits:
        value = value[:at] + piece + value[at + 1 :]
    decoder = AvroDecoder(_ORDER)
    decoded = decoder.decode(pa.array([_GOOD, value, _GOOD], pa.binary()))
    rows = _rows(decoder, decoded)
    assert set(decoded.corrupt) <= {1}
    assert rows[0] == rows[2]
    assert rows[0]["id"] == 7
