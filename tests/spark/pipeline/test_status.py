"""What other processes can see of a pipeline: the folder, the status, the metrics."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.metrics import MetricsServer, render
from tidelog.spark.pipeline.state_dir import (
    RunningProcess,
    StateDir,
    find_all,
    state_root,
)
from tidelog.spark.pipeline.status import PipelineStatus, QueryStatus

_QUERY = QueryStatus(
    name='out"er',
    kind="topic",
    reads="view",
    state="running",
    batch_id=4,
    batches=5,
    rows=100,
    rows_per_s=2.5,
    batch_ms=250,
    lag={"orders": 7, "payments": 1},
    state_rows=3,
    state_bytes=2048,
    late_rows=2,
    watermark="2026-01-01T00:00:00.000Z",
    restarts=1,
    last_batch_at="2026-01-01T00:00:01.500Z",
)
_STATUS = PipelineStatus(
    name="shop",
    file="/x/shop.toml",
    pid=os.getpid(),
    phase="running",
    started_at="2026-01-01T00:00:00.000+00:00",
    updated_at="2026-01-01T00:00:02.000+00:00",
    queries=[_QUERY, QueryStatus("idle", "console", "view", "waiting")],
)


def test_a_status_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = StateDir(tmp_path / "shop")
    with folder.claimed():
        assert folder.look().phase == "starting"
        folder.write(_STATUS, render(_STATUS))
        found = folder.look()
        assert found.status == _STATUS
        assert found.is_running
        assert found.phase == "running"
        assert found.process is not None
        assert found.process.pid == os.getpid()
        assert (tmp_path / "shop" / "metrics.prom").read_text() == render(_STATUS)
        assert [each.name for each in find_all(tmp_path)] == ["shop"]
    assert _QUERY.lag_total == 8


def test_the_end_is_kept_but_not_taken_for_running(tmp_path: Path) -> None:
    folder = StateDir(tmp_path / "shop")
    with folder.claimed():
        folder.write(replace(_STATUS, phase="failed", reason="boom"), "")
    found = folder.look()
    assert not found.is_running
    assert found.phase == "failed"
    assert found.process is None


def test_a_process_that_died_or_has_another_s_id_is_recognised(tmp_path: Path) -> None:
    script = (
        "import sys, os, pathlib\n"
        "from tidelog.spark.pipeline.state_dir import StateDir\n"
        "with StateDir(pathlib.Path(sys.argv[1])).claimed():\n"
        "    os._exit(1)\n"
    )
    folder = StateDir(tmp_path / "shop")
    subprocess.run([sys.executable, "-c", script, str(folder.path)], timeout=60, check=False)
    found = folder.look()
    assert found.process is not None
    assert not found.is_running
    assert found.phase == "dead"
    # The id is ours now, but the process that wrote it was started at another time.
    assert not RunningProcess(os.getpid(), "12").is_alive()
    with folder.claimed():
        assert folder.look().is_running


def test_a_pipeline_is_not_run_twice_at_once(tmp_path: Path) -> None:
    with (
        StateDir(tmp_path / "shop").claimed(),
        pytest.raises(SparkError, match=f"is run by process {os.getpid()} already"),
        StateDir(tmp_path / "shop").claimed(),
    ):
        pass


def test_nothing_is_found_where_nothing_ran(tmp_path: Path) -> None:
    assert find_all(tmp_path / "nowhere") == []
    (tmp_path / "empty").mkdir()
    assert find_all(tmp_path) == []


def test_the_root_follows_the_environment() -> None:
    assert state_root({"TIDELOG_STATE_DIR": "/a"}) == Path("/a/pipelines")
    assert state_root({"XDG_STATE_HOME": "/b"}) == Path("/b/tidelog/pipelines")
    assert state_root({}).parts[-4:] == (".local", "state", "tidelog", "pipelines")


def test_metrics_are_in_prometheus_text_format() -> None:
    lines = render(_STATUS).splitlines()
    assert lines[:3] == [
        "# HELP tidelog_pipeline_up 1 while the pipeline runs.",
        "# TYPE tidelog_pipeline_up gauge",
        'tidelog_pipeline_up{pipeline="shop"} 1',
    ]
    labels = 'pipeline="shop",query="out\\"er"'
    for sample in (
        f"tidelog_pipeline_query_rows_total{{{labels}}} 100",
        f"tidelog_pipeline_query_batch_duration_seconds{{{labels}}} 0.25",
        f'tidelog_pipeline_query_lag_records{{{labels},topic="orders"}} 7',
        f"tidelog_pipeline_query_state_bytes{{{labels}}} 2048",
        f"tidelog_pipeline_query_late_rows_total{{{labels}}} 2",
        f"tidelog_pipeline_query_restarts_total{{{labels}}} 1",
        f"tidelog_pipeline_query_watermark_timestamp_seconds{{{labels}}} 1767225600",
        'tidelog_pipeline_query_up{pipeline="shop",query="idle"} 0',
    ):
        assert sample in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert not [line for line in lines if "batch_id" in line and "idle" in line]


def test_metrics_are_served() -> None:
    server = MetricsServer(0, lambda: render(_STATUS))
    try:
        with urllib.request.urlopen(server.url, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == render(_STATUS)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.url + "x", timeout=30)
        port = int(server.url.split(":")[2].split("/")[0])
        with pytest.raises(SparkError, match="cannot serve metrics"):
            MetricsServer(port, str)
    finally:
        server.close()
