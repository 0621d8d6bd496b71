"""Durations as people write them."""

import pytest

from tidelog.spark.pipeline.file.durations import (
    DurationError,
    format_duration_ms,
    parse_duration_ms,
    spark_interval,
)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0 seconds", 0),
        ("500ms", 500),
        ("10 seconds", 10_000),
        ("1.5 s", 1_500),
        ("1 minute 30 seconds", 90_000),
        ("2h", 7_200_000),
        (" 1 Day ", 86_400_000),
    ],
)
def test_durations_are_read(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "10 fortnights", "10 s, 2 ms", "-1 s"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(DurationError, match="such as"):
        parse_duration_ms(text)


def test_durations_are_written_for_people_and_for_spark() -> None:
    assert format_duration_ms(90_500) == "1 min 30 s 500 ms"
    assert format_duration_ms(0) == "0 s"
    assert parse_duration_ms(format_duration_ms(93_784_005)) == 93_784_005
    assert spark_interval(1500) == "1500 milliseconds"
