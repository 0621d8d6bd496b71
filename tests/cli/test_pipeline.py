"""`tidelog pipeline`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Run, run_command
from tests.cli.terminal import on_terminal
from tidelog.spark.pipeline.run.state_dir import StateDir
from tidelog.spark.pipeline.run.status import PipelineStatus
from tidelog.testing import Broker
from tidelog.testing.broker import free_port

_WAIT_S = 120.0

_COUNT = """
[pipeline]
name = "{name}"
checkpoint = "checkpoints"
trigger = "{trigger}"
[brokers]
bootstrap = "${{TIDELOG_BOOTSTRAP}}"
[spark]
master = "local[2,4]"
conf."spark.driver.memory" = "1g"
conf."spark.sql.shuffle.partitions" = 1
[sources.words]
topic = "{topic}"
starting_offsets = "earliest"
format = "string"
[steps.upper]
sql = "SELECT upper(value) AS value FROM words"
[sinks.out]
from = "upper"
topic = "{topic}.out"
[sinks.screen]
kind = "console"
from = "upper"
"""

_STATUS = """
{"name": "whole", "file": "/x/whole.toml", "pid": 1, "phase": "finished", "queries": [],
 "started_at": "2026-01-01T00:00:00.000+00:00", "updated_at": "2026-01-01T00:00:02.000+00:00"}
"""


def _file(folder: Path, topic: str, trigger: str, name: str = "count") -> Path:
    file = folder / "count.toml"
    file.write_text(_COUNT.format(name=name, topic=topic, trigger=trigger))
    return file


def test_init_writes_a_file_that_validates_and_plans(tmp_path: Path) -> None:
    file = tmp_path / "orders of eu.toml"
    assert "wrote" in run_command("pipeline", "init", str(file)).stdout
    # Who follows the documentation says `pipeline status orders` next.
    assert 'name = "orders-of-eu"' in file.read_text()
    done = run_command("pipeline", "validate", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: no errors\n")
    assert "exists already" in run_command("pipeline", "init", str(file)).stderr
    text = file.read_text()
    file.write_text(text.replace('topic = "orders"', f'topic = "{"orders" * 20}"'))
    tree = run_command("pipeline", "plan", str(file)).stdout
    assert "orders" * 20 in tree  # nothing is cut where nobody's terminal is too narrow
    assert "distinct_orders [dedupe] by id within the watermark" in tree
    plan = json.loads(run_command("pipeline", "plan", str(file), "--json").stdout)
    assert [node["name"] for node in plan["nodes"] if node["part"] == "sink"] == ["sales"]
    assert run_command("pipeline", "plan", str(file), "--dot").stdout.startswith("digraph")


def test_validate_points_at_lines(tmp_path: Path) -> None:
    file = _file(tmp_path, "t", "soon")
    file.write_text(file.read_text().replace('from = "upper"', 'from = "uper"', 1))
    done = run_command("pipeline", "validate", str(file))
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        f"{file}:5: error: 'trigger' cannot be 'soon': give the time between micro-batches, such "
        f"as '5 seconds' or '0 seconds', or 'available-now' or 'once'",
        f"{file}:19: error: there is no view 'uper'. Did you mean 'upper'?",
    ]
    problems = json.loads(run_command("pipeline", "validate", str(file), "--json").stdout)
    assert [problem["line"] for problem in problems] == [5, 19]
    refused = run_command("pipeline", "run", str(file))
    assert refused.returncode == 3
    assert f"{file}:19: error" in refused.stderr


def test_a_variable_of_the_command_line_goes_before_the_environment(tmp_path: Path) -> None:
    file = _file(tmp_path, "t", "1 s")
    variable = "TIDELOG_BOOTSTRAP=elsewhere:9092"
    plan = run_command("pipeline", "plan", str(file), "--var", variable, "--json").stdout
    assert "elsewhere:9092" in plan
    assert run_command("pipeline", "plan", str(file), "--var", "novalue").returncode == 2
    unused = run_command(
        *("pipeline", "validate", str(file), "--var", variable, "--var", "BOOTSTRAP=x:1")
    )
    assert unused.stdout.splitlines()[0] == (
        f"{file}:1: warning: nothing here uses the variable BOOTSTRAP. "
        f"Did you mean 'TIDELOG_BOOTSTRAP'?"
    )


def test_what_does_not_run_is_told(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path))
    assert run_command("pipeline", "list", *state).stderr == "no pipelines yet\n"
    assert json.loads(run_command("pipeline", "list", "--json", *state).stdout) == []
    for command in ("status", "stop"):
        done = run_command("pipeline", command, "nothing", *state)
        assert done.returncode == 3
        assert "no pipeline nothing" in done.stderr


def test_a_damaged_status_hides_no_other_pipeline(tmp_path: Path) -> None:
    for name, text in (("broken", "{"), ("whole", _STATUS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text(text)
    state = ("--state-dir", str(tmp_path))
    rows = json.loads(run_command("pipeline", "list", "--json", *state).stdout)
    assert [(row["name"], row["phase"]) for row in rows] == [
        ("broken", "unreadable"),
        ("whole", "finished"),
    ]
    shown = run_command("pipeline", "status", "broken", *state).stdout
    assert shown.startswith("broken: unreadable\n")
    assert "status.json cannot be read" in shown


@pytest.mark.timeout(300)
def test_a_broker_that_is_away_is_told_in_lines_not_in_stacks(tmp_path: Path) -> None:
    file = _file(tmp_path, "t", "1 second")
    text = file.read_text()
    no_patience = 'options."default.api.timeout.ms" = 1000\n'
    text = text.replace("[spark]\n", f"{no_patience}[spark]\n", 1)
    file.write_text(text.replace("[pipeline]\n", "[pipeline]\nrestart.max = 0\n"))
    port = free_port()
    variable = f"TIDELOG_BOOTSTRAP=127.0.0.1:{port}"
    done = run_command(
        "pipeline", "run", str(file), "--var", variable, "--state-dir", str(tmp_path)
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].endswith("count: Spark is starting")
    away = f"no broker answers at 127.0.0.1:{port}: [Errno 111] Connection refused"
    assert lines[1].endswith(f"{away}; queries that need it wait")
    assert any(f"failed: no offsets from 127.0.0.1:{port} within 1 s" in line for line in lines)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]
    assert len(errors) == 1, errors
    assert errors[0].startswith("error: count failed: ")
    assert "tidelog." not in done.stdout + errors[0]


def test_a_topic_that_does_not_exist_is_told_before_spark_starts(
    broker: Broker, tmp_path: Path
) -> None:
    variable = f"TIDELOG_BOOTSTRAP={broker.bootstrap_servers}"
    done = run_command(
        *("pipeline", "run", str(_file(tmp_path, "absent", "1 second")), "--var", variable),
        *("--state-dir", str(tmp_path)),
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"error: count: there is no topic absent (source words) at {broker.bootstrap_servers}\n"
    )


@pytest.mark.timeout(300)
def test_a_run_that_ends_by_itself(run: Run, broker: Broker, topic: str, tmp_path: Path) -> None:
    run("topic", "create", topic, f"{topic}.out")
    run("produce", topic, given="a\nb\n")
    with _running(
        broker, "run", str(_file(tmp_path, topic, "available-now")), "--json", state=tmp_path
    ) as process:
        output, errors = process.communicate(timeout=_WAIT_S)
    assert process.returncode == 0, errors
    events = [json.loads(line) for line in output.splitlines()]
    kinds = {event["event"] for event in events}
    assert {"started", "batch", "rows", "ended", "status"} <= kinds
    assert sum(event["rows"] for event in events if event["event"] == "batch") == 4
    assert events[-1]["phase"] == "finished"
    assert _values(run, f"{topic}.out") == ["A", "B"]
    (listed,) = json.loads(
        run_command("pipeline", "list", "--json", "--state-dir", str(tmp_path)).stdout
    )
    assert (listed["name"], listed["phase"], listed["rows"]) == ("count", "finished", 4)


@pytest.mark.timeout(300)
def test_a_run_is_seen_from_outside_and_drains_when_told_to_stop(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic, f"{topic}.out")
    run("produce", topic, given="a\n")
    arguments = ("run", str(_file(tmp_path, topic, "100 ms")), "--metrics-port", "0")
    with _running(broker, *arguments, state=tmp_path) as process:
        status = _when(tmp_path, lambda status: sum(each.rows for each in status.queries) == 2)
        assert (status.phase, status.pid) == ("running", process.pid)
        assert status.metrics_url is not None
        with urllib.request.urlopen(status.metrics_url, timeout=30) as answer:
            assert b'tidelog_pipeline_up{pipeline="count"} 1' in answer.read()
        shown = run_command("pipeline", "status", "count", "--state-dir", str(tmp_path))
        assert f"count: running, process {process.pid}" in shown.stdout
        details = run_command("pipeline", "status", "count", "--json", "--state-dir", str(tmp_path))
        assert json.loads(details.stdout)["is_running"] is True
        again = run_command("pipeline", *arguments, "--state-dir", str(tmp_path))
        assert again.returncode == 1
        stopped = run_command("pipeline", "stop", "count", "--state-dir", str(tmp_path))
        # Who asked is told when the process is gone, not before.
        output, errors = process.communicate(timeout=1)
    assert (stopped.returncode, stopped.stdout) == (0, "count has stopped\n"), stopped.stderr
    assert process.returncode == 0, errors
    assert "draining" in output
    assert "count: stopped" in output
    assert "Traceback" not in errors
    assert _values(run, f"{topic}.out") == ["A"]
    shown = run_command("pipeline", "status", "count", "--state-dir", str(tmp_path))
    assert shown.stdout.startswith("count: stopped")
    details = run_command("pipeline", "status", "count", "--json", "--state-dir", str(tmp_path))
    ended = json.loads(details.stdout)
    assert (ended["phase"], ended["is_running"]) == ("stopped", False)
    assert {each["state"] for each in ended["queries"]} == {"stopped"}
    done = run_command("pipeline", "stop", "count", "--state-dir", str(tmp_path))
    assert done.returncode == 3
    assert "count does not run (stopped)" in done.stderr


def _java_below(pid: int) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        # Spark's Python processes come and go.
        with suppress(psutil.NoSuchProcess):
            if each.name() == "java":
                found.append(each)
    return found


@pytest.mark.timeout(300)
def test_a_signal_to_the_whole_process_group_drains(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic, f"{topic}.out")
    run("produce", topic, given="a\n")
    arguments = ("run", str(_file(tmp_path, topic, "100 ms")))
    with _running(broker, *arguments, state=tmp_path) as process:
        _when(tmp_path, lambda status: sum(each.rows for each in status.queries) == 2)
        (java,) = _java_below(process.pid)
        # As systemd does it: each process of the service gets one, in whichever group it is.
        java.terminate()
        os.killpg(process.pid, signal.SIGTERM)
        output, errors = process.communicate(timeout=_WAIT_S)
        java.wait(_WAIT_S)
    assert process.returncode == 0, errors
    assert "draining" in output
    assert "count: stopped" in output
    assert "Traceback" not in errors
    assert "Exception" not in errors
    assert StateDir(tmp_path / "count").look().phase == "stopped"


@pytest.mark.timeout(300)
def test_options_reach_spark_and_a_run_that_is_cut_off_says_little(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic, f"{topic}.out")
    run("produce", topic, given="a\n")
    file = _file(tmp_path, topic, "0 seconds")
    where = "SELECT concat(current_timezone(), ' ', value) AS value FROM words"
    file.write_text(file.read_text().replace("SELECT upper(value) AS value FROM words", where))
    spark = ("--master", "local[1,4]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    with _running(broker, "run", str(file), *spark, state=tmp_path) as process:
        status = _when(tmp_path, lambda status: sum(each.rows for each in status.queries) == 2)
        assert status.master == "local[1,4]"
        stopped = run_command("pipeline", "stop", "count", "--now", "--state-dir", str(tmp_path))
        assert stopped.stdout == "count has stopped\n", stopped.stderr
        output, errors = process.communicate(timeout=_WAIT_S)
    assert process.returncode == 0, errors
    assert output.count("count: stopped") == 1
    assert "Traceback" not in errors
    assert _values(run, f"{topic}.out") == ["Asia/Tokyo a"]


@pytest.mark.timeout(300)
def test_a_person_at_a_terminal_sees_a_table_until_ctrl_c(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic, f"{topic}.out")
    run("produce", topic, given="a\nb\n")
    arguments = ("pipeline", "run", str(_file(tmp_path, topic, "100 ms")))
    with on_terminal(broker, *arguments, "--state-dir", str(tmp_path)) as terminal:
        terminal.read_until(lambda text: _shown_rows(text).get("out", [])[2:3] == ["2"])
        state, batch, rows, rows_per_s, lag, batch_ms = _shown_rows(terminal.text)["out"]
        run("produce", topic, given="c\n")
        terminal.read_until(lambda text: _shown_rows(text)["out"][2] == "3")
        assert terminal.ctrl_c() == 0
    heads = re.findall(r"query +state +batch +rows +rows/s +lag +batch ms", terminal.text)
    assert heads
    assert (state, int(batch), rows, lag) == ("running", 0, "2", "0")
    assert float(rows_per_s) > 0
    assert int(batch_ms) > 0
    # The console sink's rows are above the table, and the end is told below them.
    assert "screen, batch 0" in terminal.text
    assert "draining" in terminal.text
    assert _shown_rows(terminal.text)["out"][0] == "stopped"
    assert "count: stopped" in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.text.rindex("count: stopped") > terminal.text.rindex("draining")
    assert terminal.shows_cursor


def _shown_rows(text: str) -> dict[str, list[str]]:
    """What the newest line of each query says; the last one may not be whole yet."""
    lines = [line.split() for line in text.splitlines()[:-1]]
    return {line[0]: line[1:] for line in lines if len(line) == 7}


def _values(run: Run, topic: str) -> list[str]:
    lines = run("consume", topic, "--json").stdout.splitlines()
    return [json.loads(line)["value"] for line in lines]


@contextmanager
def _running(broker: Broker, *arguments: str, state: Path) -> Iterator["subprocess.Popen[str]"]:
    """`tidelog pipeline` in a process that does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "pipeline", *arguments, "--state-dir", str(state)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        env={**os.environ, "TIDELOG_BOOTSTRAP": broker.bootstrap_servers},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _when(state: Path, is_met: Callable[[PipelineStatus], bool]) -> PipelineStatus:
    """The status as soon as it meets a condition; looked at without a process for each look."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        status = StateDir(state / "count").look().status
        if status is not None and is_met(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
