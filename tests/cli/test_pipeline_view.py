"""What a person sees of a pipeline."""

import io

from rich.console import Console

from tidelog.cli.pipeline_view import status_table
from tidelog.spark.pipeline.run.status import PipelineStatus, QueryStatus


def test_a_terminal_of_80_characters_shows_every_number_whole() -> None:
    query = QueryStatus(
        name="revenue-by-product",
        kind="topic",
        reads="revenue",
        state="running",
        batch_id=1234,
        rows=123_456_789,
        rows_per_s=10_234.5,
        lag={"orders": 98_765},
        batch_ms=4_321,
        state_rows=17,
        state_bytes=2048,
        late_rows=3,
        restarts=1,
        last_error="no broker " * 8,
    )
    lines = _shown(query).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "running" in line).split()
    assert row[1:] == ["running", "1234", "123456789", "10,234.50", "98765", "4321"]
    words = " ".join(" ".join(lines).split())
    assert "revenue-by-product: state 17 rows 2.0 KiB, 3 late, 1 restart, last error: no" in words
    assert words.count("no broker") == 8


def test_a_query_with_nothing_more_to_tell_is_one_line() -> None:
    shown = _shown(QueryStatus(name="out", kind="topic", reads="orders", state="running"))
    assert shown.count("out") == 1


def _shown(query: QueryStatus) -> str:
    screen = io.StringIO()
    status = PipelineStatus("shop", "shop.toml", 1, "running", "", "", [query])
    Console(width=80, file=screen, soft_wrap=True).print(status_table(status))
    return screen.getvalue()
