"""Tidelog beside Apache Kafka, or beside another version of itself: `python -m benchmarks.compare`.

Both brokers are up at the same time, each idle while the other is measured. Starts and idle memory
are measured first, on fresh processes. Then both are warmed up with the same load until their
figures stand still, and measured: scenario by scenario, in alternating order, in several rounds. A
ratio is taken within a round, and the table shows the median of these ratios with their spread.

`--against` takes the path of another checkout or a git reference and compares this source tree
with that one in place of Kafka, by the same protocol.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks import floor
from benchmarks.comparison import read_options, what_to_compare
from benchmarks.lifecycle import LAST, start_and_idle
from benchmarks.report import Report
from benchmarks.scenarios import SCENARIOS, Figures, Session, Sizes, wait_until_idle
from benchmarks.servers import (
    Broker,
    KafkaServer,
    TidelogServer,
    wait_until_serving,
)
from benchmarks.warm_up import warm_up

START = "start"

# Deleted topics are to leave the disk, and the page cache, before the next measurement.
_SETTINGS = {"log.segment.delete.delay.ms": "1000"}

_T = TypeVar("_T")
MakeBroker = Callable[[Path], Broker]


def main() -> None:
    options = read_options(
        __doc__,
        (START, *SCENARIOS, *LAST),
        warm_seconds=600,
        pages="results.md, .json and ratios.png",
    )
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=140)
    with ExitStack() as stack:
        makers = _makers(options, stack, console)
        report = Report(list(makers), options.rounds, os.getloadavg()[0])
        try:
            _measure(options, makers, report, console)
        finally:
            console.print(report.table())
            if options.json:
                report.write_json(Path(options.json))
    console.print(report.warmed.summary())
    if options.docs:
        report.write_page(Path(options.docs))


def _makers(
    options: argparse.Namespace, stack: ExitStack, console: Console
) -> dict[str, MakeBroker]:
    """The brokers to compare, by name, the first against the second."""

    def tidelog(name: str, sources: Path) -> MakeBroker:
        return lambda data: TidelogServer(data, name=name, sources=sources, settings=_SETTINGS)

    return what_to_compare(
        options,
        stack,
        console,
        tidelog=tidelog,
        kafka=lambda libraries: lambda data: KafkaServer(data, libraries, settings=_SETTINGS),
    )


def _measure(
    options: argparse.Namespace, makers: dict[str, MakeBroker], report: Report, console: Console
) -> None:
    def tell(name: str, figures: Figures) -> None:
        rounded = ", ".join(f"{figure} {value:.3g}" for figure, value in figures.items())
        console.print(f"{name}: {rounded}", soft_wrap=True, highlight=False)

    def note(name: str, figures: Figures) -> None:
        tell(name, figures)
        report.note(name, figures)

    if START in options.only:
        _measure_starts(options.rounds, makers, note)
    chosen = [name for name in (*SCENARIOS, *LAST) if name in options.only]
    if not chosen:
        return
    sizes = Sizes().scaled(options.scale)
    with _running(makers) as brokers:
        sessions = [
            Session(broker, sizes, [each for each in brokers if each is not broker])
            for broker in brokers
        ]
        report.warmed = warm_up(sessions, options.warm_seconds, tell)
        console.print(report.warmed.summary())
        for round_number in range(options.rounds):
            _measure_round(round_number, chosen, sessions, note)
        for name in LAST:
            if name in chosen:
                _measure_last(name, sessions, note)


def _measure_starts(
    rounds: int, makers: dict[str, MakeBroker], note: Callable[[str, Figures], None]
) -> None:
    for round_number in range(rounds):
        for name in in_turn(list(makers), round_number):
            with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
                note(name, start_and_idle(makers[name](Path(folder))))


def _measure_round(
    round_number: int,
    chosen: list[str],
    sessions: list[Session],
    note: Callable[[str, Figures], None],
) -> None:
    for place, name in enumerate(each for each in chosen if each in SCENARIOS):
        for session in in_turn(sessions, round_number + place):
            note(session.broker.name, SCENARIOS[name](session))
            session.delete_topics()
        if name in floor.MEASURED:
            wait_until_idle([session.broker for session in sessions])
            note(floor.BareLoops.name, floor.measure(name, sessions[0].sizes))


def _measure_last(name: str, sessions: list[Session], note: Callable[[str, Figures], None]) -> None:
    for session in sessions:
        note(session.broker.name, LAST[name](session))
        session.delete_topics()


def in_turn(brokers: list[_T], number: int) -> list[_T]:
    """Forwards in even rounds, backwards in odd ones."""
    return brokers[::-1] if number % 2 else brokers


@contextmanager
def _running(makers: dict[str, MakeBroker]) -> Iterator[list[Broker]]:
    """All of the brokers, up until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        brokers = [make(Path(folder) / name) for name, make in makers.items()]
        try:
            for broker in brokers:
                broker.start()
                wait_until_serving(broker)
            yield brokers
        finally:
            for broker in brokers:
                broker.stop()


if __name__ == "__main__":
    main()
