"""JSON by blocks and by rows: the same answers, on fitting, wrong and hostile values."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.spark.formats.columns import arrow_type
from tidelog.spark.formats.ddl import parse_ddl
from tidelog.spark.formats.decoding import Decoded
from tidelog.spark.formats.json import ROWS_PER_BLOCK, JsonDecoder
from tidelog.spark.formats.json_blocks import BlockParser

_SCHEMA = parse_ddl(
    "id long, small byte, name string, price double, ratio float, ok boolean, at timestamp,"
    " day date, seen timestamp_ntz, tags array<string>, inner struct<x: int, at: array<timestamp>>"
)


def _rows(decoded: Decoded, schema: StructType) -> list[dict[str, Any]]:
    for column, field in zip(decoded.columns, schema, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(field.dataType)
    rows: list[dict[str, Any]] = pa.table(decoded.columns, names=schema.names).to_pylist()
    return rows


def _decode(values: Sequence[bytes | None], ddl: str) -> tuple[list[dict[str, Any]], list[int]]:
    decoder = JsonDecoder(parse_ddl(ddl))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    return _rows(decoded, decoder.schema), list(decoded.corrupt)


def _record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "small": number % 100,
        "name": f"name {number} é\n",
        "price": number / 7,
        "ratio": number / 3,
        "ok": number % 2 == 0,
        "at": "2026-01-31T12:30:15.5Z",
        "day": "2026-01-31",
        "seen": "2026-01-31 12:30:15",
        "tags": ["a", None],
        "inner": {"x": number, "at": ["2026-01-31T12:30:15Z", None]},
    }


def test_every_type_becomes_that_of_spark() -> None:
    ddl = (
        "a boolean, b byte, c short, d int, e long, f float, g double, h string, i binary, j date,"
        " k timestamp, l timestamp_ntz, m decimal(6, 2), n array<int>, o map<string, long>,"
        " p struct<x: string, y: array<decimal(3, 1)>>, q string"
    )
    value = {
        "a": True,
        "b": -128,
        "c": 32767,
        "d": -(2**31),
        "e": 2**63 - 1,
        "f": 0.5,
        "g": 1,
        "h": "ü",
        "i": "AAH/",
        "j": "1969-12-31",
        "k": "2026-01-31T13:00:00+01:00",
        "l": "2026-01-31T13:00:00",
        "m": 1234.565,
        "n": [1, None],
        "o": {"x": 1, "y": None},
        "p": {"x": None, "y": ["1.25", 2]},
    }
    rows, corrupt = _decode([json.dumps(value).encode(), None], ddl)
    assert corrupt == []
    assert rows[0] == {
        **value,
        "i": b"\x00\x01\xff",
        "j": date(1969, 12, 31),
        "k": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "l": datetime(2026, 1, 31, 13),
        "m": Decimal("1234.57"),
        "o": [("x", 1), ("y", None)],
        "p": {"x": None, "y": [Decimal("1.3"), Decimal("2.0")]},
        "q": None,
    }
    assert rows[1] == dict.fromkeys("abcdefghijklmnopq")


def test_missing_is_null_and_extra_is_ignored() -> None:
    rows, corrupt = _decode(
        [b'{"a":1}', b'{"b":"x","c":[{}]}', b"{}", b'{"a":null}', b"null", None], "a int, b string"
    )
    assert [(row["a"], row["b"]) for row in rows] == [(1, None), (None, "x"), *[(None, None)] * 4]
    assert corrupt == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'"x"',
        b"{",
        b'{"a":1',
        b'{"a":1}{"a":2}',
        b'{"a":1},"w":2',
        b'{"a":1}}\n{"v":{"a":2}',
        b'{"a":1}\x00',
        b'{"a":"1"}',
        b'{"a":1.5}',
        b'{"a":true}',
        b'{"a":2147483648}',
        b'{"a":01}',
        b"{'a':1}",
        b'{"b":1}',
        b'{"b":"\xff"}',
        b'{"b":"\\ud800"}',
        b'{"b":"line\nend"}',
        b'{"at":"yesterday"}',
        b'{"at":1706700000}',
        b'{"c":NaN}',
        b'{"c":1e999}',
        b'{"d":{"x":"1"}}',
        b'{"d":[]}',
    ],
)
def test_a_value_of_another_kind_is_corrupt_and_only_that(value: bytes) -> None:
    ddl = "a int, b string, c double, at timestamp, d struct<x: int>"
    rows, corrupt = _decode([b'{"a":1}', value, b'{"a":3}', b'{"a":4}'], ddl)
    assert corrupt == [1]
    assert [row["a"] for row in rows] == [1, None, 3, 4]
    assert rows[1] == dict.fromkeys(["a", "b", "c", "at", "d"])


def test_the_reason_names_the_field() -> None:
    decoder = JsonDecoder(parse_ddl("order struct<id: int>"))
    decoded = decoder.decode(pa.array([b'{"order":{"id":"x"}}'], pa.binary()))
    assert "$.order.id" in decoded.corrupt[0]
    decoder = JsonDecoder(parse_ddl("order struct<price: decimal(6, 2)>"))
    decoded = decoder.decode(pa.array([b'{"order":{"price":"1_000"}}'], pa.binary()))
    assert decoded.corrupt == {0: "'1_000' is no number as JSON has them - at `$.order.price`"}


@pytest.mark.parametrize(
    "text", ["0", "-0", "12.50", "-0.5", "1e2", "1.25E+2", "100e-2", "9" * 20 + ".25"]
)
def test_a_decimal_is_a_number_or_the_text_of_one(text: str) -> None:
    values = [f'{{"a": {text}, "b": [{text}]}}', f'{{"a": "{text}", "b": ["{text}"]}}']
    ddl = "a decimal(38, 2), b array<decimal(38, 2)>"
    rows, corrupt = _decode([each.encode() for each in values], ddl)
    assert corrupt == []
    assert rows == [{"a": Decimal(text), "b": [Decimal(text)]}] * 2


@pytest.mark.parametrize(
    "value",
    [
        *('"1_000"', '"  1"', '"1 "', '"1\\n"', '"\u0663"', '"+1"', '"01"', '".5"', '"1."', '"1e"'),
        *('""', '"x"', '"NaN"', '"Infinity"', "true", "[1]", "{}", "01", "NaN"),
        *("1e99999999999999999999", '"1e99999999999999999999"', "1.5e9999999", "9" * 5000),
    ],
)
def test_what_is_no_number_is_no_decimal(value: str) -> None:
    texts = ['{"a": 1}', f'{{"a": {value}}}', '{"a": 3}']
    rows, corrupt = _decode([each.encode() for each in texts], "a decimal(38, 2)")
    assert corrupt == [1]
    assert [row["a"] for row in rows] == [Decimal(1), None, Decimal(3)]


def test_values_that_fit_are_read_by_blocks() -> None:
    parser = BlockParser.for_schema(_SCHEMA)
    assert parser is not None
    values: list[bytes | None] = [
        json.dumps(_record(number), indent=2).encode() for number in range(50)
    ]
    values += [None, b"null", b"{}"]
    columns = parser.parse(pa.array(values, pa.binary()))
    assert columns is not None
    decoder = JsonDecoder(_SCHEMA, by_blocks=False)
    by_rows = decoder.decode(pa.array(values, pa.binary()))
    assert _rows(Decoded(columns, {}), _SCHEMA) == _rows(by_rows, _SCHEMA)
    assert by_rows.corrupt == {}


def test_many_rows_and_slices_keep_their_places() -> None:
    values: list[bytes | None] = [
        json.dumps(_record(number)).encode() for number in range(3 * ROWS_PER_BLOCK + 5)
    ]
    for at in (0, 7, 2 * ROWS_PER_BLOCK + 1, len(values) - 1):
        values[at] = b"broken"
    values[9] = None
    decoder = pickle.loads(pickle.dumps(JsonDecoder(_SCHEMA)))
    column = pa.array([b"before", *values], pa.binary()).slice(1)
    decoded = decoder.decode(column)
    assert list(decoded.corrupt) == [0, 7, 2 * ROWS_PER_BLOCK + 1, len(values) - 1]
    ids = decoded.columns[0].to_pylist()
    assert ids == [None if at in decoded.corrupt or at == 9 else at for at in range(len(values))]


def test_no_rows_are_no_rows() -> None:
    decoder = JsonDecoder(_SCHEMA)
    decoded = decoder.decode(pa.array([], pa.binary()))
    assert _rows(decoded, decoder.schema) == []


@pytest.mark.parametrize("ddl", ["a map<int, string>", "a struct<b: map<long, long>>"])
def test_a_type_that_json_has_not_is_refused(ddl: str) -> None:
    with pytest.raises(ValueError, match=r"a.* is a map with keys that JSON has not"):
        JsonDecoder(parse_ddl(ddl))


# Random schemas with values that mostly fit, and texts that were tampered with.

_leaves: st.SearchStrategy[DataType] = st.sampled_from(
    [
        BooleanType(),
        ByteType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        StringType(),
        DateType(),
        TimestampType(),
    ]
)


def _struct(kinds: list[DataType]) -> StructType:
    return StructType([StructField(f"f{at}", kind) for at, kind in enumerate(kinds)])


_types = st.recursive(
    _leaves,
    lambda inner: inner.map(ArrayType) | st.lists(inner, min_size=1, max_size=3).map(_struct),
    max_leaves=4,
)
_anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**65), 2**65),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["2026-01-31", "2026-01-31T12:30:15Z", "2026-01-31 12:30:15.123456789"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["f0", "f1", "x"]), inner)
    ),
    max_leaves=6,
)


def _fitting(kind: DataType) -> st.SearchStrategy[Any]:
    match kind:
        case BooleanType():
            return st.booleans()
        case ByteType():
            return st.integers(-128, 127)
        case IntegerType():
            return st.integers(-(2**31), 2**31 - 1)
        case LongType():
            return st.integers(-(2**63), 2**63 - 1)
        case FloatType() | DoubleType():
            return st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())
        case StringType():
            return st.text(max_size=8)
        case DateType():
            return st.dates().map(str)
        case TimestampType():
            return st.datetimes().map(str) | st.datetimes(timezones=st.just(UTC)).map(str)
        case ArrayType():
            return st.lists(st.none() | _fitting(kind.elementType), max_size=3)
    assert isinstance(kind, StructType)
    return _object(kind)


def _object(kind: StructType) -> st.SearchStrategy[dict[str, Any]]:
    fields = {field.name: st.none() | _fitting(field.dataType) for field in kind}
    return st.fixed_dictionaries({}, optional=fields)


_PIECES = [
    b"{",
    b"}",
    b",",
    b'"',
    b"\\",
    b"\n",
    b"\x00",
    b"[",
    b"]",
    b"-0",
    b" ",
    b'{"v":',
    b"\xff",
]


@st.composite
def _cases(draw: st.DrawFn) -> tuple[StructType, list[bytes | None]]:
    schema = draw(st.lists(_types, min_size=1, max_size=3).map(_struct))
    record = _object(schema)
    values: list[bytes | None] = []
    for _ in range(draw(st.integers(0, 6))):
        value = draw(st.one_of(record, record, record, _anything))
        text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            at = draw(st.integers(0, len(text)))
            cut = draw(st.integers(0, 2))
            text = text[:at] + draw(st.sampled_from(_PIECES)) + text[at + cut :]
        values.append(draw(st.sampled_from([text, text, text, text, None])))
    return schema, values


@given(_cases())
def test_blocks_and_rows_agree(case: tuple[StructType, list[bytes | None]]) -> None:
    schema, values = case
    column = pa.array(values, pa.binary())
    by_blocks = JsonDecoder(schema).decode(column)
    by_rows = JsonDecoder(schema, by_blocks=False).decode(column)
    # repr tells 0.0 from -0.0.
    assert repr(_rows(by_blocks, schema)) == repr(_rows(by_rows, schema))
    assert by_blocks.corrupt == by_rows.corrupt


@given(_cases())
def test_an_independent_reader_agrees_on_which_rows_are_json_objects(
    case: tuple[StructType, list[bytes | None]],
) -> None:
    schema, values = case
    decoded = JsonDecoder(schema).decode(pa.array(values, pa.binary()))
    for at, value in enumerate(values):
        if value is not None and at not in decoded.corrupt:
            try:
                # Bytes of fields that nobody reads are not checked.
                parsed = json.loads(value.decode(errors="replace"))
            except RecursionError:
                continue
            assert parsed is None or isinstance(parsed, dict)
