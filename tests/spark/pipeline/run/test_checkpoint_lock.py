"""One checkpoint, one pipeline."""

import os
from pathlib import Path

import pytest

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline.run.checkpoint_lock import checkpoint_claimed, local_folder

_FILE = """
[pipeline]
name = "second"
checkpoint = "checkpoints"
[sources.ticks]
kind = "rate"
[sinks.out]
kind = "console"
from = "ticks"
"""


def test_a_pipeline_does_not_start_on_the_checkpoint_of_another(tmp_path: Path) -> None:
    file = tmp_path / "second.toml"
    file.write_text(_FILE)
    refusal = f"checkpoints is used by process {os.getpid()} already"
    with (
        checkpoint_claimed(f"file://{tmp_path}/checkpoints"),
        pytest.raises(SparkError, match=refusal),
    ):
        Pipeline.load(file).run(state_dir=tmp_path / "state")
    with checkpoint_claimed(str(tmp_path / "checkpoints")):
        pass


def test_only_folders_of_this_machine_are_locked(tmp_path: Path) -> None:
    assert local_folder("file:/a/b") == local_folder("file:///a/b") == Path("/a/b")
    assert local_folder("s3a://bucket/a") is None
    with checkpoint_claimed("hdfs://host/a"), checkpoint_claimed("hdfs://host/a"):
        pass
    (tmp_path / "file").touch()
    with checkpoint_claimed(str(tmp_path / "file" / "below")):
        pass  # what is wrong with it is for Spark to say
