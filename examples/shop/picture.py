"""Throughput and latency of a run as one picture."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.shop.latency import Second
from examples.shop.progress import Batch

_COLORS = ("#1f6f8b", "#d1782c", "#5b8c5a", "#8a5a83")
_INK = "#444444"


def draw(
    file: Path,
    *,
    began_ms: int,
    sent_ms: Sequence[int],
    batches: Sequence[Batch],
    deliveries: Sequence[Second],
) -> None:
    """Three panels over the same seconds: events in and out, delays, and micro-batches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (events, delays, durations) = pyplot.subplots(
        3, 1, sharex=True, figsize=(10, 9), constrained_layout=True
    )
    batches = [each for each in batches if each.rows and each.started_ms >= began_ms]
    queries = sorted({each.query for each in batches})

    sent = Counter((each - began_ms) // 1000 for each in sent_ms)
    at = range(max(sent, default=0) + 1)
    events.fill_between(
        at, [sent[each] for each in at], step="mid", color="#d9d9d9", label="sent by the shop"
    )
    delivered = {each.at_s: each.count for each in deliveries}
    at = range(max(delivered, default=0) + 1)
    events.plot(
        at,
        [delivered.get(each, 0) for each in at],
        drawstyle="steps-mid",
        color=_COLORS[0],
        label="paid orders delivered",
    )
    _label(events, "Events a second", "events/s")

    times = [each.at_s for each in deliveries]
    p50s, p99s = zip(
        *((each.p50_ms / 1000, each.p99_ms / 1000) for each in deliveries), strict=True
    )
    delays.plot(times, p50s, marker=".", linewidth=0.8, color=_COLORS[0], label="p50")
    delays.plot(times, p99s, marker=".", linewidth=0.8, color=_COLORS[1], label="p99")
    _label(delays, "From the later of order and payment to the delivery of both, joined", "seconds")

    for color, query in zip(_COLORS, queries, strict=False):
        own = [each for each in batches if each.query == query]
        durations.plot(
            [(each.ended_ms - began_ms) / 1000 for each in own],
            [each.duration_ms / 1000 for each in own],
            color=color,
            marker=".",
            linewidth=0.8,
            label=query,
        )
    _label(durations, "Micro-batches with rows: time each took", "seconds")
    durations.set_xlabel("seconds since the first event", color=_INK)
    durations.set_xlim(left=0)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _label(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_ylabel(unit, color=_INK)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
