"""A pipeline that is killed, again and again, and what is in its sinks afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Run
from tidelog.spark.pipeline.run.state_dir import StateDir
from tidelog.testing import Broker

_WAIT_S = 180.0
_RECORDS = 4_000

_FILE = """
[pipeline]
name = "copy"
checkpoint = "checkpoints"
trigger = "${{TRIGGER}}"
[brokers]
bootstrap = "{bootstrap}"
[spark]
master = "local[2,4]"
conf."spark.driver.memory" = "1g"
[sources.words]
topic = "{topic}"
starting_offsets = "earliest"
max_offsets_per_trigger = 200
format = "string"
[sinks.out]
from = "words"
topic = "{topic}.out"
[sinks.lake]
kind = "delta"
from = "words"
path = "lake"
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_record_is_in_each_sink_once_however_often_the_process_is_killed(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic, f"{topic}.out", "--partitions", "2")
    words = [f"word-{number}" for number in range(_RECORDS)]
    run("produce", topic, given="".join(f"{word}\n" for word in words))
    file = tmp_path / "copy.toml"
    file.write_text(_FILE.format(bootstrap=broker.bootstrap_servers, topic=topic))
    for batches in (2, 3):
        _run_and_kill(file, tmp_path, after_batches=batches)
        assert StateDir(tmp_path / "state" / "copy").look().phase == "dead"
    before = DeltaTable(tmp_path / "lake").to_pyarrow_table().num_rows
    assert 0 < before < _RECORDS, "it was killed on its way"
    with _started(file, tmp_path, "available-now") as process:
        assert process.wait(_WAIT_S) == 0
    in_lake = DeltaTable(tmp_path / "lake").to_pyarrow_table()["value"].to_pylist()
    assert Counter(in_lake) == Counter(words)
    lines = run("consume", f"{topic}.out", "--json").stdout.splitlines()
    assert Counter(json.loads(line)["value"] for line in lines) == Counter(words)


@contextmanager
def _started(file: Path, folder: Path, trigger: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tidelog", "pipeline", "run", str(file)),
            *("--var", f"TRIGGER={trigger}", "--state-dir", str(folder / "state")),
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run_and_kill(file: Path, folder: Path, after_batches: int) -> None:
    with _started(file, folder, "0 seconds") as process:
        deadline = time.monotonic() + _WAIT_S
        while True:
            status = StateDir(folder / "state" / "copy").look().status
            if status is not None and min(each.batches for each in status.queries) >= after_batches:
                break
            assert time.monotonic() < deadline, status
            assert process.poll() is None
            time.sleep(0.02)
        java = [
            each for each in psutil.Process(process.pid).children(True) if each.name() == "java"
        ]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(_WAIT_S)
        # Spark must be gone too before the next run writes to the same places.
        assert psutil.wait_procs(java, _WAIT_S)[1] == []
