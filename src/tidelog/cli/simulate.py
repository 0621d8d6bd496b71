"""`tidelog simulate`: a real node in a simulated world, one seed after the other."""

from __future__ import annotations

import os
import random
import shlex
import sys
import time
from typing import TYPE_CHECKING

import click

from tidelog.cli.failures import EXIT_FAILED

if TYPE_CHECKING:
    from tidelog.testing.simulation.exploration import Failure, Findings

_SEED_BITS = 32
_PROGRESS_INTERVAL_S = 10.0
_TERMINAL_INTERVAL_S = 0.5
_LINES_OF_FAILURE_MAX = 40


class _SeedRange(click.ParamType):  # type: ignore[type-arg]
    name = "FROM:TO"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        first, _, stop = str(value).partition(":")
        try:
            found = int(first), int(stop)
        except ValueError:
            self.fail(f"{value!r} is not of the form FROM:TO, as in 0:1000", param, ctx)
        if not 0 <= found[0] < found[1]:
            self.fail(f"{value!r} has no seeds: FROM is included, TO is not", param, ctx)
        return found


@click.command(name="simulate")
@click.option("--seed", type=click.IntRange(0), help="Run this seed only.")
@click.option("--seeds", type=_SeedRange(), help="Run these; TO is not among them.")
@click.option("--count", "-n", type=click.IntRange(1), help="So many seeds; default 1000.")
@click.option("--from", "first", type=click.IntRange(0), default=0, help="The first of them.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="New seeds for so long.")
@click.option("--trace", is_flag=True, help="Tell what happened, event by event. With --seed.")
@click.option(
    "--jobs", "-j", type=click.IntRange(1), help="Worker processes; default one for each core."
)
@click.option("--keep-going", "-k", is_flag=True, help="Do not stop at the first failure.")
@click.option("--plant", metavar="BUG", help="Run with a planted bug, or `list` them.")
@click.option("--consensus", is_flag=True, help="The metadata quorum alone: many short schedules.")
@click.option("--cluster", is_flag=True, help="Clusters of several nodes.")
def command(
    seed: int | None,
    seeds: tuple[int, int] | None,
    count: int | None,
    first: int,
    minutes: float | None,
    trace: bool,
    jobs: int | None,
    keep_going: bool,
    plant: str | None,
    consensus: bool,
    cluster: bool,
) -> None:
    """Run a node and its clients in a simulated world, with faults, and check what they see.

    A seed decides everything: the clients, the faults, and when each thing happens. A seed that
    fails fails again, byte for byte. With --consensus a seed is a schedule of the metadata quorum:
    replicas, elections, changes of voters, snapshots, and faults of network, disk and clock. With
    --cluster it is a cluster of three to five nodes, with partitions of the network between them.
    """
    if consensus and cluster:
        raise click.UsageError("--consensus and --cluster exclude each other.")
    if sum(value is not None for value in (seed, seeds, count, minutes)) > 1:
        raise click.UsageError("--seed, --seeds, --count and --minutes exclude each other.")
    if trace and seed is None:
        raise click.UsageError("--trace tells the story of one seed: say which with --seed.")
    simulator = _Consensus() if consensus else _Cluster() if cluster else _Node()
    _check_bug(plant, simulator)
    if seed is not None:
        _run_one(seed, trace=trace, plant=plant, simulator=simulator)
        return
    from tidelog.testing.simulation.exploration import explore, ranges_of, ranges_until

    size = simulator.range_seeds
    if minutes is not None:
        first = _draw_first_seed()
        click.echo(f"seeds from {first} on for {minutes:g} minutes")
        ranges = ranges_until(first, time.monotonic() + minutes * 60, size)
    else:
        if seeds is not None:
            first, count = seeds[0], seeds[1] - seeds[0]
        ranges = ranges_of(first, count or 1000, size)
    report = _Report(plant, simulator)
    for findings in explore(
        ranges,
        jobs=jobs or _cores(),
        keep_going=keep_going,
        bug=plant,
        run=simulator.run_range,
    ):
        report.add(findings)
    report.finish()
    if report.has_failures:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Node:
    """The simulator of the node and its clients."""

    option = ""

    def __init__(self) -> None:
        from tidelog.testing.simulation import exploration, planted_bugs

        self.range_seeds = exploration.RANGE_SEEDS
        self.run_range = exploration.run_range
        self.run_seed = exploration.run_seed_guarded
        self.planted_bugs = planted_bugs.PLANTED_BUGS
        self.missing = _nothing_missing


class _Cluster:
    """The simulator of several nodes and their clients."""

    option = " --cluster"

    def __init__(self) -> None:
        from tidelog.testing.simulation.cluster import exploration, planted_bugs

        self.range_seeds = exploration.RANGE_SEEDS
        self.run_range = exploration.run_clusters
        self.run_seed = exploration.run_cluster_guarded
        self.planted_bugs = planted_bugs.PLANTED_BUGS
        self.missing = exploration.missing


class _Consensus:
    """The simulator of the metadata quorum."""

    option = " --consensus"

    def __init__(self) -> None:
        from tidelog.testing.simulation.consensus import exploration, planted_bugs

        self.range_seeds = exploration.RANGE_SEEDS
        self.run_range = exploration.run_schedules
        self.run_seed = exploration.run_schedule_guarded
        self.planted_bugs = planted_bugs.PLANTED_BUGS
        self.missing = _nothing_missing


_Simulator = _Node | _Cluster | _Consensus


def _nothing_missing(findings: Findings) -> list[str]:
    return []


def _check_bug(plant: str | None, simulator: _Simulator) -> None:
    if plant is None:
        return
    if plant == "list":
        for name, bug in simulator.planted_bugs.items():
            click.echo(f"{name:<38} {(bug.__doc__ or '').splitlines()[0]}")
        raise click.exceptions.Exit(0)
    if plant not in simulator.planted_bugs:
        raise click.UsageError(f"There is no planted bug {plant!r}; `--plant list` names them.")


def _draw_first_seed() -> int:
    return random.SystemRandom().getrandbits(_SEED_BITS)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _run_one(seed: int, *, trace: bool, plant: str | None, simulator: _Simulator) -> None:
    """In this process, so that a debugger can be used."""
    from tidelog.testing.simulation.exploration import Findings

    result = simulator.run_seed(seed, keeps_trace=trace, bug=plant)
    for line in result.trace:
        click.echo(line)
    findings = Findings()
    findings.add(result)
    for failure in findings.failures:
        click.echo(_tell(failure, plant, simulator, lines_max=None))
    click.echo(f"seed {seed}: {result.options}")
    click.echo(_totals(findings))
    click.echo(f"trace {result.trace_digest}")
    if findings.failures:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Report:
    """A line of progress now and then, failures at once, totals in the end."""

    def __init__(self, plant: str | None, simulator: _Simulator) -> None:
        from tidelog.testing.simulation.exploration import Findings

        self._plant = plant
        self._simulator = simulator
        self._total = Findings()
        self._began_s = self._told_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    @property
    def has_failures(self) -> bool:
        return bool(self._total.failures or self._missing)

    @property
    def _missing(self) -> list[str]:
        return [] if self._plant else self._simulator.missing(self._total)

    def add(self, findings: Findings) -> None:
        self._total.merge(findings)
        for failure in findings.failures:
            self._clear_line()
            told = _tell(failure, self._plant, self._simulator, lines_max=_LINES_OF_FAILURE_MAX)
            click.echo(told)
        interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _PROGRESS_INTERVAL_S
        if time.monotonic() - self._told_s >= interval_s:
            self._told_s = time.monotonic()
            end = "\r" if self._is_terminal else "\n"
            click.echo(self._progress() + end, err=True, nl=False)

    def finish(self) -> None:
        self._clear_line()
        click.echo(self._progress())
        click.echo(_totals(self._total))
        if self._total.failures:
            failed = sorted(failure.seed for failure in self._total.failures)
            click.echo(f"failed seeds: {', '.join(map(str, failed))}")
        for what in self._missing:
            click.echo(f"too little to show anything: {what}")

    def _progress(self) -> str:
        total, seconds = self._total, time.monotonic() - self._began_s
        return (
            f"{total.seeds} seeds in {seconds:.0f} s, {total.seeds / max(seconds, 1e-9):.1f} a "
            f"second, {len(total.failures)} failed"
        )

    def _clear_line(self) -> None:
        if self._is_terminal:
            click.echo("\r\033[K", err=True, nl=False)


def _tell(
    failure: Failure,
    plant: str | None,
    simulator: _Simulator,
    *,
    lines_max: int | None,
) -> str:
    lines = [line for what in failure.what for line in what.splitlines()]
    shown = lines if lines_max is None else lines[:lines_max]
    if len(shown) < len(lines):
        shown.append(f"... and {len(lines) - len(shown)} lines more")
    bug = f" --plant {shlex.quote(plant)}" if plant else ""
    return "\n".join(
        [
            f"seed {failure.seed} failed",
            f"  options: {failure.options}",
            *(f"  {line}" for line in shown),
            f"  repeat: tidelog simulate{simulator.option} --seed {failure.seed} --trace{bug}",
        ]
    )


def _totals(findings: Findings) -> str:
    """What happened, so that a run in which nothing did cannot pass for a good one."""
    counts = ", ".join(f"{name} {number}" for name, number in sorted(findings.counts.items()))
    return f"simulated {findings.simulated_s:.0f} s, events {findings.events}, {counts}"
