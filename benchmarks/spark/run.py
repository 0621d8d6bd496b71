"""The Spark source and sink measured in one run: `python -m benchmarks.spark.run`.

Every kind runs unmeasured first, because all of them share the JVM that compiles them. Then kinds
alternate within each round and the table shows medians; beside a median stands how the later half
of the rounds compares with the earlier, which is what a JVM that still compiles would show in.

The bare source and sink are the bound (Arrow that is handed over without fetching, decoding or
encoding); Spark's own Kafka source reads the same topic of the same broker where its jars can be
fetched from Maven Central.
"""

import argparse
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.spark import workloads
from benchmarks.spark.bare import BareSource
from benchmarks.spark.connector import connector_jars
from benchmarks.spark.workloads import QUICK, ROW_MB, Bench, Sizes
from tidelog.spark import session
from tidelog.testing import Broker

ROOT = Path(__file__).resolve().parents[2]

Measured = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, or the ratio of two, against its bound.

    A ratio is taken within each round, whose two runs are seconds apart: a machine that becomes
    slower in the middle of it all is slower for both.
    """

    name: str
    figure: str
    bound: float
    at_least: bool
    relative_to: str | None = None

    def value(self, measured: Measured) -> float | None:
        """The median over all rounds; None if it was not measured."""
        values = measured.get(self.figure)
        if self.relative_to is not None and values is not None:
            bases = measured.get(self.relative_to)
            values = None if bases is None else [a / b for a, b in zip(values, bases, strict=True)]
        return None if values is None else statistics.median(values)

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


READ = "source to noop, rows/s: {}"
COPY = "source to sink, rows/s: {}"
ARCHIVE = "archive to {}, MB/s"
TARGETS = (
    Target("source → noop / bare", READ.format("tidelog"), 0.7, True, READ.format("bare")),
    Target(
        "source → noop / Spark's Kafka source",
        READ.format("tidelog"),
        1.0,
        True,
        READ.format("kafka"),
    ),
    Target("source → sink / bare", COPY.format("tidelog"), 0.6, True, COPY.format("bare")),
    Target("micro-batch p50, ms", "batch p50 ms: tidelog", 120, False),
    Target("produced → delivered p99, ms", "delivered p99 ms: tidelog", 250, False),
    Target("archive to Delta, MB/s", ARCHIVE.format("Delta"), 80, True),
    Target("archive to Parquet, MB/s", ARCHIVE.format("Parquet"), 80, True),
)


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    jars = [] if options.no_kafka else connector_jars()
    console = Console()
    # Workers import the bare source from this repository.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    conf = {"spark.driver.memory": "2g"}
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    else:
        console.print("Spark's own Kafka source is not measured: its jars were not fetched")
    load_before = os.getloadavg()[0]
    spark = session("tidelog-bench", master="local[2,4]", conf=conf)
    spark.dataSource.register(BareSource)
    try:
        with Broker(mode="process", settings={"durability": "page-cache"}) as broker:
            bench = Bench(spark, broker.bootstrap_servers, sizes, bool(jars))
            measured = _measure(bench, console)
    finally:
        spark.stop()
    console.print(_table(measured))
    if options.docs:
        _write_docs(Path(options.docs), measured, sizes, load_before)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--no-kafka", action="store_true", help="leave Spark's Kafka source out")
    parser.add_argument("--docs", default="", help="folder for spark.md and spark.png")
    return parser.parse_args()


def _measure(bench: Bench, console: Console) -> Measured:
    workloads.fill(bench.bootstrap, "filled", bench.sizes.rows)
    workloads.fill(bench.bootstrap, "copied", bench.sizes.copied_rows)
    measured: Measured = {}

    def note(figure: str, value: float) -> None:
        console.print(f"{figure:45} {_number(value)}")
        measured.setdefault(figure, []).append(value)

    others = ["kafka"] if bench.has_connector else []
    readers = ["bare", "tidelog", workloads.OVER_TCP, *others]
    # What the JVM runs is compiled within the first runs, of whichever kind.
    for _ in range(bench.sizes.warm_ups):
        for kind in readers:
            workloads.to_noop(bench, kind, "filled")
        for kind in ("bare", "tidelog"):
            workloads.to_sink(bench, kind, "copied")
    for round_number in range(bench.sizes.rounds):
        turn = readers if round_number % 2 == 0 else readers[::-1]
        for kind in turn:
            note(READ.format(kind), workloads.to_noop(bench, kind, "filled"))
        for kind in ("bare", "tidelog") if round_number % 2 == 0 else ("tidelog", "bare"):
            note(COPY.format(kind), workloads.to_sink(bench, kind, "copied"))
    for kind in ("tidelog", *others):
        for figure, value in workloads.batch_latency(bench, kind).items():
            note(f"{figure}: {kind}", value)
    for figure, value in workloads.copy_latency(bench).items():
        note(f"{figure}: tidelog to tidelog, exactly once", value)
    _measure_archives(bench, note)
    return measured


def _measure_archives(bench: Bench, note: Callable[[str, float], None]) -> None:
    formats = ("Delta", "Parquet")
    for name in formats:
        # The first archive of a session imports what commits need.
        workloads.archive(bench, "copied", name.lower())
    for round_number in range(bench.sizes.rounds):
        for name in formats if round_number % 2 == 0 else formats[::-1]:
            note(ARCHIVE.format(name), workloads.archive(bench, "filled", name.lower()))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _drift(values: list[float]) -> str:
    """The later half of the rounds beside the earlier half; nothing for a few rounds."""
    half = len(values) // 2
    if half < 2:
        return ""
    return f"{statistics.median(values[-half:]) / statistics.median(values[:half]):.2f}"


def _target_rows(measured: Measured) -> list[tuple[str, str, str, str]]:
    rows = []
    for target in TARGETS:
        value = target.value(measured)
        if value is None:
            continue
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g}"
        verdict = "met" if target.is_met(value) else "MISSED"
        rows.append((target.name, _number(value), bound, verdict))
    return rows


def _table(measured: Measured) -> Table:
    table = Table(title="targets, from medians of one run", title_justify="left")
    for column in ("what", "measured", "target", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for row in _target_rows(measured):
        table.add_row(*row)
    return table


def _write_docs(folder: Path, measured: Measured, sizes: Sizes, load_before: float) -> None:
    medians = {figure: statistics.median(values) for figure, values in measured.items()}
    folder.mkdir(parents=True, exist_ok=True)
    import pyspark

    lines = [
        "# Results on Spark",
        "",
        f"Measured on {datetime.now(UTC).date()}: {os.cpu_count()} cores, Linux "
        f"{platform.release()}, Python {platform.python_version()}, Spark {pyspark.__version__} "
        f"`local[2]`, load average {load_before:.1f} at the start, medians of {sizes.rounds} "
        "rounds in one run (of a ratio, those within each round). Rows have a key of 16 bytes and "
        f"a value of 1 KB ({ROW_MB * 1e6:.0f} bytes), uncompressed, in two partitions of "
        "a broker with `durability=page-cache`. Broker, JVM and Python workers share the cores. "
        "`bare` hands Arrow over without fetching, decoding or encoding; `tidelog` reads the files "
        "that the broker hands over, as it does by default on the broker's machine; `kafka` is "
        "Spark's own Kafka source (4.2.0) reading the same topic of the same broker.",
        "",
        "| what | measured | target | |",
        "|---|---:|---|---|",
        *(f"| {' | '.join(row)} |" for row in _target_rows(measured)),
        "",
        "| figure | median | later rounds / earlier |",
        "|---|---:|---:|",
        *(
            f"| {figure} | {_number(medians[figure])} | {_drift(values)} |"
            for figure, values in measured.items()
        ),
        "",
        "![Rows a second](spark.png)",
        "",
    ]
    (folder / "spark.md").write_text("\n".join(lines))
    _plot(folder / "spark.png", medians)


def _plot(path: Path, medians: dict[str, float]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, latencies) = pyplot.subplots(1, 2, figsize=(11, 3.4))
    rows = {name: value for name, value in medians.items() if "rows/s" in name}
    names = list(reversed(rows))
    labels = [name.replace(", rows/s", "") for name in names]
    rates.barh(labels, [rows[name] / 1000 for name in names], color="#2a7f9e")
    rates.set_xlabel("thousand rows a second")
    ages = {name: value for name, value in medians.items() if " ms: " in name}
    names = list(reversed(ages))
    latencies.barh(
        [name.replace(" ms", "") for name in names], [ages[name] for name in names], color="#c7772e"
    )
    latencies.set_xlabel("milliseconds")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
