"""A picture of a topic's load: its partitions, before and after splitting, and its keys."""

from pathlib import Path

from tidelog.spark.jobs.hot_keys import HotKeysReport, key_text

_BEFORE_COLOR = "#4c78a8"
_AFTER_COLOR = "#f58518"
_HOT_COLOR = "#e45756"
_KEYS_MAX = 15
_KEY_CHARS_MAX = 24


def plot_hot_keys(report: HotKeysReport, path: Path, *, title: str) -> None:
    """Draw a report into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loads, keys) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    numbers = [each.partition for each in report.partitions]
    before = [each.rows for each in report.partitions]
    if report.splits:
        best = min(report.splits, key=lambda each: (each.row_skew, each.ways))
        loads.bar(
            [at - 0.2 for at in numbers],
            before,
            0.4,
            color=_BEFORE_COLOR,
            label=f"now (skew {report.row_skew:.2f})",
        )
        loads.bar(
            [at + 0.2 for at in numbers],
            best.rows,
            0.4,
            color=_AFTER_COLOR,
            label=f"hot keys split {best.ways} ways (skew {best.row_skew:.2f})",
        )
    else:
        loads.bar(
            numbers, before, 0.6, color=_BEFORE_COLOR, label=f"now (skew {report.row_skew:.2f})"
        )
    loads.axhline(report.rows / max(1, len(numbers)), color="#555555", lw=1, ls="--", label="mean")
    loads.set_xlabel("partition")
    loads.set_ylabel("records")
    loads.set_title(title)
    loads.legend(frameon=False)
    shown = report.heaviest[:_KEYS_MAX]
    keys.barh(
        range(len(shown)),
        [each.row_share * 100 for each in shown],
        color=[_HOT_COLOR if each.is_hot else _BEFORE_COLOR for each in shown],
    )
    # Keys may hold what matplotlib takes for mathematics.
    labels = [key_text(each.key)[:_KEY_CHARS_MAX].replace("$", r"\$") for each in shown]
    keys.set_yticks(range(len(shown)), labels)
    keys.invert_yaxis()
    keys.set_xlabel("% of all records")
    keys.set_title(f"heaviest keys (hot above {report.threshold:.0%} of those with a key)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
