"""Dates and times as texts: Arrow's answers, also where it gives none."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.formats.times import dates, parse_date, parse_timestamp, timestamps

_UTC = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")


def _number(low: int, high: int, width: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda number: f"{number:0{width}d}")


_dates = st.tuples(_number(0, 9999, 4), _number(0, 13, 2), _number(0, 32, 2)).map("-".join)
_clocks = st.one_of(
    _number(0, 25, 2),
    st.tuples(_number(0, 25, 2), _number(0, 61, 2)).map(":".join),
    st.tuples(_number(0, 25, 2), _number(0, 61, 2), _number(0, 61, 2)).map(":".join),
)
_fractions = st.one_of(st.just(""), st.text("0123456789", max_size=10).map(lambda text: "." + text))
_zones = st.one_of(
    st.sampled_from(["", "Z", "z", "+", "+1", " Z"]),
    st.tuples(
        st.sampled_from("+-"), _number(0, 25, 2), st.sampled_from(["", ":"]), _number(0, 61, 2)
    ).map("".join),
)
_texts = st.one_of(
    _dates,
    st.tuples(_dates, st.sampled_from("T t"), _clocks, _fractions, _zones).map("".join),
    st.tuples(_dates, _zones).map("".join),
)


def _by_arrow(text: str, kind: pa.DataType) -> int | None:
    try:
        (value,) = (
            pa.array([text]).cast(kind).view(pa.int32() if pa.types.is_date(kind) else pa.int64())
        )
    except pa.ArrowInvalid:
        return None
    number = value.as_py()
    assert isinstance(number, int)
    return number


@given(_texts)
def test_what_arrow_reads_is_read_alike(text: str) -> None:
    for zoned, kind in ((True, _UTC), (True, _LOCAL), (False, _LOCAL)):
        expected = _by_arrow(text, kind)
        if expected is not None:
            assert parse_timestamp(text, may_have_zone=zoned) == expected
    expected = _by_arrow(text, pa.date32())
    if expected is not None:
        assert parse_date(text) == expected


def test_columns_may_mix_zones_and_digits() -> None:
    texts = pa.array(
        ["2026-01-31T12:30:15Z", None, "2026-01-31 12:30:15.123456789", "2026-01-31T13:30+01"]
    )
    moment = 1_769_862_615_000_000
    assert timestamps(texts, are_local=False).view(pa.int64()).to_pylist() == [
        moment,
        None,
        moment + 123_456,
        moment - 15_000_000,
    ]


@pytest.mark.parametrize("text", ["", "now", "2026-02-30", "2026-01-01T25:00", "2026-01-01T1:00"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        timestamps(pa.array(["2026-01-01T00:00:00Z", text]), are_local=False)
    with pytest.raises(ValueError):
        dates(pa.array(["2026-01-01", text]))


def test_a_local_time_has_no_zone() -> None:
    assert timestamps(pa.array(["2026-01-01T00:00:00"]), are_local=True).type == _LOCAL
    with pytest.raises(ValueError):
        timestamps(pa.array(["2026-01-01T00:00:00Z"]), are_local=True)
