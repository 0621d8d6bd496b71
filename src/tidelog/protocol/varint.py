"""Variable-length integers: unsigned ones of flexible messages, zigzag ones of records."""

from tidelog.protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """The unsigned 32-bit varint at `at`, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise ProtocolError("a varint exceeds 32 bits")
            return value, at
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than five bytes")


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """The zigzag varint of up to 64 bits at `at`, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = data[at + 1]
    if second < 0x80:
        # Zigzag keeps the sign in the lowest bit, which is in the first byte.
        return ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), at + 2
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                raise ProtocolError("a varint exceeds 64 bits")
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ProtocolError("a varint is longer than ten bytes")


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if 0 <= value < _TABLE_SIZE:
        return _TABLE[value]
    return _encode(value)


def _encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Lengths and deltas are small as a rule.
_TABLE_SIZE = 1024
_TABLE = [_encode(value) for value in range(_TABLE_SIZE)]


def encode_varint(value: int) -> bytes:
    """A signed number of up to 64 bits as a zigzag varint."""
    unsigned = (value << 1) ^ (value >> 63)
    return _TABLE[unsigned] if unsigned < _TABLE_SIZE else _encode(unsigned)
