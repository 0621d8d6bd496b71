"""`tidelog pipeline`: pipelines on Spark, described in TOML files."""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import json_option, parse_pairs
from tidelog.cli.output import console, print_json, print_rows
from tidelog.spark.pipeline.file.problems import Problem, Severity
from tidelog.spark.pipeline.pipeline_file import PipelineFile, read_pipeline_file
from tidelog.spark.pipeline.run.state_dir import Found, StateDir, find_all, state_root

if TYPE_CHECKING:
    from tidelog.spark.pipeline import RunningPipeline

_FILE = click.Path(dir_okay=False, path_type=Path)
_POLL_S = 0.1

_file_argument = click.argument("file", type=_FILE)
_variables_option = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of the file; goes before the environment.",
)
_state_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where running pipelines leave their status.  [default: ~/.local/state/tidelog/pipelines]",
)
_conf_option = click.option(
    "--conf", "conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark."
)
_master_option = click.option("--master", metavar="URL", help="Where Spark runs.")


@click.group(name="pipeline")
def command() -> None:
    """Pipelines on Spark, described in TOML files."""


@command.command()
@click.argument("file", type=_FILE, default=Path("pipeline.toml"))
@click.option("--name", help="The pipeline's name.  [default: the file's]")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def init(file: Path, name: str | None, force: bool) -> None:
    """Write a commented pipeline to start from."""
    from tidelog.spark.pipeline.starter import starter_text

    if name is None:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._") or "pipeline"
    if file.exists() and not force:
        fail(f"{file} exists already (--force writes over it)")
    try:
        file.write_text(starter_text(name, str(file)), encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    click.echo(f"wrote {file}; next: tidelog pipeline validate {file}")


@command.command()
@click.argument("files", type=_FILE, nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Let Spark analyse it too; takes some seconds.")
@_variables_option
@_master_option
@_conf_option
@json_option
def validate(
    files: tuple[Path, ...],
    deep: bool,
    variables: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check pipeline files; each problem is a line FILE:LINE: MESSAGE."""
    given = parse_pairs(variables, option="--var")
    problems: list[Problem] = []
    for file in files:
        read = read_pipeline_file(file, given)
        problems += read.problems
        if deep and read.spec is not None:
            problems += _deep_problems(read, master, parse_pairs(conf, option="--conf"))
    errors = sum(each.severity is Severity.ERROR for each in problems)
    if as_json:
        print_json(
            [
                {
                    "file": each.file,
                    "line": each.line,
                    "severity": each.severity.value,
                    "message": each.message,
                }
                for each in problems
            ]
        )
    else:
        for each in problems:
            click.echo(_shown(each))
        if not errors:
            warnings = f", {len(problems)} warnings" if problems else ""
            click.echo(f"{', '.join(str(file) for file in files)}: no errors{warnings}")
    if errors:
        raise click.exceptions.Exit(EXIT_NOT_FOUND)


@command.command()
@_file_argument
@_variables_option
@click.option("--dot", is_flag=True, help="Print the graph for Graphviz.")
@json_option
def plan(file: Path, variables: tuple[str, ...], dot: bool, as_json: bool) -> None:
    """Show the graph of sources, steps and sinks."""
    from tidelog.cli.pipeline_view import plan_tree
    from tidelog.spark.pipeline.plan import make_plan

    made = make_plan(_readable(file, variables).spec)  # type: ignore[arg-type]
    if as_json:
        print_json(made.as_json())
    elif dot:
        click.echo(made.as_dot(), nl=False)
    else:
        console().print(plan_tree(made, is_whole=not sys.stdout.isatty()))


@command.command()
@_file_argument
@_variables_option
@_master_option
@_conf_option
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus there."
)
@_state_option
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each event.")
def run(
    file: Path,
    variables: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    metrics_port: int | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Run a pipeline until it ends, fails, or is told to stop.

    The first SIGINT (Ctrl-C) or SIGTERM lets running micro-batches finish, the second stops at
    once.
    """
    from tidelog.cli.pipeline_view import JsonLines, LiveTable, PlainLines
    from tidelog.spark.pipeline import Pipeline, RunningPipeline

    pipeline = Pipeline(_readable(file, variables))
    settings = parse_pairs(conf, option="--conf")
    view = JsonLines() if as_json else LiveTable() if sys.stdout.isatty() else PlainLines()
    view.say(f"{pipeline.name}: Spark is starting")
    with view:
        running = RunningPipeline(
            pipeline,
            master=master,
            conf=settings,
            state_dir=state_dir,
            metrics_port=metrics_port,
            on_session=lambda spark: _handle_signals(running),
            on_event=view.event,
            on_status=view.status,
        )
        _handle_signals(running)
        running.run()
    running.result()


@command.command(name="list")
@_state_option
@json_option
def list_pipelines(state_dir: Path | None, as_json: bool) -> None:
    """List pipelines that run or have run on this machine."""
    rows = [_row(each) for each in find_all(_root(state_dir))]
    columns = ["name", "phase", "pid", "queries", "rows", "rows_per_s", "lag", "updated", "file"]
    print_rows(rows, columns, as_json=as_json, empty="no pipelines yet")


@command.command()
@click.argument("name", required=False)
@_state_option
@json_option
def status(name: str | None, state_dir: Path | None, as_json: bool) -> None:
    """Show what the queries of a pipeline do."""
    from tidelog.cli.pipeline_view import status_table

    root = _root(state_dir)
    found = [_find(root, name)] if name is not None else find_all(root)
    if as_json:
        rows = [_details(each) for each in found]
        print_json(rows[0] if name is not None else rows)
        return
    if not found:
        click.echo("no pipelines yet", err=True)
    for each in found:
        pid = f", process {each.process.pid}" if each.process is not None else ""
        click.echo(f"{each.name}: {each.phase}{pid}")
        if each.problem is not None:
            click.echo(f"  {each.problem}")
        if each.status is not None:
            if each.status.reason:
                click.echo(f"  {each.status.reason}")
            console().print(status_table(each.status))


@command.command()
@click.argument("name")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=90.0,
    show_default=True,
    help="Seconds to wait for its end; 0 does not wait.",
)
@click.option("--now", is_flag=True, help="Do not let micro-batches finish.")
@_state_option
def stop(name: str, timeout_s: float, now: bool, state_dir: Path | None) -> None:
    """Tell a running pipeline to finish its micro-batches and end."""
    found = _find(_root(state_dir), name)
    if not found.is_running or found.process is None:
        fail(f"{name} does not run ({found.phase})", exit_code=EXIT_NOT_FOUND)
    pid = found.process.pid
    os.kill(pid, signal.SIGTERM)
    if now:
        time.sleep(_POLL_S)  # two signals at once may be one
        if found.process.is_alive():
            os.kill(pid, signal.SIGTERM)
    if timeout_s == 0:
        click.echo(f"{name} drains")
        return
    deadline = time.monotonic() + timeout_s
    while found.process.is_alive():
        if time.monotonic() > deadline:
            fail(f"{name} (process {pid}) still runs after {timeout_s:g} s; --now does not wait")
        time.sleep(_POLL_S)
    click.echo(f"{name} has stopped")


def _readable(file: Path, variables: Sequence[str]) -> PipelineFile:
    """The file, or the end of the command with its problems."""
    read = read_pipeline_file(file, parse_pairs(variables, option="--var"))
    for each in read.problems:
        click.echo(_shown(each), err=True)
    if read.spec is None:
        raise click.exceptions.Exit(EXIT_NOT_FOUND)
    return read


def _shown(problem: Problem) -> str:
    """As editors take it: a file below the current folder by its short name."""
    return str(problem).removeprefix(f"{os.getcwd()}/")


def _deep_problems(
    file: PipelineFile, master: str | None, conf: dict[str, str]
) -> tuple[Problem, ...]:
    from tidelog.spark.pipeline.checks.deep_checks import check_deep
    from tidelog.spark.pipeline.run.session import pipeline_session

    assert file.spec is not None
    with pipeline_session(file.spec, master=master, conf=conf) as spark:
        return check_deep(file, spark)


def _handle_signals(running: "RunningPipeline") -> None:
    """Again when Spark has started, because PySpark takes SIGINT for itself."""

    def ask(number: int, frame: object) -> None:
        running.request_stop()
        if running.stops_requested >= 2:
            # Who asks a third time wants the process gone.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def _root(state_dir: Path | None) -> Path:
    return state_dir or state_root(os.environ)


def _find(root: Path, name: str) -> Found:
    found = StateDir(root / name).look()
    if found.process is None and found.status is None and found.problem is None:
        known = ", ".join(each.name for each in find_all(root))
        hint = f"; there are {known}" if known else ""
        fail(f"no pipeline {name} under {root}{hint}", exit_code=EXIT_NOT_FOUND)
    return found


def _row(found: Found) -> dict[str, Any]:
    status = found.status
    queries = status.queries if status is not None else []
    lags = [each.lag_total for each in queries if each.lag_total is not None]
    return {
        "name": found.name,
        "phase": found.phase,
        "pid": found.process.pid if found.process is not None and found.is_running else None,
        "queries": len(queries),
        "rows": sum(each.rows for each in queries),
        "rows_per_s": sum(each.rows_per_s for each in queries) if found.is_running else 0.0,
        "lag": sum(lags) if lags else None,
        "updated": status.updated_at if status is not None else None,
        "file": status.file if status is not None else None,
    }


def _details(found: Found) -> dict[str, Any]:
    import msgspec

    told = msgspec.to_builtins(found.status) if found.status is not None else {"name": found.name}
    shown = {**told, "phase": found.phase, "is_running": found.is_running}
    return shown if found.problem is None else {**shown, "reason": found.problem}
