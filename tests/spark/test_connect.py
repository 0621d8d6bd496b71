"""Archive, replay and the jobs over Spark Connect, whose sessions have no JVM to reach into."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.lake import mixed_records
from tests.spark.topics import create_topic
from tidelog.testing import Broker

_PARTITIONS = 2

# As a user's script: the session first, then what uses it.
_SCRIPT = """
import json, sys
from click.testing import CliRunner
import tidelog.spark
from tidelog.cli.audit import command as audit
from tidelog.cli.hotkeys import command as hotkeys
from tidelog.spark import lake

bootstrap, topic, path = sys.argv[1:]
spark = tidelog.spark.session()
said = {"session": type(spark).__module__}
for run in ("archived", "archived_again"):
    said[run] = lake.archive([topic], path, bootstrap=bootstrap, spark=spark).records
said["read"] = lake.read(spark, path).count()
copy = {"topic": topic, "to_topic": topic + "-copy", "bootstrap": bootstrap, "replay_id": "back"}
for run in ("replayed", "replayed_again"):
    said[run] = lake.replay(path, **copy, spark=spark).records
for name, command, options in (
    ("audit", audit, ["--lake", path, "--compare-lake"]),
    ("hotkeys", hotkeys, []),
):
    arguments = [topic, *options, "--json", "--bootstrap", bootstrap]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    said[name] = json.loads(done.stdout)
print(json.dumps(said))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_topic_is_archived_replayed_and_audited(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    for name in (topic, f"{topic}-copy"):
        create_topic(bootstrap, name, _PARTITIONS)
    mixed_records.produce(bootstrap, topic, _PARTITIONS, 200, seed=41)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, bootstrap, topic, str(tmp_path / "lake")],
        # The server takes any free port when Spark is under test.
        env={**os.environ, "SPARK_REMOTE": "local[2]", "SPARK_TESTING": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["session"] == "pyspark.sql.connect.session"
    assert (said["archived"], said["archived_again"], said["read"]) == (200, 0, 200)
    assert (said["replayed"], said["replayed_again"]) == (200, 0)
    there = mixed_records.consume(bootstrap, f"{topic}-copy", _PARTITIONS)
    for partition, records in mixed_records.consume(bootstrap, topic, _PARTITIONS).items():
        assert [each["value"] for each in there[partition]] == [each["value"] for each in records]
    assert said["audit"]["passed"] is True
    assert said["audit"]["comparison"]["equal"] is True
    assert said["hotkeys"]["rows"] == 200
