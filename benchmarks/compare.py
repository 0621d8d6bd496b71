"""Tidelog and Apache Kafka side by side in one run: `python -m benchmarks.compare`.

Each round starts both brokers one after the other on fresh folders, in alternating order, and runs
every scenario on each. The table shows medians over the rounds and their ratio; the targets are
those the project has set itself. With `--docs` the table and the plot are written as pages.
"""

import argparse
import os
import platform
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.scenarios import (
    QUICK,
    SCENARIOS,
    Broker,
    Figures,
    Session,
    Sizes,
    first_acknowledgement,
)
from benchmarks.servers import KafkaServer, TidelogServer, kafka_libraries

START = "exec to first acknowledgement, s"

# figure -> (what is compared, the bound). "ratio" is Tidelog / Kafka; "value" is Tidelog alone.
TARGETS: dict[str, tuple[str, str, float]] = {
    "produce, MB/s": ("ratio", ">=", 1.0),
    "produce, CPU s/GB": ("ratio", "<=", 1.0),
    "consume, MB/s": ("ratio", ">=", 1.0),
    "consume, CPU s/GB": ("ratio", "<=", 0.7),
    "fsync, MB/s": ("ratio", ">=", 5.0),
    "fsync to 10 partitions, MB/s": ("ratio", ">=", 5.0),
    "fsync, one at a time, requests/s": ("ratio", ">=", 5.0),
    "one-record requests/s": ("value", ">=", 25_000),
    "at 50 MB/s, p99 ms": ("ratio", "<=", 1.0),
    START: ("value", "<=", 0.6),
    "idle memory, MB": ("value", "<=", 80),
    "idle connections held": ("value", ">=", 5_000),
    "start with 2000 partitions, s": ("value", "<=", 5.0),
    "throughput beside 2000 partitions / before": ("value", ">=", 0.8),
    "throughput over 2000 partitions / over 10": ("value", ">=", 0.8),
}

Measured = dict[str, dict[str, list[float]]]


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    libraries = None if options.no_kafka else kafka_libraries()
    console = Console()
    if libraries is None:
        console.print(
            "Apache Kafka is not measured: it needs java and mvn (or --no-kafka was given)"
        )
    names = options.only.split(",") if options.only else list(SCENARIOS)
    measured: Measured = {}
    load_before = os.getloadavg()[0]
    for round_number in range(options.rounds):
        brokers = ["tidelog"] if libraries is None else ["tidelog", "kafka"]
        if round_number % 2:
            brokers.reverse()
        for name in brokers:
            with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
                broker: Broker
                if name == "kafka":
                    assert libraries is not None
                    broker = KafkaServer(Path(folder), libraries)
                else:
                    broker = TidelogServer(Path(folder))
                for figure, value in _measure(broker, names, sizes, console).items():
                    measured.setdefault(figure, {}).setdefault(name, []).append(value)
    console.print(_table(measured))
    if options.docs:
        _write_docs(Path(options.docs), measured, options.rounds, load_before)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", default="", help=f"of {','.join(SCENARIOS)}")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--docs", default="", help="folder for results.md and ratios.png")
    return parser.parse_args()


def _measure(broker: Broker, names: list[str], sizes: Sizes, console: Console) -> Figures:
    figures: Figures = {}
    try:
        figures[START] = first_acknowledgement(broker, "first")
        session = Session(broker, sizes)
        for name in names:
            made = SCENARIOS[name](session)
            console.print(f"{broker.name:8}", {key: round(value, 3) for key, value in made.items()})
            figures |= made
    finally:
        broker.stop()
    return figures


def _rows(measured: Measured) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for figure, by_broker in measured.items():
        ours = statistics.median(by_broker["tidelog"])
        theirs = statistics.median(by_broker["kafka"]) if "kafka" in by_broker else None
        ratio = ours / theirs if theirs else None
        rows.append(
            (
                figure,
                _number(ours),
                _number(theirs),
                "-" if ratio is None else f"{ratio:.2f}",
                _verdict(figure, ours, ratio),
            )
        )
    return rows


def _verdict(figure: str, ours: float, ratio: float | None) -> str:
    target = TARGETS.get(figure)
    if target is None:
        return ""
    kind, comparison, bound = target
    value = ratio if kind == "ratio" else ours
    if value is None:
        return ""
    met = value >= bound if comparison == ">=" else value <= bound
    sign = "≥" if comparison == ">=" else "≤"
    unit = " times Kafka" if kind == "ratio" else ""
    return f"{sign} {bound:g}{unit} {'met' if met else 'MISSED'}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(measured: Measured) -> Table:
    table = Table(title="medians; ratio = Tidelog / Kafka", title_justify="left")
    for column in ("figure", "Tidelog", "Kafka", "ratio", "target"):
        table.add_column(column, justify="left" if column in ("figure", "target") else "right")
    for row in _rows(measured):
        table.add_row(*row)
    return table


def _write_docs(folder: Path, measured: Measured, rounds: int, load_before: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    machine = (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    today = datetime.now(UTC).date()
    lines = [
        "# Results",
        "",
        f"Measured on {today}: {machine}, load average {load_before:.1f} at the start, medians of "
        f"{rounds} rounds. The broker and its client share the machine; only one broker runs at a "
        "time. Ratio is Tidelog / Kafka.",
        "",
        "| figure | Tidelog | Kafka | ratio | target |",
        "|---|---:|---:|---:|---|",
        *(f"| {' | '.join(row)} |" for row in _rows(measured)),
        "",
        "![Ratios](ratios.png)",
        "",
    ]
    (folder / "results.md").write_text("\n".join(lines))
    _plot(folder / "ratios.png", measured)


def _plot(path: Path, measured: Measured) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratios = {
        figure: statistics.median(found["tidelog"]) / statistics.median(found["kafka"])
        for figure, found in measured.items()
        if "kafka" in found and statistics.median(found["kafka"]) > 0
    }
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(ratios) + 1))
    names = list(reversed(ratios))
    axes.barh(names, [ratios[name] for name in names], color="#2a7f9e")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("Tidelog / Kafka (log scale)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
