"""Tables, percentiles and the picture, from values made up here."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from examples.shop.checking import Check
from examples.shop.deadline import Deadline, OutOfTime, alarm
from examples.shop.deliveries import Delivered
from examples.shop.latency import by_second, percentile
from examples.shop.picture import draw
from examples.shop.progress import Batch
from examples.shop.tables import (
    batch_table,
    check_table,
    dead_letter_table,
    paid_table,
    revenue_table,
)

BATCHES = [
    Batch("paid", 10_000, 400, 100, 50, 0),
    Batch("revenue", 10_000, 600, 100, 20, 1),
    Batch("paid", 10_500, 300, 0, 50, 2),
]


def shown(table: RenderableType, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentile([], 50) == 0
    assert percentile([5], 99) == 5
    assert percentile([4, 1, 3, 2], 50) == 2
    assert percentile(list(range(1, 101)), 99) == 99


def test_delays_are_counted_in_the_second_they_ended() -> None:
    first, second = by_second([(1_000, 1_400), (1_000, 1_900), (1_500, 2_100)], began_ms=1_000)
    assert (first.at_s, first.count, first.p50_ms, first.p99_ms) == (0, 2, 400, 900)
    assert (second.at_s, second.count, second.p50_ms) == (1, 1, 600)


def test_tables_show_what_there_is() -> None:
    rows = [{"opens": "2026-03-02T09:10:00.000Z", "category": "meals", "orders": 3, "cents": 2500}]
    assert "09:10" in shown(revenue_table(rows))
    assert "25.00" in shown(revenue_table(rows))
    paid = {"order_id": "o1", "customer_id": "c", "product": "Soup", "method": "card", "cents": 89}
    assert "0.89" in shown(paid_table([paid]))
    letter = Delivered("orders-0-7", b"\xff{", {"tidelog.reason": b"not JSON"}, 0)
    text = shown(dead_letter_table([letter, letter]))
    assert "not JSON" in text
    assert text.count("orders-0-7") == 1
    assert "0.40 s" in shown(batch_table(BATCHES))
    text = shown(check_table([Check("good", 1, 1), Check("bad", 1, 2)]))
    assert text.count("WRONG") == 1


@pytest.mark.parametrize("width", [80, 110])
def test_a_dead_letter_can_be_found_again_on_any_terminal(width: int) -> None:
    reason = b"Expected `int | null`, got `str` - at `$.quantity`, and then some more words"
    letter = Delivered("orders-3-1234567", b'{"a": 1}' * 20, {"tidelog.reason": reason}, 0)
    text = shown(dead_letter_table([letter]), width)
    assert "orders-3-1234567" in text
    assert "record" in text
    assert "Expected `int" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "picture.png"
    deliveries = by_second([(10_000, 10_500), (10_100, 11_900)], began_ms=10_000)
    draw(file, began_ms=10_000, sent_ms=[10_000, 10_700], batches=BATCHES, deliveries=deliveries)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_wait_ends_when_it_holds_or_with_what_was_waited_for() -> None:
    deadline = Deadline(60)
    deadline.wait(lambda: True, "nothing", 1)
    with pytest.raises(OutOfTime, match=r"the moon: not within 0 s"):
        deadline.wait(lambda: False, "the moon", 0.05)
    with pytest.raises(OutOfTime, match="the moon"):
        Deadline(0).wait(lambda: False, "the moon", 1000)


def test_the_alarm_ends_what_takes_too_long() -> None:
    with pytest.raises(OutOfTime, match="did not end"), alarm(0.05, lambda: None):
        time.sleep(30)
