"""`tidelog simulate`: a real node in a simulated world, one seed after the other."""

from __future__ import annotations

import os
import random
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.failures import EXIT_FAILED

if TYPE_CHECKING:
    from tidelog.testing.simulation.exploration import Failure, Findings
    from tidelog.testing.simulation.result import Result

_SEED_BITS = 32
_PROGRESS_INTERVAL_S = 10.0
_TERMINAL_INTERVAL_S = 0.5
_LINES_OF_FAILURE_MAX = 40


class _Numbers(click.ParamType):  # type: ignore[type-arg]
    name = "N,N..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        try:
            return frozenset(int(each) for each in str(value).split(",") if each)
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers, as in 3,7", param, ctx)


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
@click.option("--timeline", is_flag=True, help="Tell what happened, in short. With --cluster.")
@click.option("--html", type=click.Path(dir_okay=False), help="Draw it, on a page of HTML.")
@click.option("--without", type=_Numbers(), help="Leave out these fault events.")
@click.option("--shrink", is_flag=True, help="Find out which faults a failure does not need.")
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
    timeline: bool,
    html: str | None,
    without: frozenset[int] | None,
    shrink: bool,
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
    --cluster it is a cluster of three to seven nodes, with partitions of the network between them;
    the faults of a --seed are then numbered events, which can be left out, and its story can be had
    as a --timeline or as a page of --html.
    """
    if consensus and cluster:
        raise click.UsageError("--consensus and --cluster exclude each other.")
    if sum(value is not None for value in (seed, seeds, count, minutes)) > 1:
        raise click.UsageError("--seed, --seeds, --count and --minutes exclude each other.")
    if trace and seed is None:
        raise click.UsageError("--trace tells the story of one seed: say which with --seed.")
    story = _Story(trace, timeline, html, without or frozenset(), shrink)
    if story.is_of_cluster and (seed is None or not cluster):
        raise click.UsageError(
            "--timeline, --html, --without and --shrink go with --cluster and --seed."
        )
    simulator = _Consensus() if consensus else _Cluster() if cluster else _Node()
    _check_bug(plant, simulator)
    if seed is not None:
        _run_one(seed, story=story, plant=plant, simulator=simulator)
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


@dataclass(slots=True, frozen=True)
class _Story:
    """What is told of one seed, and how."""

    trace: bool
    timeline: bool
    html: str | None
    without: frozenset[int]
    shrinks: bool

    @property
    def is_of_cluster(self) -> bool:
        return bool(self.timeline or self.html or self.without or self.shrinks)


def _run_one(seed: int, *, story: _Story, plant: str | None, simulator: _Simulator) -> None:
    """In this process, so that a debugger can be used."""
    from tidelog.testing.simulation.exploration import Findings

    without = _shrunk(seed, story, plant) if story.shrinks else story.without
    keeps_trace = story.trace or story.timeline or story.html is not None
    run_seed: Callable[..., Result] = simulator.run_seed
    if without:
        run_seed = partial(run_seed, without=without)
    result = run_seed(seed, keeps_trace=keeps_trace, bug=plant)
    _tell_story(result, story, without, plant)
    findings = Findings()
    findings.add(result)
    for failure in findings.failures:
        click.echo(_tell(failure, plant, simulator, lines_max=None, without=without))
    click.echo(f"seed {seed}: {result.options}")
    click.echo(_totals(findings))
    click.echo(f"trace {result.trace_digest}")
    if findings.failures:
        raise click.exceptions.Exit(EXIT_FAILED)


def _shrunk(seed: int, story: _Story, plant: str | None) -> frozenset[int]:
    from tidelog.testing.simulation.cluster.exploration import run_cluster_guarded
    from tidelog.testing.simulation.shrinking import shrink

    try:
        found = shrink(
            lambda without: run_cluster_guarded(seed, bug=plant, without=without),
            without=story.without,
            tell=lambda line: click.echo(line, err=True),
        )
    except ValueError as error:
        raise click.UsageError(f"seed {seed}: {error}") from error
    click.echo(f"after {found.runs} runs these faults are left:")
    for event in found.result.faults:
        click.echo(f"  {event}")
    return found.without


def _tell_story(result: Result, story: _Story, without: frozenset[int], plant: str | None) -> None:
    if story.trace:
        for line in result.trace:
            click.echo(line)
    if story.timeline:
        from tidelog.testing.simulation.timeline import moments, tell

        for event in result.faults:
            click.echo(f"fault {event}")
        for line in tell(moments(result.trace, result.failures)):
            click.echo(line)
    if story.html is not None:
        from tidelog.testing.simulation.timeline_html import page

        arguments = f"--cluster --seed {result.seed}{_arguments(without, plant)}"
        title = f"Seed {result.seed}: {'good' if result.is_good else 'failed'}"
        Path(story.html).write_text(
            page(result, title=title, command=f"tidelog simulate {arguments}"), encoding="utf-8"
        )
        click.echo(f"wrote {story.html}")


def _arguments(without: frozenset[int], plant: str | None) -> str:
    left_out = f" --without {','.join(map(str, sorted(without)))}" if without else ""
    return left_out + (f" --plant {shlex.quote(plant)}" if plant else "")


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
    without: frozenset[int] = frozenset(),
) -> str:
    lines = [line for what in failure.what for line in what.splitlines()]
    shown = lines if lines_max is None else lines[:lines_max]
    if len(shown) < len(lines):
        shown.append(f"... and {len(lines) - len(shown)} lines more")
    return "\n".join(
        [
            f"seed {failure.seed} failed",
            f"  options: {failure.options}",
            *(f"  {line}" for line in shown),
            f"  repeat: tidelog simulate{simulator.option} --seed {failure.seed} --trace"
            f"{_arguments(without, plant)}",
        ]
    )


def _totals(findings: Findings) -> str:
    """What happened, so that a run in which nothing did cannot pass for a good one."""
    counts = ", ".join(f"{name} {number}" for name, number in sorted(findings.counts.items()))
    return f"simulated {findings.simulated_s:.0f} s, events {findings.events}, {counts}"
