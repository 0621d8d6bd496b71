"""The keys and values of a batch and nothing else: what loading a coordinator needs.

Loading reads millions of records of which offsets, timestamps and headers do not matter; skipping
them makes this about three times as fast as decoding whole records.
"""

from __future__ import annotations

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.varint import read_varint

Pair = tuple[bytes | None, bytes | None]


def record_pairs(section: bytes, record_count: int) -> list[Pair]:
    """From the decompressed records of one batch. Cost: about 0.7 µs a record."""
    pairs: list[Pair] = []
    append = pairs.append
    at = 0
    try:
        for _ in range(record_count):
            # A varint below 64 is one byte, twice its value.
            size = section[at]
            if size < 128:
                at += 1
                end = at + (size >> 1)
            else:
                length, at = read_varint(section, at)
                end = at + length
            at += 1
            while section[at] > 127:  # the timestamp's delta
                at += 1
            at += 1
            while section[at] > 127:  # the offset's delta
                at += 1
            at += 1
            size = section[at]
            if size < 128 and not size & 1:
                start = at + 1
                at = start + (size >> 1)
                key: bytes | None = section[start:at]
            else:
                key, at = _read_bytes(section, at)
            size = section[at]
            if size < 128 and not size & 1:
                start = at + 1
                at = start + (size >> 1)
                append((key, section[start:at]))
            else:
                value, at = _read_bytes(section, at)
                append((key, value))
            if at >= end:
                raise ProtocolError("a record passes its end")
            at = end
    except IndexError:
        raise ProtocolError(f"{record_count} records do not fit {len(section)} bytes") from None
    if at != len(section):
        raise ProtocolError(f"{record_count} records fill {at} of {len(section)} bytes")
    return pairs


def _read_bytes(section: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(section, at)
    if length < 0:
        return None, at
    return section[at : at + length], at + length
