"""Clusters of three nodes of Tidelog and of Apache Kafka: `python -m benchmarks.cluster.compare`.

Both clusters are up on this machine at the same time, each idle while the other is measured. Idle
clusters are looked at first. Then both are warmed up with the same load until their figures stand
still, and measured: scenario by scenario, in alternating order, in several rounds. Nodes that are
killed, restarted or left behind come last. A ratio is taken within a round.

`--against` takes the path of another checkout or a git reference and compares this source tree
with that one in place of Kafka.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.cluster import floor
from benchmarks.cluster.failures import LAST, idle
from benchmarks.cluster.floor import BareReplica
from benchmarks.cluster.nodes import NODES, KafkaCluster, NodeCluster, TidelogCluster
from benchmarks.cluster.scenarios import SCENARIOS
from benchmarks.cluster.targets import PAGE, TARGETS
from benchmarks.compare import in_turn
from benchmarks.comparison import read_options, what_to_compare
from benchmarks.report import Report
from benchmarks.scenarios import Figures, Session, Sizes
from benchmarks.warm_up import warm_up

IDLE = "idle"
SIZES = Sizes(bulk_records=300_000, fsync_records=100_000, seconds=4.0, partitions_many=2_000)
_SLICE = Sizes(bulk_records=100_000, fsync_records=20_000, seconds=1.0)
_WARM_SHAPES = tuple(SCENARIOS[name] for name in ("produce", "twelve", "fsync", "raw"))

# Deleted topics are to leave the disk, and the page cache, before the next measurement.
_SETTINGS = {"log.segment.delete.delay.ms": "1000"}

MakeCluster = Callable[[Path], NodeCluster]
Note = Callable[[str, Figures], None]


def main() -> None:
    options = read_options(
        __doc__, (IDLE, *SCENARIOS, *LAST), warm_seconds=300, pages="cluster.md, .json and .png"
    )
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=150)
    with ExitStack() as stack:
        makers = _makers(options, stack, console)
        report = Report(list(makers), options.rounds, os.getloadavg()[0], targets=TARGETS)
        try:
            _measure(options, makers, report, console)
        finally:
            console.print(report.table())
            if options.json:
                report.write_json(Path(options.json))
    console.print(report.warmed.summary())
    if options.docs:
        report.write_page(Path(options.docs), PAGE)


def _makers(
    options: argparse.Namespace, stack: ExitStack, console: Console
) -> dict[str, MakeCluster]:
    """The clusters to compare, by name, the first against the second."""

    def tidelog(name: str, sources: Path) -> MakeCluster:
        return lambda data: TidelogCluster(data, name=name, sources=sources, settings=_SETTINGS)

    return what_to_compare(
        options,
        stack,
        console,
        tidelog=tidelog,
        kafka=lambda libraries: lambda data: KafkaCluster(data, libraries, settings=_SETTINGS),
    )


def _measure(
    options: argparse.Namespace, makers: dict[str, MakeCluster], report: Report, console: Console
) -> None:
    def tell(name: str, figures: Figures) -> None:
        rounded = ", ".join(f"{figure} {value:.3g}" for figure, value in figures.items())
        console.print(f"{name}: {rounded}", soft_wrap=True, highlight=False)

    def note(name: str, figures: Figures) -> None:
        tell(name, figures)
        report.note(name, figures)

    sizes = SIZES.scaled(options.scale)
    with _running(makers) as clusters:
        if IDLE in options.only:
            for cluster in clusters:
                note(cluster.name, idle(cluster))
        sessions = [
            Session(cluster, sizes, [each for each in clusters if each is not cluster], NODES)
            for cluster in clusters
        ]
        chosen = [name for name in SCENARIOS if name in options.only]
        if chosen or "replicas" in options.only:
            report.warmed = warm_up(sessions, options.warm_seconds, tell, _WARM_SHAPES, _SLICE)
            console.print(report.warmed.summary())
        for round_number in range(options.rounds):
            for place, name in enumerate(chosen):
                for session in in_turn(sessions, round_number + place):
                    note(session.broker.name, SCENARIOS[name](session))
                    session.delete_topics()
                if name == "raw":
                    note(BareReplica.name, floor.measure(sizes))
        _measure_last(options, sessions, note)


def _measure_last(options: argparse.Namespace, sessions: list[Session], note: Note) -> None:
    for name, (scenario, times) in LAST.items():
        if name in options.only:
            for number in range(1 if options.quick else times):
                for session in in_turn(sessions, number):
                    note(session.broker.name, scenario(session))
                    # A node that was killed may take its time with the files of many partitions.
                    session.delete_topics(waits=False)


@contextmanager
def _running(makers: dict[str, MakeCluster]) -> Iterator[list[NodeCluster]]:
    """All of the clusters, up until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        clusters = [make(Path(folder) / name) for name, make in makers.items()]
        try:
            for cluster in clusters:
                cluster.start()
            yield clusters
        finally:
            for cluster in clusters:
                cluster.stop()


if __name__ == "__main__":
    main()
