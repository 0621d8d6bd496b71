"""Varints: both kinds, their limits, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.varint import encode_uvarint, encode_varint, read_uvarint, read_varint


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_round_trip(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(b"ab" + encoded, 2) == (value, 2 + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_encodings_are_the_known_ones(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101")],
)
def test_signed_encodings_are_zigzag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_varints_that_are_too_long_or_too_large_are_refused() -> None:
    for data in (b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(ProtocolError):
            read_uvarint(data, 0)
    for data in (b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x7f"):
        with pytest.raises(ProtocolError):
            read_varint(data, 0)
