"""The language of messages: constructors, defaults, versions, nulls and tags."""

import copy

import pytest

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    INT64,
    NEVER,
    RECORDS,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    field,
)
from tidelog.protocol.uuids import ZERO_UUID


class Point(Struct):
    x: int = field(INT32, "0+")
    label: str | None = field(STRING, "1+", nullable="1+", default=None)


class Sample(Message, api_key=7, versions="0-3", flexible="2+"):
    count: int = field(INT16, "0+", default=5)
    name: str = field(STRING, "0+")
    payload: bytes = field(BYTES, "1+")
    identity: bytes = field(UUID, "0+")
    points: list[Point] | None = field(Array(Point), "0+", nullable="1+")
    numbers: list[int] = field(Array(INT64), "0+")
    names: list[str] = field(Array(STRING), "0+")
    centre: Point | None = field(Point, "3+", nullable="3+", default=None)
    flag: bool = field(BOOL, "2+", tag=1, tagged="2+")
    hint: Point = field(Point, "2+", tag=0, tagged="2+")
    late: Point | None = field(Point, "2+", nullable="2+", tag=2, tagged="2+", default=None)
    early: str = field(STRING, "0-1")


class Carrier(Message, versions="0-1", flexible="1+"):
    records: memoryview | bytes | None = field(RECORDS, "0+", nullable="0+")
    after: bytes = field(BYTES, "0+")


class Empty(Message, versions="0-1", flexible="1+"):
    pass


def test_the_constructor_knows_only_keywords_and_fills_in_defaults() -> None:
    sample = Sample(name="a")
    assert (sample.count, sample.name, sample.payload) == (5, "a", b"")
    assert (sample.identity, sample.points, sample.centre) == (ZERO_UUID, [], None)
    assert sample.hint == Point()
    with pytest.raises(TypeError):
        Sample("a")  # type: ignore[misc, arg-type]
    with pytest.raises(TypeError):
        Sample(nmae="a")  # type: ignore[call-arg]


def test_every_message_has_defaults_of_its_own() -> None:
    first, second = Sample(), Sample()
    assert first.points is not None
    first.points.append(Point())
    first.hint.x = 9
    assert second == Sample()


def test_messages_have_slots_equality_and_a_repr_that_reads_like_the_constructor() -> None:
    sample = Sample(name="a", points=[Point(x=1)])
    assert sample == copy.deepcopy(sample)
    assert sample != Sample(name="b")
    assert sample != object()
    assert repr(Point(x=1)) == "Point(x=1, label=None)"
    assert not hasattr(sample, "__dict__")
    with pytest.raises(AttributeError):
        sample.nmae = "typo"  # type: ignore[attr-defined]


def test_the_class_knows_its_key_and_versions() -> None:
    assert (Sample.API_KEY, Sample.MIN_VERSION, Sample.MAX_VERSION) == (7, 0, 3)
    assert Sample.FLEXIBLE_FROM == 2
    assert Empty.API_KEY == -1

    class Rigid(Message, api_key=1, versions="4"):
        pass

    assert (Rigid.MIN_VERSION, Rigid.MAX_VERSION, Rigid.FLEXIBLE_FROM) == (4, 4, NEVER)


def test_the_bytes_of_a_classic_version_are_the_ones_of_the_protocol() -> None:
    sample = Sample(count=1, name="ab", points=[Point(x=2)], numbers=[3], names=["c"], early="d")
    assert (
        sample.encode(0)
        == (
            b"\x00\x01"  # count
            b"\x00\x02ab" + ZERO_UUID + b"\x00\x00\x00\x01"  # name  # points
            b"\x00\x00\x00\x02"
            b"\x00\x00\x00\x01"  # numbers
            b"\x00\x00\x00\x00\x00\x00\x00\x03"
            b"\x00\x00\x00\x01"  # names
            b"\x00\x01c"
            b"\x00\x01d"  # early
        )
    )


def test_the_bytes_of_a_flexible_version_are_the_ones_of_the_protocol() -> None:
    sample = Sample(count=1, name="ab", points=None, centre=Point(x=2), flag=True)
    assert (
        sample.encode(3)
        == (
            b"\x00\x01"  # count
            b"\x03ab"  # name
            b"\x01" + ZERO_UUID + b"\x00"  # payload  # points: null
            b"\x01"  # numbers
            b"\x01"  # names
            b"\x01"  # centre is there
            b"\x00\x00\x00\x02\x00\x00"
            b"\x01\x01\x01\x01"  # one tag: flag, one byte, true
        )
    )


def test_tags_are_written_in_order_and_only_when_they_say_something() -> None:
    head = Sample().encode(2)[:-1]
    assert Sample().encode(2) == head + b"\x00"
    tagged = Sample(flag=True, hint=Point(x=1), late=Point(x=2)).encode(2)
    assert (
        tagged
        == (
            head + b"\x03"
            b"\x00\x06\x00\x00\x00\x01\x00\x00"  # hint
            b"\x01\x01\x01"  # flag
            b"\x02\x07\x01\x00\x00\x00\x02\x00\x00"  # late: a mark that it is not null, then it
        )
    )


def test_tags_that_are_not_known_are_skipped() -> None:
    head = Sample().encode(2)[:-1]
    unknown = head + b"\x02" + b"\x01\x01\x01" + b"\x64\x03abc"
    assert Sample.decode(unknown, 2) == Sample(flag=True)
    assert Empty.decode(b"\x02\x00\x01x\xff\x01\x00", 1) == Empty()


def test_a_tag_whose_size_does_not_fit_its_field_is_refused() -> None:
    head = Sample().encode(2)[:-1]
    with pytest.raises(ProtocolError, match="flag"):
        Sample.decode(head + b"\x01\x01\x02\x01\x01", 2)


def test_null_is_refused_where_the_version_knows_none() -> None:
    with pytest.raises(ProtocolError):
        Sample(points=None).encode(0)
    assert Sample.decode(Sample(points=None).encode(1), 1).points is None
    valid = Sample().encode(0)
    with pytest.raises(ProtocolError, match="name must not be null"):
        Sample.decode(valid.replace(b"\x00\x05\x00\x00", b"\x00\x05\xff\xff", 1), 0)


def test_lengths_beyond_one_byte_round_trip_in_flexible_versions() -> None:
    sample = Sample(name="n" * 127, payload=b"p" * 20000, numbers=list(range(200)))
    assert Sample.decode(sample.encode(3), 3) == sample


def test_records_are_views_of_the_input_and_other_bytes_are_copies() -> None:
    for version in (0, 1):
        frame = bytearray(Carrier(records=b"batch", after=b"tail").encode(version))
        decoded = Carrier.decode(frame, version)
        assert isinstance(decoded.records, memoryview)
        assert isinstance(decoded.after, bytes)
        at = frame.index(b"batch")
        frame[at] = ord("B")
        assert bytes(decoded.records) == b"Batch"
        assert Carrier.decode(Carrier().encode(version), version).records == b""
        assert Carrier.decode(Carrier(records=None).encode(version), version).records is None


def test_an_array_cannot_claim_more_than_there_is() -> None:
    lie = b"\x00\x01" + b"\x00\x00" + ZERO_UUID + b"\x7f\xff\xff\xff"
    with pytest.raises(ProtocolError, match="claims 2147483647 elements"):
        Sample.decode(lie, 0)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        Sample.decode(Sample(name="ab").encode(0).replace(b"ab", b"\xff\xfe"), 0)


@pytest.mark.parametrize(
    "sample",
    [Sample(count=2**15), Sample(name="x" * 2**15), Sample(name=None), Sample(numbers=["1"])],  # type: ignore[arg-type, list-item]
    ids=["number", "text", "null", "type"],
)
def test_values_that_do_not_fit_cannot_be_encoded(sample: Sample) -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        sample.encode(0)


def test_a_default_of_none_needs_a_version_that_knows_null() -> None:
    with pytest.raises(TypeError, match="broken"):

        class Wrong(Struct):
            broken: str | None = field(STRING, "0+", default=None)
