"""What other processes can see of a pipeline: the folder, the status, the metrics."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.run.metrics import MetricsServer, render
from tidelog.spark.pipeline.run.state_dir import (
    RunningProcess,
    StateDir,
    find_all,
    state_root,
)
from tidelog.spark.pipeline.run.status import PipelineStatus, QueryStatus

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


def test_a_run_that_left_without_a_last_word_is_dead(tmp_path: Path) -> None:
    folder = StateDir(tmp_path / "shop")
    with folder.claimed():
        folder.write(_STATUS, "")
    assert folder.look().phase == "dead"


def test_a_process_that_died_or_has_another_s_id_is_recognised(tmp_path: Path) -> None:
    script = (
        "import sys, os, pathlib\n"
        "from tidelog.spark.pipeline.run.state_dir import StateDir\n"
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


def test_a_start_that_fails_keeps_what_the_last_run_said(tmp_path: Path) -> None:
    folder = StateDir(tmp_path / "shop")
    failed = replace(_STATUS, pid=1, phase="failed", reason="boom")
    with folder.claimed():
        folder.write(failed, "")
    with folder.claimed():
        # It is not taken for that of the run that starts.
        assert folder.look().phase == "starting"
    assert folder.look().phase == "failed"
    assert folder.look().status == failed


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(SparkError, match=r"cannot be written to .*/file/shop: Not a directory \(.*"),
        StateDir(tmp_path / "file" / "shop").claimed(),
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


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(SparkError, match="TIDELOG_STATE_DIR"):
        state_root({})
    assert state_root({"TIDELOG_STATE_DIR": "/a"}) == Path("/a/pipelines")


def test_metrics_are_what_prometheus_reads() -> None:
    families = list(text_string_to_metric_families(render(_STATUS)))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    of_pipeline = {each.name: each.value for each in samples if "query" not in each.labels}
    assert of_pipeline == {
        "tidelog_pipeline_up": 1,
        "tidelog_pipeline_start_timestamp_seconds": 1767225600,
        "tidelog_pipeline_updated_timestamp_seconds": 1767225602,
    }
    outer = [each for each in samples if each.labels.get("query") == 'out"er']
    values = {
        each.name.removeprefix("tidelog_pipeline_query_"): each.value
        for each in outer
        if "topic" not in each.labels
    }
    assert values == {
        "up": 1,
        "rows_total": 100,
        "batches_total": 5,
        "restarts_total": 1,
        "rows_per_second": 2.5,
        "batch_duration_seconds": 0.25,
        "last_batch_id": 4,
        "state_rows": 3,
        "state_bytes": 2048,
        "late_rows_total": 2,
        "watermark_timestamp_seconds": 1767225600,
        "last_batch_timestamp_seconds": 1767225601.5,
    }
    lags = {
        each.labels["topic"]: each.value for each in outer if each.name.endswith("_lag_records")
    }
    assert lags == {"orders": 7, "payments": 1}
    # A query without a batch has no number and no duration of one.
    idle = {each.name for each in samples if each.labels.get("query") == "idle"}
    assert "tidelog_pipeline_query_up" in idle
    assert not [name for name in idle if "batch_id" in name or "duration" in name]


def test_metrics_of_a_killed_run_are_gone_when_the_next_one_begins(tmp_path: Path) -> None:
    folder = StateDir(tmp_path / "shop")
    with folder.claimed():
        folder.write(_STATUS, render(_STATUS))
    with folder.claimed():
        assert not (folder.path / "metrics.prom").exists()


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
