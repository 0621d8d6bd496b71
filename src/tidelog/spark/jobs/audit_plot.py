"""A picture of an audit: which offsets of each partition are there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.spark.jobs.audit_report import AuditReport, PartitionAudit
from tidelog.spark.jobs.gaps import GapKind

_RECORDS_COLOR = "#4c78a8"
_GAP_COLORS = {
    GapKind.MARKERS: "#bab0ac",
    GapKind.COMPACTED: "#eeca3b",
    GapKind.ARCHIVED: "#9d9d9d",
    GapKind.LOST: "#e45756",
}
_DUPLICATE_COLOR = "#b279a2"
_BAR = 0.7
# A gap of one offset among a million must still be seen.
_WIDTH_MIN = 0.004


def plot_audit(reports: Mapping[str, AuditReport], path: Path, *, title: str) -> None:
    """Draw reports, by their names, into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    lines = [
        (f"{name} {each.partition}" if len(reports) > 1 else str(each.partition), each)
        for name, report in reports.items()
        for each in report.partitions
    ]
    figure, axes = pyplot.subplots(figsize=(10, 1.6 + 0.35 * max(2, len(lines))))
    kinds: set[GapKind] = set()
    has_duplicates = False
    width_min = _WIDTH_MIN * max((_extent(each) for _, each in lines), default=1)
    for at, (_, each) in enumerate(lines):
        if each.first_offset is not None and each.last_offset is not None:
            _bar(axes, at, each.first_offset, each.last_offset, _RECORDS_COLOR, 0)
        for gap in each.gaps:
            kinds.add(gap.kind)
            _bar(axes, at, gap.first, gap.last, _GAP_COLORS[gap.kind], width_min)
        for span in each.duplicates:
            has_duplicates = True
            _bar(axes, at, span.first, span.last, _DUPLICATE_COLOR, width_min)
    axes.set_yticks(range(len(lines)), [label for label, _ in lines])
    axes.invert_yaxis()
    axes.set_xlabel("offset")
    axes.set_ylabel("partition")
    axes.set_title(title)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    patches = [Patch(color=_RECORDS_COLOR, label="records")]
    for kind in sorted(kinds, key=list(GapKind).index):
        patches.append(Patch(color=_GAP_COLORS[kind], label=f"gap: {kind.value}"))
    if has_duplicates:
        patches.append(Patch(color=_DUPLICATE_COLOR, label="there twice"))
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _extent(each: PartitionAudit) -> int:
    if each.first_offset is None or each.last_offset is None:
        return 1
    return each.last_offset - each.first_offset + 1


def _bar(axes: Any, at: int, first: int, last: int, color: str, width_min: float) -> None:
    width = last - first + 1
    axes.broken_barh([(first, max(width, width_min))], (at - _BAR / 2, _BAR), color=color, lw=0)
