"""Generated codecs against an interpreting one over the same schema.

    python -m benchmarks.codec

The interpreter walks the fields of a class for every message, as a codec does that is not
generated. Prints microseconds a call and how many times faster the generated code is.
"""

import struct
import timeit
from collections.abc import Callable
from typing import Any

from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.fetch import decode_fetch_request
from tidelog.protocol.fields import STRING, Array, FieldType, Primitive
from tidelog.protocol.produce import decode_produce_request, encode_single_produce_response
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import Message
from tidelog.protocol.varint import encode_uvarint, read_uvarint

_STRUCTS = {code: struct.Struct(f">{code}") for code in ("?", "b", "h", "H", "i", "I", "q", "d")}
_STRUCTS["16s"] = struct.Struct(">16s")


class Interpreter:
    """Encodes and decodes by asking the schema at every field."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_FROM

    def encode(self, message: Message) -> bytes:
        out: list[bytes] = []
        self._put_struct(type(message), message, out)
        return b"".join(out)

    def decode(self, data: bytes) -> Any:
        message, _ = self._take_struct(self.cls, memoryview(data), 0)
        return message

    def _put_struct(self, cls: Any, message: Any, out: list[bytes]) -> None:
        tagged = []
        for field in cls.FIELDS:
            if self.version not in field.versions:
                continue
            value = getattr(message, field.name)
            if self.flexible and field.is_tagged(self.version):
                if value != field.make_default():
                    content: list[bytes] = []
                    self._put(field.type, value, content)
                    tagged.append((field.tag, b"".join(content)))
                continue
            self._put(field.type, value, out)
        if self.flexible:
            out.append(encode_uvarint(len(tagged)))
            for tag, piece in sorted(tagged):
                out += (encode_uvarint(tag), encode_uvarint(len(piece)), piece)

    def _put(self, kind: FieldType, value: Any, out: list[bytes]) -> None:
        if isinstance(kind, Array):
            self._put_length("i", -1 if value is None else len(value), out)
            for item in value or ():
                self._put(kind.element, item, out)
        elif isinstance(kind, Primitive):
            if kind.code:
                out.append(_STRUCTS[kind.code].pack(value))
                return
            raw = value.encode() if isinstance(value, str) else value
            self._put_length("h" if kind is STRING else "i", -1 if raw is None else len(raw), out)
            if raw is not None:
                out.append(raw)
        else:
            self._put_struct(kind, value, out)

    def _put_length(self, code: str, length: int, out: list[bytes]) -> None:
        out.append(encode_uvarint(length + 1) if self.flexible else _STRUCTS[code].pack(length))

    def _take_struct(self, cls: Any, data: memoryview, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        tagged = {}
        for field in cls.FIELDS:
            if self.version not in field.versions:
                continue
            if self.flexible and field.is_tagged(self.version):
                tagged[field.tag] = field
                continue
            values[field.name], at = self._take(field.type, data, at)
        if self.flexible:
            count, at = read_uvarint(data, at)
            for _ in range(count):
                tag, at = read_uvarint(data, at)
                size, at = read_uvarint(data, at)
                if tag in tagged:
                    values[tagged[tag].name], _ = self._take(tagged[tag].type, data, at)
                at += size
        return cls(**values), at

    def _take(self, kind: FieldType, data: memoryview, at: int) -> tuple[Any, int]:
        if isinstance(kind, Array):
            count, at = self._take_length("i", data, at)
            if count < 0:
                return None, at
            items = []
            for _ in range(count):
                item, at = self._take(kind.element, data, at)
                items.append(item)
            return items, at
        if isinstance(kind, Primitive):
            if kind.code:
                layout = _STRUCTS[kind.code]
                return layout.unpack_from(data, at)[0], at + layout.size
            length, at = self._take_length("h" if kind is STRING else "i", data, at)
            if length < 0:
                return None, at
            raw = data[at : at + length]
            return (str(raw, "utf-8") if kind is STRING else raw), at + length
        return self._take_struct(kind, data, at)

    def _take_length(self, code: str, data: memoryview, at: int) -> tuple[int, int]:
        if self.flexible:
            length, at = read_uvarint(data, at)
            return length - 1, at
        layout = _STRUCTS[code]
        return layout.unpack_from(data, at)[0], at + layout.size


def metadata_response() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=at, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for at in range(100)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=at, host="localhost", port=9092) for at in (1, 2)],
        topics=[MetadataResponseTopic(name="orders", partitions=partitions)],
    )


def messages() -> list[tuple[Message, int]]:
    batch = bytes(encode_batch([Record(0, 1, None, b"x" * 100)]))
    produced = TopicProduceData(
        name="orders", partition_data=[PartitionProduceData(index=3, records=batch)]
    )
    answer = TopicProduceResponse(
        name="orders", partition_responses=[PartitionProduceResponse(index=3, base_offset=9)]
    )
    wanted = FetchTopic(
        topic="orders",
        topic_id=b"i" * 16,
        partitions=[FetchPartition(partition=3, fetch_offset=9, partition_max_bytes=2**20)],
    )
    return [
        (MetadataRequest(topics=None), 12),
        (metadata_response(), 12),
        (metadata_response(), 5),
        (ProduceRequest(acks=-1, topic_data=[produced]), 10),
        (ProduceResponse(responses=[answer]), 10),
        (FetchRequest(max_wait_ms=500, topics=[wanted]), 16),
    ]


def microseconds(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    count = max(1, int(0.05 / max(timer.timeit(3) / 3, 1e-7)))
    return min(timer.repeat(5, count)) / count * 1e6


def main() -> None:
    print(f"{'µs a call':<34}{'interpreted':>12}{'generated':>12}{'times':>8}{'by hand':>10}")
    for message, version in messages():
        compare(message, version)


def compare(message: Message, version: int) -> None:
    cls = type(message)
    interpreter = Interpreter(cls, version)
    encoded = message.encode(version)
    assert interpreter.encode(message) == encoded
    assert interpreter.decode(encoded) == cls.decode(encoded, version)
    by_hand = hand_made(message, version, encoded)
    name = f"{cls.__name__} v{version}"
    for direction, slow, fast in (
        ("decode", lambda: interpreter.decode(encoded), lambda: cls.decode(encoded, version)),
        ("encode", lambda: interpreter.encode(message), lambda: message.encode(version)),
    ):
        interpreted, generated = microseconds(slow), microseconds(fast)
        hand = by_hand.get(direction)
        print(
            f"{direction} {name}".ljust(34)
            + f"{interpreted:>12.2f}{generated:>12.2f}{interpreted / generated:>8.1f}"
            + (f"{microseconds(hand):>10.2f}" if hand else "")
        )


def hand_made(message: Message, version: int, encoded: bytes) -> dict[str, Callable[[], object]]:
    """The codecs of the hot path, where one exists for this message."""
    view = memoryview(encoded)
    if isinstance(message, ProduceRequest):
        return {"decode": lambda: decode_produce_request(view, version)}
    if isinstance(message, FetchRequest):
        return {"decode": lambda: decode_fetch_request(view, version)}
    if isinstance(message, ProduceResponse):
        return {
            "encode": lambda: encode_single_produce_response(version, 1, "orders", 3, 0, 9, -1, -1)
        }
    return {}


if __name__ == "__main__":
    main()
