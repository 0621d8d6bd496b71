"""Protobuf messages to columns: every type, Confluent's framing, and bytes that are none."""

import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.formats.proto_files import descriptor_set, message_class
from tidelog.spark.formats.columns import arrow_type
from tidelog.spark.formats.decoding import Decoded
from tidelog.spark.formats.protobuf import ProtobufDecoder, ProtobufFraming

_SET = descriptor_set()
_ORDER = message_class("shop.Order")


def _order(**fields: Any) -> bytes:
    return _ORDER(**fields).SerializeToString()


def _rows(decoder: ProtobufDecoder, decoded: Decoded) -> list[dict[str, Any]]:
    for column, field in zip(decoded.columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(field.dataType)
    rows: list[dict[str, Any]] = pa.table(decoded.columns, names=decoder.schema.names).to_pylist()
    return rows


def _decode(values: list[bytes | None], name: str = "shop.Order") -> tuple[Any, dict[int, str]]:
    decoder = pickle.loads(pickle.dumps(ProtobufDecoder(_SET, name)))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    return _rows(decoder, decoded), decoded.corrupt


_FULL: dict[str, Any] = {
    "id": -5,
    "small": -7,
    "unsigned": 2**32 - 1,
    "huge": 2**64 - 1,
    "price": 0.1,
    "ratio": 0.5,
    "paid": True,
    "who": "ü",
    "hash": b"\0\xff",
    "state": 5,
    "first": {"sku": "a", "count": 1},
    "items": [{"sku": "b", "count": 2}, {}],
    "states": [0, 5],
    "counts": {"x": 1, "y": -2},
    "at": {"seconds": -1, "nanos": 999_999_999},
    "took": {"seconds": 90, "nanos": 1_000},
    "note": {"value": ""},
    "card": "visa",
}


def test_every_type_becomes_that_of_spark() -> None:
    (row,), corrupt = _decode([_order(**_FULL)])
    assert corrupt == {}
    assert {**row, "counts": dict(row["counts"])} == {
        **_FULL,
        "huge": Decimal(2**64 - 1),
        "state": "PAID",
        "items": [{"sku": "b", "count": 2}, {"sku": "", "count": 0}],
        "states": ["NEW", "PAID"],
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "took": timedelta(seconds=90, microseconds=1),
        "note": "",
        "cash": None,
    }


def test_fields_that_were_not_set_are_null_or_have_their_default() -> None:
    rows, corrupt = _decode([b"", None])
    assert corrupt == {}
    assert rows[0] == {
        **dict.fromkeys(_FULL),
        "id": 0,
        "small": 0,
        "unsigned": 0,
        "huge": 0,
        "price": 0.0,
        "ratio": 0.0,
        "paid": False,
        "who": "",
        "hash": b"",
        "state": "NEW",
        "items": [],
        "states": [],
        "counts": [],
        "cash": None,
    }
    assert rows[1] == dict.fromkeys([*_FULL, "cash"])


def test_an_enum_without_a_name_is_its_number() -> None:
    (row,), _ = _decode([_order(state=77, states=[5, 9])])
    assert row["state"] == "77"
    assert row["states"] == ["PAID", "9"]


def test_fields_of_a_type_without_fields_are_left_out() -> None:
    event = message_class("hollow.Event")
    value = event(
        id=7,
        nothing={},
        many=[{}, {}],
        shell={"inner": {}},
        part={"nothing": {}, "count": 1},
        parts=[{"count": 2}, {}],
    )
    value.named["x"].SetInParent()  # type: ignore[attr-defined]
    rows, corrupt = _decode([value.SerializeToString(), b""], "hollow.Event")
    assert corrupt == {}
    assert rows == [
        {"id": 7, "part": {"count": 1}, "parts": [{"count": 2}, {"count": 0}]},
        {"id": 0, "part": None, "parts": []},
    ]


def test_required_fields_are_required() -> None:
    old = message_class("shop.Old")
    whole = old(id=3, **{"from": "here"}).SerializeToString()
    rows, corrupt = _decode([whole, b"\x12\x01x"], "shop.Old")
    assert rows == [{"id": 3, "name": None, "from": "here"}, dict.fromkeys(["id", "name", "from"])]
    assert "required fields are missing: id" in corrupt[1]


def test_confluent_framing_names_the_message() -> None:
    value = _order(id=7)
    decoder = ProtobufDecoder(_SET, "shop.Order", ProtobufFraming.CONFLUENT)
    prefix = b"\0\0\0\0\x01"
    values = [
        prefix + b"\x02\x02" + value,  # one index, which is 1
        prefix + b"\x00" + value,  # the first message of the file
        prefix + b"\x04\x02\x00" + value,  # a message inside of it
        value,
        prefix,
        prefix + b"\x02",
    ]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert list(decoded.corrupt) == [1, 2, 3, 4, 5]
    assert _rows(decoder, decoded)[0]["id"] == 7
    inner = ProtobufDecoder(_SET, "shop.Order.Item", ProtobufFraming.CONFLUENT)
    assert inner.decode(pa.array([prefix + b"\x04\x02\x00"], pa.binary())).corrupt == {}


@pytest.mark.parametrize(
    ("files", "name", "told"),
    [
        (_SET, "shop.Nothing", "there is no message 'shop.Nothing'; there are shop.Node"),
        (_SET, "shop.Node", "next has the type shop.Node, which contains itself"),
        (
            _SET,
            "google.protobuf.Empty",
            "google.protobuf.Empty has no field that could be a column",
        ),
        (_SET, "hollow.Shell", "hollow.Shell has no field that could be a column"),
        (b"\xff\xff", "shop.Order", "not a descriptor set"),
        (descriptor_set(with_imports=False), "shop.Order", "--include_imports"),
    ],
)
def test_what_is_wrong_with_a_descriptor_is_told(files: bytes, name: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:
        ProtobufDecoder(files, name)
    assert told in str(caught.value)


@given(st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=4))
def test_tampered_bytes_never_raise_and_spoil_no_other_row(edits: list[tuple[int, bytes]]) -> None:
    good = _order(**_FULL)
    value = good
    for at, piece in edits:
        value = value[:at] + piece + value[at + 1 :]
    rows, corrupt = _decode([good, value, good])
    assert set(corrupt) <= {1}
    assert rows[0] == rows[2]
    assert rows[0]["id"] == -5
