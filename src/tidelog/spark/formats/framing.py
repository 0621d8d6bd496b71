"""What stands before the data in a value: how a producer marks which schema it wrote with.

Confluent's serialisers write a zero byte and the schema's number in a registry (4 bytes); for
Protobuf the place of the message in its file follows. Avro's own single-object encoding, which
`tidelog.client.serializers.avro` writes, has two marker bytes and the fingerprint of the schema.
The numbers of a registry are not looked up: the given schema must be the one it was written with.
"""

CONFLUENT_BYTES = 5

_CONFLUENT_MAGIC = 0
_SINGLE_OBJECT_MARKER = b"\xc3\x01"
_VARINT_BYTES_MAX = 10


class FramingError(ValueError):
    """A value does not begin as it should."""


def confluent_start(data: bytes) -> int:
    """Where the data begins after Confluent's magic byte and schema number."""
    if len(data) < CONFLUENT_BYTES or data[0] != _CONFLUENT_MAGIC:
        raise FramingError(
            f"no Confluent framing: the value begins with {data[:5].hex() or 'nothing'}"
        )
    return CONFLUENT_BYTES


def single_object_start(data: bytes, fingerprint: bytes) -> int:
    """Where the data begins after the marker and the fingerprint of this schema."""
    prefix = _SINGLE_OBJECT_MARKER + fingerprint
    if not data.startswith(prefix):
        begins = data[: len(prefix)].hex() or "nothing"
        raise FramingError(f"the value begins with {begins}, this schema with {prefix.hex()}")
    return len(prefix)


def confluent_message_start(data: bytes, expected: tuple[int, ...]) -> int:
    """Where a Protobuf message begins.

    `expected` is its place in its file: (1, 0) is the first message inside of the second one.
    """
    count, at = _zigzag(data, confluent_start(data))
    if count == 0:
        # How the first message of a file is written.
        indexes: tuple[int, ...] = (0,)
    else:
        if not 0 < count <= len(expected):
            raise FramingError(f"the value is another message of its file (depth {count})")
        found = []
        for _ in range(count):
            index, at = _zigzag(data, at)
            found.append(index)
        indexes = tuple(found)
    if indexes != expected:
        raise FramingError(f"the value is message {indexes} of its file, not {expected}")
    return at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(data):
            raise FramingError("the value ends within its framing")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise FramingError("the framing has a number without end")
