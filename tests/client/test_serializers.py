"""Serialisers: what goes in comes back, and what does not fit is refused with a reason."""

from dataclasses import dataclass

import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from tidelog.client import SerializationError
from tidelog.client.serializers import BytesSerializer, JsonSerializer, StringSerializer
from tidelog.client.serializers.avro import AvroSerializer
from tidelog.client.serializers.protobuf import ProtobufSerializer

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
OLD_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEW_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string", "default": "unknown"},
    ],
}


@dataclass
class Order:
    id: int
    item: str


@pytest.mark.parametrize(
    "serializer",
    [
        BytesSerializer(),
        StringSerializer(),
        JsonSerializer(),
        AvroSerializer(ORDER),
        ProtobufSerializer(Int64Value),
    ],
)
def test_none_is_a_tombstone_both_ways(serializer: BytesSerializer) -> None:
    assert serializer.serialize(None) is None
    assert serializer.deserialize(None) is None


def test_bytes_pass_and_text_is_encoded() -> None:
    assert BytesSerializer().serialize(b"\xff") == b"\xff"
    assert BytesSerializer().serialize("é") == "é".encode()
    with pytest.raises(SerializationError, match="dict"):
        BytesSerializer().serialize({"a": 1})


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(SerializationError, match="UTF-8"):
        StringSerializer().deserialize(b"\xff")


def test_typed_json_gives_the_type_back() -> None:
    serializer = JsonSerializer(Order)
    data = serializer.serialize(Order(1, "tea"))
    assert data == b'{"id":1,"item":"tea"}'
    assert serializer.deserialize(data) == Order(1, "tea")


def test_typed_json_names_the_field_that_is_wrong() -> None:
    with pytest.raises(SerializationError, match=r"\$\.id"):
        JsonSerializer(Order).deserialize(b'{"id":"x","item":"tea"}')
    with pytest.raises(SerializationError, match="item"):
        JsonSerializer(Order).serialize({"id": 1})


def test_avro_round_trip_carries_the_schema_fingerprint() -> None:
    serializer = AvroSerializer(ORDER)
    data = serializer.serialize({"id": 7, "item": "tea"})
    assert data is not None
    assert data[:2] == b"\xc3\x01"
    assert serializer.deserialize(data) == {"id": 7, "item": "tea"}


def test_avro_refuses_bytes_of_a_schema_it_does_not_know() -> None:
    data = AvroSerializer(OLD_ORDER).serialize({"id": 7})
    with pytest.raises(SerializationError, match="also_reads"):
        AvroSerializer(NEW_ORDER).deserialize(data)


def test_avro_resolves_an_older_schema() -> None:
    data = AvroSerializer(OLD_ORDER).serialize({"id": 7})
    reader = AvroSerializer(NEW_ORDER, also_reads=(OLD_ORDER,))
    assert reader.deserialize(data) == {"id": 7, "item": "unknown"}


def test_avro_refuses_a_value_of_another_shape() -> None:
    with pytest.raises(SerializationError, match="schema"):
        AvroSerializer(ORDER).serialize({"id": "seven", "item": "tea"})


def test_protobuf_round_trip_and_wrong_class() -> None:
    serializer = ProtobufSerializer(Int64Value)
    data = serializer.serialize(Int64Value(value=12))
    assert serializer.deserialize(data) == Int64Value(value=12)
    with pytest.raises(SerializationError, match="Int64Value"):
        serializer.serialize(StringValue(value="x"))
    with pytest.raises(SerializationError, match="parse"):
        serializer.deserialize(b"\xff\xff\xff")
