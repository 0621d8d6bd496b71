"""What came out of a comparison: the table, the page with its plot, and all rounds as JSON."""

import json
import os
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rich.table import Table

from benchmarks.floor import BareLoops
from benchmarks.servers import KafkaServer, kafka_version
from benchmarks.warm_up import WarmUp

Measured = dict[str, dict[str, list[float]]]
"""Figure, then broker, then its values round by round."""


@dataclass(slots=True, frozen=True)
class Target:
    """A bound on the ratio to Kafka, or on Tidelog's own value."""

    of: Literal["ratio", "value"]
    comparison: Literal["≥", "≤"]
    bound: float

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.comparison == "≥" else value <= self.bound


TARGETS: dict[str, Target] = {
    "produce, MB/s": Target("ratio", "≥", 1.5),
    "produce, CPU s/GB": Target("ratio", "≤", 0.45),
    "consume, MB/s": Target("ratio", "≥", 1.0),
    "consume, CPU s/GB": Target("ratio", "≤", 1.0),
    "produce to 10 partitions, MB/s": Target("ratio", "≥", 1.5),
    "produce to 10 partitions, CPU s/GB": Target("ratio", "≤", 0.45),
    "produce 100 B, records/s": Target("ratio", "≥", 1.2),
    "one-record requests/s": Target("value", "≥", 25_000),
    "fsync, CPU s/GB": Target("ratio", "≤", 0.7),
    "at 50 MB/s, p99 ms": Target("value", "≤", 10),
    "exec to first acknowledgement, s": Target("value", "≤", 0.6),
    "idle memory, MB": Target("value", "≤", 80),
    "idle connections held": Target("value", "≥", 5_000),
    "start with 2000 partitions, s": Target("value", "≤", 5.0),
    "throughput beside 2000 partitions / before": Target("value", "≥", 0.8),
    "throughput over 2000 partitions / over 10": Target("value", "≥", 0.8),
}


@dataclass(slots=True, frozen=True)
class Page:
    """What a page says beside its figures, and the names of its files."""

    name: str = "results"
    plot: str = "ratios"
    title: str = "Results"
    set_up: str = (
        "Both brokers are up, one idle while the other is measured; the client shares the machine."
    )
    notes: str = (
        "A bare loop is what the same client gets from recv, CRC-32C and pwrite or from sendfile "
        "alone: no broker can do more here."
    )


@dataclass(slots=True)
class Report:
    """The brokers compared, the first against the second, and what was measured of them."""

    names: list[str]
    rounds: int
    load_before: float
    targets: Mapping[str, Target] = field(default_factory=lambda: TARGETS)
    measured: Measured = field(default_factory=dict)
    warmed: WarmUp = field(default_factory=WarmUp)

    def note(self, name: str, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            self.measured.setdefault(figure, {}).setdefault(name, []).append(value)

    @property
    def is_against_kafka(self) -> bool:
        return KafkaServer.name in self.names

    def ratios(self, figure: str) -> list[float]:
        """First / second in each round, whose two runs are seconds apart."""
        by_name = self.measured[figure]
        if len(self.names) < 2 or any(name not in by_name for name in self.names):
            return []
        # A run that failed within a round has one value more of one broker.
        pairs = zip(by_name[self.names[0]], by_name[self.names[1]], strict=False)
        return [first / second for first, second in pairs if second]

    def columns(self) -> list[str]:
        compared = ["ratio", "lowest to highest"] if len(self.names) > 1 else []
        bare = ["bare loop"] if self._has_floor() else []
        targets = ["target"] if self._has_targets() else []
        return ["figure", *self.names, *compared, *bare, *targets]

    def rows(self) -> list[list[str]]:
        return [self._row(figure) for figure in self.measured]

    def table(self) -> Table:
        title = "medians over the rounds; a ratio is the median of those within each round"
        table = Table(title=title, title_justify="left")
        for column in self.columns():
            table.add_column(column, justify="left" if column in ("figure", "target") else "right")
        for row in self.rows():
            table.add_row(*row)
        return table

    def missed(self) -> list[str]:
        return [figure for figure in self.measured if self._verdict(figure).endswith("MISSED")]

    def _row(self, figure: str) -> list[str]:
        by_name = self.measured[figure]
        row = [figure, *(_median(by_name.get(name)) for name in self.names)]
        if len(self.names) > 1:
            ratios = self.ratios(figure)
            row.append(f"{statistics.median(ratios):.2f}" if ratios else "")
            row.append(f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "")
        if self._has_floor():
            row.append(_median(by_name.get(BareLoops.name)))
        if self._has_targets():
            row.append(self._verdict(figure))
        return row

    def _has_floor(self) -> bool:
        return any(BareLoops.name in by_name for by_name in self.measured.values())

    def _has_targets(self) -> bool:
        return self.is_against_kafka or len(self.names) == 1

    def _verdict(self, figure: str) -> str:
        target = self.targets.get(figure)
        if target is None or not self._has_targets():
            return ""
        values = (
            self.ratios(figure)
            if target.of == "ratio"
            else self.measured[figure].get(self.names[0], [])
        )
        if not values:
            return ""
        met = "met" if target.is_met(statistics.median(values)) else "MISSED"
        unit = " times Kafka" if target.of == "ratio" else ""
        return f"{target.comparison} {target.bound:g}{unit} {met}"

    # Files

    def write_json(self, path: Path) -> None:
        """All rounds and all slices of the warm-up."""
        content = {
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": _machine(),
            "load_average_before": self.load_before,
            "compared": self.names,
            "rounds": self.rounds,
            "warm_up": asdict(self.warmed) | {"summary": self.warmed.summary()},
            "figures": self.measured,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def write_page(self, folder: Path, page: Page | None = None) -> None:
        """The page with its plot, and all rounds as JSON."""
        page = page or Page()
        folder.mkdir(parents=True, exist_ok=True)
        columns = self.columns()
        rules = ["---" if each in ("figure", "target") else "---:" for each in columns]
        kafka = f" Apache Kafka is {kafka_version()}." if self.is_against_kafka else ""
        lines = [
            f"# {page.title}",
            "",
            f"Measured on {datetime.now(UTC).date()}: {_machine()}, load average "
            f"{self.load_before:.1f} at the start, {self.rounds} rounds.{kafka} {page.set_up} "
            f"{self.warmed.summary()} Values are medians over the rounds, a ratio is the median "
            f"of those within each round with the lowest and the highest beside it. {page.notes} "
            f"[All rounds]({page.name}.json).",
            "",
            f"| {' | '.join(columns)} |",
            f"|{'|'.join(rules)}|",
            *(f"| {' | '.join(row)} |" for row in self.rows()),
            "",
        ]
        if len(self.names) > 1:
            lines += [f"![Ratios]({page.plot}.png)", ""]
            self._plot(folder / f"{page.plot}.png")
        (folder / f"{page.name}.md").write_text("\n".join(lines))
        self.write_json(folder / f"{page.name}.json")

    def _plot(self, path: Path) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        ratios = {figure: found for figure in self.measured if (found := self.ratios(figure))}
        names = list(reversed(ratios))
        medians = [statistics.median(ratios[name]) for name in names]
        below = [middle - min(ratios[name]) for name, middle in zip(names, medians, strict=True)]
        above = [max(ratios[name]) - middle for name, middle in zip(names, medians, strict=True)]
        figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(ratios) + 1))
        axes.barh(names, medians, xerr=(below, above), color="#2a7f9e", ecolor="#444444")
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel(f"{self.names[0]} / {self.names[1]} (log scale)")
        figure.tight_layout()
        figure.savefig(path, dpi=110)


def _machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def _median(values: list[float] | None) -> str:
    if not values:
        return ""
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
