import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.varint import encode_varint
from tidelog.protocol.varint import read_varint as read_plainly
from tidelog.spark.decode.walk import add_saturating, read_varint
from tidelog.spark.runtime.compiled import byte_view

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(number=INT64 | st.sampled_from([0, -1, 63, -64, 64, 2**63 - 1, -(2**63)]))
def test_numbers_come_back(number: int) -> None:
    data = encode_varint(number)
    assert read_varint(byte_view(data), 0, len(data)) == (number, len(data))
    assert read_varint(byte_view(data), 0, len(data) - 1) == (0, -1)


@given(data=st.binary(min_size=1, max_size=12).map(lambda raw: bytes([raw[0] | 0x80]) + raw[1:]))
def test_any_bytes_are_read_as_the_protocol_reads_them(data: bytes) -> None:
    try:
        expected = read_plainly(data, 0)
    except (ProtocolError, IndexError):
        expected = (0, -1)
    assert read_varint(byte_view(data), 0, len(data)) == expected


@given(data=st.binary(min_size=9, max_size=9), last=st.integers(0, 255))
def test_the_longest_numbers_are_read_as_the_protocol_reads_them(data: bytes, last: int) -> None:
    longest = bytes(byte | 0x80 for byte in data) + bytes([last])
    try:
        expected = read_plainly(longest, 0)
    except (ProtocolError, IndexError):
        expected = (0, -1)
    assert read_varint(byte_view(longest), 0, len(longest)) == expected


@given(base=INT64, delta=INT64)
def test_a_sum_stops_at_the_ends(base: int, delta: int) -> None:
    assert add_saturating(base, delta) == max(-(2**63), min(2**63 - 1, base + delta))


def test_what_is_only_read_has_one_type() -> None:
    views = [byte_view(each) for each in (b"x", bytearray(b"x"), memoryview(b"x"))]
    assert len({type(each) for each in views}) == 1
    for view in views:
        if isinstance(view, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 1
